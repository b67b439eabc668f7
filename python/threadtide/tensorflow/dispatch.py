# SPDX-License-Identifier: Apache-2.0
"""The queue of tasks, and a thread for each worker that takes tasks from it.

Nobody waits for a lost worker: its task goes back to the queue at once, and what its thread says
about it later is ignored. A task whose call did not end cleanly is marked as interrupted: its
worker may or may not have done it.

Now and then TensorFlow never answers a call that it was at while its cluster changed, though both
ends live: a tensor that was on its way to the worker then ("Unexpected context_view_id" in its log)
never counts as arrived. The call's task is done again, and its worker, with which nothing is wrong,
gets another thread; only if that gets no answer either the worker counts as lost. Once in thousands of
trainings the first calls get no answer without any change, and nobody knows why: calls that may be done
twice without harm are therefore made again also when they take much longer than usual.
"""

import collections
import threading
import time

import tensorflow as tf

from threadtide.tensorflow import private
from threadtide.tensorflow.log import first_line, log

ATTEMPTS = 8  # of a task whose calls fail though nobody has gone
FAILURES = 3  # of a worker, one after the other, before it counts as lost
EXPLAIN_S = 0.4  # how long after an error the end of a link may come
# Seconds, and times the usual: after a change of the cluster until a call that it met is made again;
# that a worker's next call takes until the worker is given up.
AGAIN_S, AGAIN_TIMES = 3.0, 10
OVERDUE_S, OVERDUE_TIMES = 30.0, 20
PREPARED_S = 60.0  # after a change of the cluster that met a worker as it prepared: it works without
FIRST_S = 60.0  # as AGAIN_S, as long as no such call has ended: the first one prepares its function
# Without a change, as long as no such call has ended: until one that is repeatable is made again (a tenth of a core may need a
# minute or two for the first one), and how often that until its worker is given up.
STUCK_S, STUCK_TIMES = 180.0, 10

TRANSPORT = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
             tf.errors.DeadlineExceededError)


class Usual:
    """How long calls of a kind take; 0: none has ended yet."""
    seconds = 0.0

    def add(self, seconds):
        self.seconds = max(seconds, 0.9 * self.seconds)


def unusual(seconds):
    """Seconds after which a call that usually takes @seconds will not be answered any more."""
    return OVERDUE_S + OVERDUE_TIMES * seconds


class Task:
    """A call: run(device, executor) on whichever worker is free. One that is not @needed, a measurement, is not done
    again when it fails, and its failure says nothing about its worker: it may name a server that has left. One that
    is @repeatable leaves the same when it is done twice, also at the same time: its first answer counts."""

    def __init__(self, run, usual, needed=True, repeatable=False):
        self.run, self.usual, self.needed, self.repeatable = run, usual, needed, repeatable
        self.begun = 0.0
        self.result, self.error = None, None
        self.finished = False
        self.interrupted = 0  # how often it may have been done, or half done
        self.seconds = 0.0


