# SPDX-License-Identifier: Apache-2.0
"""The queue of tasks, and a thread for each worker that takes tasks from it.

Nobody waits for a lost worker: its task goes back to the queue at once, and what its thread says
about it later is ignored. A task whose call did not end cleanly is marked as interrupted: its
worker may or may not have done it.
"""

import collections
import threading
import time

import tensorflow as tf

from threadtide.tensorflow import private

ATTEMPTS = 8  # of a task whose calls fail though nobody has gone
FAILURES = 3  # of a worker, one after the other, before it counts as lost
EXPLAIN_S = 0.4  # how long after an error the end of a link may come
OVERDUE_S, OVERDUE_TIMES = 30.0, 20  # beyond the usual: the answer is not waited for any longer

TRANSPORT = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
             tf.errors.DeadlineExceededError)


class Usual:
    """How long calls of a kind take; 0: none has ended yet."""
    seconds = 0.0

    def add(self, seconds):
        self.seconds = max(seconds, 0.9 * self.seconds)


class Task:
    """A call: run(device, executor) on whichever worker is free."""

    def __init__(self, run, usual):
        self.run, self.usual = run, usual
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
        self._running = {}  # task: worker

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
        """The nodes whose answer will not come any more: now and then TensorFlow never answers a
        call that it was at while its cluster changed, though both ends live."""
        now, updated = time.monotonic(), self._cluster.updated
        with self.changed:
            return [worker.node for task, worker in self._running.items()
                    if task.usual.seconds and task.begun < updated
                    and now - updated > OVERDUE_S + OVERDUE_TIMES * task.usual.seconds]

    def take(self, worker):
        """The next task for @worker; None when it is to end."""
        with self.changed:
            while worker.node.state == "in":
                if self._queue:
                    task = self._queue.popleft()
                    task.begun = time.monotonic()
                    self._running[task] = worker
                    return task
                self.changed.wait(1.0)
        return None

    def done(self, task, worker, result, seconds):
        with self.changed:
            if self._running.get(task) is worker:
                del self._running[task]
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
            if (gone and isinstance(error, tf.errors.OpError)) or (
                    transport and task.interrupted < ATTEMPTS):
                self._back(task)
            else:
                del self._running[task]
                task.error, task.finished = error, True
            self.changed.notify_all()
        if not gone and transport:
            worker.failures += 1
            if worker.failures >= FAILURES:
                self._cluster.lost(worker.node, f"its calls fail: {error.message.splitlines()[0]}")


class Worker(threading.Thread):
    """Feeds one worker until that leaves or is lost."""

    def __init__(self, node, cluster, dispatcher, prepare):
        super().__init__(name=f"tide-worker-{node.index}", daemon=True)
        self.node, self.failures = node, 0
        self._cluster, self._dispatcher, self._prepare = cluster, dispatcher, prepare
        self.start()

    def run(self):
        executor = private.new_executor()
        try:
            self._prepare(self.node.device, executor)
        except tf.errors.OpError:
            pass  # preparing only saves time: the first task will show what is wrong
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
        if self.node.state == "draining":
            self._cluster.released(self.node)