class Dispatcher:
    """The queue. Whoever waits for a task or a node waits for its condition, `changed`."""

    def __init__(self, cluster, server_lost):
        self.changed = threading.Condition()
        self._cluster, self._server_lost = cluster, server_lost
        self._queue = collections.deque()
        self._running = {}    # task: worker
        self._preparing = {}  # worker: since when

    def submit(self, tasks):
        with self.changed:
            self._queue.extend(tasks)
            self.changed.notify_all()

    def wake(self):
        """A node's state has changed: the tasks of lost workers go back to the queue."""
        with self.changed:
            for task, worker in list(self._running.items()):
                if worker.node.state == "lost":
                    self._back(task)
            self._preparing = {worker: begun for worker, begun in self._preparing.items()
                               if worker.node.state != "lost"}
            self.changed.notify_all()

    def _back(self, task):
        del self._running[task]
        task.interrupted += 1
        self._queue.appendleft(task)

    def forget(self):
        """Drops all tasks, also those that run; returns the set of those that had begun."""
        with self.changed:
            begun = set(self._running)
            self._queue.clear()
            self._running.clear()
        return begun

    @property
    def running(self):
        """Whether any worker, also one that is about to leave, is at a task."""
        return bool(self._running)

    def overdue(self):
        """The nodes whose answer will not come any more. Calls that are late for the first time are made again."""
        now, updated = time.monotonic(), self._cluster.updated
        nodes = []
        with self.changed:
            for task, worker in list(self._running.items()):
                usual, waited = task.usual.seconds, now - task.begun
                if worker.doubted:  # else a first call costs no worker: nobody knows how long it takes
                    if usual and waited > unusual(usual) or task.repeatable and not usual and waited > STUCK_TIMES * STUCK_S:
                        nodes.append(worker.node)
                elif task.begun < updated and now - updated > (AGAIN_S + AGAIN_TIMES * usual if usual else FIRST_S):
                    self._back(task)
                    worker.replace("has not answered a call since the cluster changed: it is made again", True)
                elif task.repeatable and waited > (unusual(usual) if usual else STUCK_S):
                    self._back(task)
                    worker.replace(f"has not answered a call for {waited:.0f} s: it is made again", True)
            for worker, begun in list(self._preparing.items()):
                if begun < updated and now - updated > PREPARED_S:
                    del self._preparing[worker]
                    worker.replace("has not prepared its functions since the cluster changed: it begins without", False)
            self.changed.notify_all()
        return nodes

    def prepares(self, worker):
        with self.changed:
            self._preparing[worker] = time.monotonic()

    def prepared(self, worker):
        with self.changed:
            self._preparing.pop(worker, None)

    def preparing(self):
        """The numbers of workers that prepare their functions, so they do nothing yet."""
        with self.changed:
            return {worker.node.index for worker in self._preparing}

    def take(self, worker):
        """The next task for @worker; None when it is to end."""
        with self.changed:
            while worker.node.state == "in" and not worker.replaced:
                if self._queue:
                    task = self._queue.popleft()
                    task.begun = time.monotonic()
                    self._running[task] = worker
                    return task
                self.changed.wait(1.0)
        return None

    def done(self, task, worker, result, seconds):
        with self.changed:
            worker.doubted = False
            late = task.repeatable and worker.replaced and (task in self._running or task in self._queue)
            if late or self._running.get(task) is worker:  # late: it was slow, and is being made again, or will be
                self._running.pop(task, None)
                if task in self._queue:
                    self._queue.remove(task)
                task.usual.add(seconds)
                task.result, task.seconds, task.finished = result, seconds, True
                self.changed.notify_all()

    def failed(self, task, worker, error):
        """A call ended with @error. If the loss of a node explains it, or it is one of the
        transport, the task is done again; else the error is the task's. Runs in the worker's
        thread."""
        begin = time.monotonic()
        with self.changed:
            while isinstance(error, tf.errors.OpError):
                if worker.node.state == "lost" or self._server_lost():
                    break
                left = begin + EXPLAIN_S - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
            gone = worker.node.state == "lost" or self._server_lost()
            if self._running.get(task) is not worker:
                return
            transport = isinstance(error, TRANSPORT)
            if task.needed and ((gone and isinstance(error, tf.errors.OpError)) or (
                    transport and task.interrupted < ATTEMPTS)):
                self._back(task)
            else:
                del self._running[task]
                task.error, task.finished = error, True
            self.changed.notify_all()
        if not gone and transport and task.needed:
            worker.failures += 1
            if worker.failures >= FAILURES:
                self._cluster.lost(worker.node, f"its calls fail: {first_line(error)}")


class Worker(threading.Thread):
    """Feeds one worker until that leaves or is lost."""

    def __init__(self, node, cluster, dispatcher, prepare=None, doubted=False):
        super().__init__(name=f"tide-worker-{node.index}", daemon=True)
        self.node, self.failures, self.replaced, self.doubted = node, 0, False, doubted
        self._cluster, self._dispatcher, self._prepare = cluster, dispatcher, prepare
        if prepare:
            dispatcher.prepares(self)  # before it runs, so that no report counts it as useful already
        self.start()

    def replace(self, why, doubted):
        """Another thread feeds the node; this one ends if its call is answered after all."""
        self.replaced = True
        log(f"{self.node} {why}")
        Worker(self.node, self._cluster, self._dispatcher, doubted=doubted)

    def run(self):
        executor = private.new_executor()
        if self._prepare:
            try:
                self._prepare(self.node.device, executor)
            except Exception:  # the user's function may raise anything
                pass  # preparing only saves time: the first task will show what is wrong
            self._dispatcher.prepared(self)
        while True:
            task = self._dispatcher.take(self)
            if task is None:
                break
            begin = time.monotonic()
            try:
                result = task.run(self.node.device, executor)
            except Exception as error:  # the user's function may raise anything
                self._dispatcher.failed(task, self, error)
            else:
                self.failures = 0
                self._dispatcher.done(task, self, result, time.monotonic() - begin)
            del task
        if self.node.state == "draining" and not self.replaced:
            self._cluster.released(self.node)
