# SPDX-License-Identifier: Apache-2.0
"""ElasticCoordinator: takes steps from the user's loop and has them done, whatever the cluster
does.

One thread does the steps in their order. Between two of them nothing is under way: then it moves
variables, takes snapshots, and, when a parameter server was lost, starts again from the last
snapshot. It still knows the steps since then and does them once more, which the user's program
does not notice. A new chief resumes likewise: the program calls schedule() from the beginning,
which returns at once for steps that the checkpoint contains.
"""

import collections
import math
import os
import signal
import threading
import time

import numpy as np
import tensorflow as tf

from threadtide.tensorflow import checkpoint, dispatch, fit, private, progress, results, steps
from threadtide.tensorflow.arguments import Arguments
from threadtide.tensorflow.data import Epochs
from threadtide.tensorflow.log import first_line, log

LAST_SAVE_S = 15.0  # for the checkpoint of a process that is asked to end
TRACES = 128  # that are kept
TRACES_MANY = 8  # of one function, which is told
AHEAD = 1024  # calls that schedule() takes before it waits
PROBE_S = 5.0  # between two measurements of the communication


class _Again(Exception):
    """The tasks under way do not count; look at the cluster, then do the step again."""


class _Failed(Exception):
    """A call's own error, its cause, which says nothing about the variables."""


class _Call:
    """A scheduled call."""

    def __init__(self, arguments):
        self.arguments, self.epochs = arguments, arguments.epochs
        self.number = -1  # the batch: its number, or a Feed's Batch
        self.step = -1
        self.task = None
        self.result = results.Result()


class _Assign:
    """An assignment that the program makes itself, in its place among the calls."""

    epochs = None

    def __init__(self, entry, do, step):
        self.entry, self.do = entry, do
        self.step = step  # that it comes after
        self.number = 0  # of those that were done
        self.result = results.Result()


class _Read(_Assign):
    """Something that the program reads, in its place among the calls; not done again."""

    def __init__(self, do, step):
        super().__init__(None, do, step)


class ElasticCoordinator:
    """Takes the place of ClusterCoordinator; schedule, join, done and fetch are the same. All
    methods are for the program's thread, but report() for any."""

    def __init__(self, strategy):
        self._strategy, self._cluster = strategy, strategy.cluster
        self._variables = strategy.variables_in
        self._dispatcher = dispatch.Dispatcher(self._cluster, self._server_lost)
        self._calls = collections.deque()  # to be done
        self._flight = []  # calls that were given to workers
        self._since = collections.deque()  # steps and assignments since the last written snapshot
        self._dirty = False  # calls that do not count may still write into slots
        self._over = False  # the error is for ever: the training cannot go on
        self._covered = 0  # variables that the last snapshot has
        self._traced = collections.OrderedDict()  # those used last at the end
        self._traces = collections.Counter()  # by the function's name
        self._error = None
        self._scheduled = 0  # steps
        # The result of each function's last step: the answer for steps that are not done again.
        restored = strategy.restored or {"step": 0, "duplicates": 0, "results": {}, "assigns": 0}
        self._results = {name: results.from_json(value)
                         for name, value in restored["results"].items()}
        self._restored, self._assigns = restored["step"], restored["assigns"]
        self._told = not strategy.restored
        self._closing = self._ended = self._closed = self._suspended = False
        self._servers = []
        self._probes = dispatch.Usual()
        self._doubts = self._cleared = 0  # failures after which the variables are in doubt
        self._last = None  # (traced, arguments): what a new worker can warm up with
        self.step = self._furthest = self._restored  # steps that are done, and ever were
        self.duplicates = restored["duplicates"]
        self.progress = progress.Progress(self.step)
        self._variables.on_assign = self._assign
        strategy.on_change = self._on_change
        strategy.coordinator = self
        fit.follow()
        strategy.report = lambda: self.report(tell=True)
        self._cluster.on_worker = self._feed
        for node in self._cluster.of("worker"):
            self._feed(node)
        self._thread = threading.Thread(target=self._run, name="tide-training", daemon=True)
        self._thread.start()
        self._heed_sigterm()

    def _heed_sigterm(self):
        """A pod's first process ignores SIGTERM without a handler, and is killed after the
        grace."""
        if "TIDE_CONTROLLER" in os.environ and (
                threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL):
            signal.signal(signal.SIGTERM, lambda *_: threading.Thread(
                target=self._end_by_signal, daemon=True).start())

    def _end_by_signal(self):
        """Saves, if there is something to save, and ends as SIGTERM does."""
        with self._dispatcher.changed:
            saved = self._strategy.checkpoints.latest
            if self._traced and (not saved or self.step > saved.meta["step"]):
                self._strategy.checkpoints.wanted = True
                self._dispatcher.changed.notify_all()
                self._dispatcher.changed.wait_for(
                    lambda: not self._strategy.checkpoints.wanted, LAST_SAVE_S)
        self._strategy.checkpoints.wait()
        log(f"asked to end after step {self.step}")
        os._exit(128 + signal.SIGTERM)

    # The user's side.

    @property
    def strategy(self):
        return self._strategy

    def create_epochs(self, source, batch_size, seed=0, shuffle=True, drop_remainder=False):
        """Batches of @source in an order that the coordinator owns: an iterable without end.

        @source: a structure of arrays, each of shape [examples, ...], or an Examples. @batch_size:
        examples in a batch. @seed: of the order in which each epoch is shuffled. TypeError if
        @source has no numbered examples (a tf.data.Dataset), ValueError if lengths do not fit.
        """
        return Epochs(source, batch_size, seed, shuffle, drop_remainder)

    def schedule(self, fn, args=(), kwargs=None):
        """Has @fn called on workers; returns its Result at once.

        With an iterator of create_epochs() among the arguments it is a training step: in sync mode
        one batch, divided over the slots, applied once; in async mode one batch on one worker.
        Waits while 1024 calls are to be done. Raises what a call before has raised, and
        RuntimeError after close().
        """
        call = _Call(Arguments(fn, args, kwargs))
        with self._dispatcher.changed:
            self._raise()
            if call.epochs and self._scheduled < self._restored:
                self._scheduled += 1
                call.epochs.take()
                call.result.resumed = True
                call.result.set(self._results.get(call.arguments.name, math.nan))
                return call.result
            self._dispatcher.changed.wait_for(lambda: len(self._calls) < AHEAD or self._error)
            self._raise()
            self._check_open()
            if call.epochs:
                self._scheduled += 1
                call.step, call.number = self._scheduled, call.epochs.take()
            self._calls.append(call)
            self._dispatcher.changed.notify_all()
        return call.result

    def join(self):
        """Waits until everything that was scheduled is done; raises what a function raised."""
        with self._dispatcher.changed:
            self._dispatcher.changed.wait_for(lambda: self.idle or self._error)
            self._raise()

    def done(self):
        """Whether everything is done."""
        with self._dispatcher.changed:
            self._raise()
            return self.idle

    def fetch(self, value):
        """The values of a structure of Results."""
        return tf.nest.map_structure(
            lambda r: r.fetch() if isinstance(r, results.Result) else r, value)

    def checkpoint(self):
        """Waits for what was scheduled and writes a checkpoint of it; OSError if that cannot be."""
        checkpoints = self._strategy.checkpoints
        for _ in range(dispatch.ATTEMPTS):
            self.join()
            with self._dispatcher.changed:
                self._check_open()
                checkpoints.wanted = True
                self._dispatcher.changed.notify_all()
                self._dispatcher.changed.wait_for(lambda: not checkpoints.wanted or self._error)
                self._raise()
            checkpoints.wait()
            error = checkpoints.error
            if not error:
                return
            if isinstance(error, (OSError, checkpoint.DirectoryInUse)):
                break
        raise OSError(f"no checkpoint of step {self.step} could be written: {error}") from error

    def close(self, release=True, keep=True):
        """Waits for what was scheduled, writes the last checkpoint (if there is a directory), and
        tells the controller that the training has finished. With @keep it brings the variables
        into this process first, where they can be read, saved and used from then on; False is for
        those that are larger than its memory. With @release the nodes end, too.
        """
        with self._dispatcher.changed:
            if self._closed:
                return
            self._closing = True
            self._dispatcher.changed.notify_all()
        self._thread.join()
        self._strategy.checkpoints.wait()
        self._save(keep)
        self.progress.finished = True
        self._strategy.close(release)
        with self._dispatcher.changed:
            self._closed = True
            self._dispatcher.changed.notify_all()

    def _save(self, keep):
        """Writes the last checkpoint and, with @keep, brings the variables here, before the
        parameter servers end. The training's thread has ended."""
        if self._over or self._doubts > self._cleared or self._server_lost():
            return  # the variables cannot be read, or nobody knows which steps they have
        checkpoints = self._strategy.checkpoints
        try:
            last = checkpoints.latest.meta if checkpoints.latest else {"step": -1, "assigns": -1}
            if checkpoints.in_directory and self._traced and (
                    last["step"] < self.step or last["assigns"] < self._assigns):
                self._snapshot()
                checkpoints.wait()
            if keep:
                self._variables.bring_home()
        except tf.errors.OpError as error:
            log(f"the variables cannot be read any more: {first_line(error)}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(release=kind is None)

    @property
    def closed(self):
        return self._closing

    @property
    def resuming(self):
        """Steps that the checkpoint has and the program has not come to yet."""
        return max(0, self._restored - self._scheduled)

    @property
    def idle(self):
        return not self._calls and not self._flight

    def _assign(self, entry, do):
        """The program assigns a variable outside of functions: after the calls that it scheduled
        before, and done again with them if a server is lost."""
        with self._dispatcher.changed:
            if self._variables.resumed_has(entry, self._scheduled):
                return entry.variable
            call = _Assign(entry, do, self._scheduled)
            waits = not (self._ended or self._over or self._variables.creating()
                         or threading.current_thread() is self._thread)
            if waits:
                self._calls.append(call)
                self._dispatcher.changed.notify_all()
        if waits:
            return call.result.fetch()
        return self._variables.assign_now(entry, call.step, do)

    def read(self, do):
        """Returns what do() reads of the variables after all that was scheduled before, also when a server is lost."""
        with self._dispatcher.changed:
            call = _Read(do, self._scheduled)
            waits = not (self._ended or self._over or self._variables.creating()
                         or threading.current_thread() is self._thread)
            if waits:
                self._calls.append(call)
                self._dispatcher.changed.notify_all()
        return call.result.fetch() if waits else do()

    def report(self, tell=False):
        """The training's report as a dict; docs/elastic-tensorflow.md explains each key.
        @tell: for the controller, which gets each pause once."""
        nodes, preparing = self._cluster.report(), self._dispatcher.preparing()
        for node in nodes:  # what it will bring cannot be measured before
            if node["role"] == "worker" and node["state"] == "in" and node["index"] in preparing:
                node["state"] = "joining"
        told = self.progress.report(self.step, self.duplicates, nodes, tell)
        latest, error = self._strategy.checkpoints.latest, self._strategy.checkpoints.error
        return {**told, "checkpoint_step": latest.meta["step"] if latest else None,
                "checkpoint_error": str(error) if error else ""}

    def _raise(self):
        if error := self._error:
            if not self._over:
                self._error = None
            raise error

    def _check_open(self):
        if self._closing:
            raise RuntimeError("the coordinator is closed: call schedule() and checkpoint() before close()")

    # Workers.

    def _on_change(self):
        self.progress.changed()
        self._dispatcher.wake()

    def _feed(self, node):
        dispatch.Worker(node, self._cluster, self._dispatcher, self._warm)

    def _warm(self, device, executor):
        """Has a new worker prepare its functions while the others work; writes to scratch."""
        last = self._last
        if last and last[0].pure:
            traced, arguments = last
            with private.run_on(device, executor):
                traced.micro(*arguments, tf.constant([0, 0], tf.int64), *traced.handles[-1])

    # The training's thread.

    def _run(self):
        while not self._has_ended():
            try:
                self._between()
                with self._dispatcher.changed:
                    if self._suspended or self.idle:
                        self._dispatcher.changed.notify_all()
                        self._dispatcher.changed.wait(0.2)
                        continue
                    call = self._calls[0] if self._calls else None
                if call is None:
                    self._land(len(self._flight) - 1)
                elif isinstance(call, _Assign):
                    self._do_assign(call)
                elif call.epochs and self._strategy.mode == "sync":
                    self._land(0)
                    self._sync_step(call)
                else:
                    self._fly(call)
            except _Again:
                if not self._server_lost():
                    self._take_back()
                    self._renew()
            except _Failed as failed:
                self._fail(failed.__cause__)
            except tf.errors.OpError as error:
                # A move, a snapshot or an application failed, and how far it came is not known.
                self._dispatcher.forget()
                self._doubts += 1
                if self._doubts > dispatch.ATTEMPTS or not (
                        self._explained() or isinstance(error, dispatch.TRANSPORT)):
                    self._fail(error)
                    self._doubts, self._cleared = 1, 0  # the program knows: count anew
            except Exception as error:
                self._fail(error)

    def _has_ended(self):
        with self._dispatcher.changed:
            self._ended = self._over or (self._closing and self.idle)
            return self._ended

    def _do_assign(self, call):
        if self._strategy.mode == "sync":
            self._land(0)  # an evaluation that was scheduled before sees what was before
        value = error = None
        reads = isinstance(call, _Read)
        try:
            value = call.do() if reads else self._variables.assign_now(call.entry, call.step, call.do)
        except tf.errors.OpError as failed:
            if isinstance(failed, dispatch.TRANSPORT) or self._explained():
                raise
            error = failed
        except Exception as failed:
            error = failed
        with self._dispatcher.changed:
            self._calls.popleft()
            if not error and not reads:
                self._assigns += 1
                call.number = self._assigns
                checkpoints = self._strategy.checkpoints
                if checkpoints.latest or checkpoints.busy:  # that it may be done again after
                    self._since.append(call)
            call.result.set(value, error)
            self._dispatcher.changed.notify_all()

    def _explained(self):
        """Whether the loss of a server explains an error; the end of its link may come later."""
        end = time.monotonic() + dispatch.EXPLAIN_S
        with self._dispatcher.changed:
            while not self._server_lost() and time.monotonic() < end:
                self._dispatcher.changed.wait(0.05)
        return self._server_lost()

    def _take_back(self):
        """Puts the calls under way back in front of the others; their present runs do not count."""
        begun = self._dispatcher.forget()
        with self._dispatcher.changed:
            self.duplicates += sum(c.task.interrupted + (c.task in begun)
                                   for c in self._flight if c.epochs)
            self._calls.extendleft(reversed(self._flight))
            self._flight.clear()

    def _fail(self, error, over=False):
        """A call failed by itself: everything that was scheduled ends with @error.

        Its steps and batches are those of the next calls, so that n steps are n, whatever failed.
        """
        self._take_back()
        with self._dispatcher.changed:
            stay = [] if over else [c for c in self._calls if isinstance(c, _Assign)]
            for call in self._calls:
                if call.epochs:
                    self._scheduled -= 1
                    call.epochs.give_back(call.number)
                if call not in stay:
                    call.result.set(None, error)
            for call in (*stay, *self._since):  # the next steps, whose numbers these are, come behind them
                if isinstance(call, _Assign):
                    call.step = min(call.step, self._scheduled)
            self._calls = collections.deque(stay)
            self._error, self._over = error, over
            self._dirty = True
            self._dispatcher.changed.notify_all()

    def _between(self):
        """Does what can be done only while no step is under way: moves, snapshots, suspension."""
        if self._server_lost() or self._doubts > self._cleared:
            try:
                self._restart()
            except Exception as error:
                if isinstance(error, tf.errors.OpError) and self._doubts < dispatch.ATTEMPTS:
                    raise  # another server may be lost
                log(f"the training cannot go on: {error}")
                self._fail(error, over=True)
                return
        servers = [n.index for n in self._cluster.of("ps", "in")]
        if servers and servers != self._servers:
            self._land(0)
            moved = self._variables.move(servers)
            self._renew()
            self._servers = servers
            if moved:
                log(f"{moved} variables moved; parameter servers: {servers}")
        if self._dirty:
            self._renew()
        if self._calls and not isinstance(self._calls[0], _Assign):
            self._cover()
        checkpoints = self._strategy.checkpoints
        if servers and not checkpoints.busy:  # a snapshot's values lie on the servers of its time
            for node in self._cluster.of("ps", "draining"):
                if node.index not in self._servers:  # else it was asked while they moved to it
                    self._cluster.released(node)
        if self._suspended != (self._cluster.suspended and not self._closing):
            self._land(0)
            self._suspended = not self._suspended
            self.progress.resumed()
            log("suspended" if self._suspended else "resumed")
            if self._suspended and self._traced:
                checkpoints.wait()
                self._snapshot()
                checkpoints.wait()
        if self._suspended and (leaving := self._cluster.of("ps", "draining")):
            self._cover()  # also what the program has made before its first step, or since
            for node in leaving:  # all is saved: the process may end at any moment
                self._cluster.released(node)
            return
        if checkpoints.due() and (self._traced or checkpoints.wanted):
            self._land(0)
            self._snapshot()

    def _snapshot(self):
        kept = {name: results.to_json(value) for name, value in self._results.items()}
        with self._variables.lock:  # the program may be making others
            entries, values = list(self._variables.entries), self._variables.read()
        latest = self._strategy.checkpoints.latest
        others = latest.others(entries) if latest else []
        meta = {"step": self.step, "mode": self._strategy.mode, "slots": self._strategy.slots,
                "duplicates": self.duplicates, "results": kept, "assigns": self._assigns,
                "assigned": {e.name: e.assigned[1] for e in entries if e.assigned[0] == self.step},
                "variables": [e.row() for e in entries] + [row for row, _ in others]}
        self._covered = len(entries)
        self._strategy.checkpoints.begin(meta, values + [value for _, value in others])
        with self._dispatcher.changed:
            self._strategy.checkpoints.wanted = False
            self._dispatcher.changed.notify_all()

    def _forget_written(self):
        """Forgets the steps and assignments that a written snapshot contains."""
        latest = self._strategy.checkpoints.latest
        while latest and self._since:
            first = self._since[0]
            if (first.number > latest.meta["assigns"] if isinstance(first, _Assign)
                    else first.step > latest.meta["step"]):
                return
            self._since.popleft()

    def _server_lost(self):
        homes = {e.home for e in self._variables.entries}
        return bool(homes - {n.index for n in self._cluster.of("ps")})

    def _restart(self):
        """Rebuilds all variables from the last snapshot, on the servers there are, and goes
        back."""
        self._dispatcher.forget()
        begin = time.monotonic()
        self._strategy.checkpoints.wait()
        snapshot = self._strategy.checkpoints.latest
        if not snapshot:
            raise RuntimeError("a parameter server was lost before the first checkpoint")
        with self._dispatcher.changed:
            while not (servers := self._cluster.of("ps", "in")) and not self._closing:
                self._dispatcher.changed.wait(1.0)
        if not servers:
            raise RuntimeError("no parameter server is left")
        self._servers = [n.index for n in servers]
        self._variables.rebuild(self._servers, snapshot)
        self._renew()
        self._cleared = self._doubts
        self._forget_written()
        with self._dispatcher.changed:
            again = sorted([*self._since, *(c for c in self._flight if c.epochs)],
                           key=lambda c: (c.step, isinstance(c, _Assign)))
            plain = [c for c in self._flight if not c.epochs]
            self._calls.extendleft(reversed(again + plain))
            self._flight.clear()
            self._since.clear()
        lost = self.step - snapshot.meta["step"]
        self.step, self.duplicates = snapshot.meta["step"], snapshot.meta["duplicates"]
        log(f"restarted after step {self.step} ({lost} steps are done again) on parameter servers "
            f"{self._servers} in {time.monotonic() - begin:.2f} s")

    def _renew(self):
        for traced in self._traced.values():
            if isinstance(traced, steps.SyncStep):
                traced.renew()
        self._dirty = False

    def _trace(self, call):
        key = call.arguments.key
        if key in self._traced:
            self._traced.move_to_end(key)
            return self._traced[key]
        self._count_trace(call.arguments.name)
        if call.epochs and self._strategy.mode == "sync":
            traced = steps.SyncStep(self._strategy, call.arguments)
        else:
            traced = steps.PlainCall(call.arguments)
        traced.usual, traced.applies = dispatch.Usual(), dispatch.Usual()
        self._traced[key] = traced
        if len(self._traced) > TRACES:
            self._traced.popitem(last=False)
        self._tell_resumed()
        self._cover()  # an optimizer's variables are there only now
        return traced

    def _cover(self):
        """The last snapshot must have all variables, or none could be rebuilt from it."""
        entries, latest = self._variables.entries, self._strategy.checkpoints.latest
        if len(entries) == self._covered:
            return
        if latest and all(map(latest.has, entries)):
            self._covered = len(entries)
        else:
            self._land(0)
            self._strategy.checkpoints.wait()
            self._snapshot()
            self._strategy.checkpoints.wait()

    def _tell_resumed(self):
        """As a resumed program begins to work: does it have the variables that the checkpoint
        has?"""
        if self._told:
            return
        self._told = True
        others = self._strategy.checkpoints.latest.others(self._variables.entries)
        if others and not self._variables.taken:
            raise ValueError("the checkpoint has none of the program's variables: it is another "
                             "program's, use another checkpoint_dir")
        if others:
            names = ", ".join(row[0] for row, _ in others[:3])
            log(f"{len(others)} variables of the checkpoint ({names}{', ...' * (len(others) > 3)}) "
                "are not there yet: they get their values as the program creates them")

    def _count_trace(self, name):
        self._traces[name] += 1
        if self._traces[name] == TRACES_MANY:
            log(f"{name} has been traced {TRACES_MANY} times, which is slow: Python values that it "
                "gets or closes over differ from call to call. Pass tensors, and decorate it with "
                "tf.function")

    def _wait(self, tasks, count):
        """Until @count of @tasks are finished. _Again when that cannot be."""
        with self._dispatcher.changed:
            while sum(t.finished for t in tasks) < count:
                if self._server_lost():
                    raise _Again
                if not (self._cluster.of("worker", "in") or self._dispatcher.running) and (
                        self._cluster.suspended or self._must_move()):
                    raise _Again  # none will come, or a server has not the time to wait for it
                for node in self._dispatcher.overdue():
                    self._cluster.lost(node, "it does not answer its call")
                self._dispatcher.changed.wait(1.0)

    def _must_move(self):
        leaving = {n.index for n in self._cluster.of("ps", "draining")}
        return leaving.intersection(self._servers) and self._cluster.of("ps", "in")

    # Sync mode.

    def _sync_step(self, call):
        traced = self._trace(call)
        parts, weights = traced.parts(call.epochs.indices(call.number))
        while True:
            handles = traced.handles
            tasks = [dispatch.Task(self._micro(traced, call, slot, examples, handles[slot]), traced.usual,
                                   repeatable=True)
                     for slot, examples in parts]
            self._dispatcher.submit(tasks)
            probe = self._probe(traced)
            self._wait(tasks, len(tasks))
            _raise_first(tasks)
            if not any(t.interrupted for t in tasks):
                break
            traced.renew()
        value = results.combine([t.result[0] for t in tasks], [len(p) for _, p in parts],
                                traced.per_example, self._strategy.reduction)
        begin = time.monotonic()
        value = traced.answer(value, self._apply(traced, weights))
        self.progress.applied(time.monotonic() - begin, [t.seconds for t in tasks], probe)
        if traced.sparse:
            traced.rows = tasks[0].result[1]
        self._finish(call, value)

    def _micro(self, traced, call, slot, examples, handles):
        def run(device, executor):
            arguments = call.epochs.arguments(call.number, examples) + call.arguments.tensors
            key = tf.constant([call.step, slot], tf.int64)
            self._last = (traced, arguments)
            with private.run_on(device, executor):
                result, rows = traced.micro(*arguments, key, *handles)
            return results.numpy(result), rows.numpy() if traced.sparse else None
        return run

    def _probe(self, traced):
        """Now and then: how long the communication of a micro-batch takes alone."""
        if not self.progress.probe_due(PROBE_S) or traced.rows is None and traced.sparse:
            return None
        rows = np.zeros(0, np.int64) if traced.rows is None else traced.rows
        handles = traced.handles[-1]

        def run(device, executor):
            with private.run_on(device, executor):
                for _ in range(2):  # the first call prepares the function
                    begin = time.monotonic()
                    float(traced.probe(tf.constant(1.0), tf.constant(rows), *handles))
                    seconds = time.monotonic() - begin
            return seconds

        task = dispatch.Task(run, self._probes, needed=False)
        self._dispatcher.submit([task])
        return task

    def _apply(self, traced, weights):
        """One call, by a thread of its own: a server that hangs must not hold up this one. When no answer comes, the
        variables are in doubt."""
        device = f"/job:ps/replica:0/task:{self._servers[0]}/device:CPU:0"
        outcome = []

        def run():
            try:
                outcome.append(traced.apply(weights, device, private.new_executor()))
            except Exception as error:
                outcome.append(error)
            with self._dispatcher.changed:
                self._dispatcher.changed.notify_all()

        threading.Thread(target=run, name="tide-apply", daemon=True).start()
        begin, usual = time.monotonic(), traced.applies.seconds
        patience_s = (dispatch.unusual(usual) if usual else dispatch.STUCK_S) * 2 ** self._doubts
        with self._dispatcher.changed:
            while not outcome:
                if self._server_lost():
                    raise _Again
                if time.monotonic() - begin > patience_s:
                    log(f"the parameter servers have not applied step {self.step + 1} for {patience_s:.0f} s")
                    raise tf.errors.DeadlineExceededError(None, None, "the parameter servers do not answer")
                self._dispatcher.changed.wait(1.0)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        traced.applies.add(time.monotonic() - begin)
        return outcome[0]

    # Async mode, and functions that are no steps.

    def _fly(self, call):
        """Gives @call to the workers, and waits when they have enough."""
        traced = self._trace(call)
        call.task = dispatch.Task(self._plain(traced, call), traced.usual)
        with self._dispatcher.changed:
            self._calls.popleft()
            self._flight.append(call)
        self._dispatcher.submit([call.task])
        self._land(len(self._cluster.of("worker", "in")) + 1)

    def _plain(self, traced, call):
        def run(device, executor):
            batch = []
            if call.epochs:
                batch = call.epochs.arguments(call.number, call.epochs.indices(call.number))
            with private.run_on(device, executor):
                result = traced.concrete(*batch, *call.arguments.tensors)
            return results.numpy(result)
        return run

    def _land(self, most):
        """Waits until at most @most calls are under way, and takes in those that are done."""
        while len(self._flight) > max(0, most):
            tasks = [c.task for c in self._flight]
            self._wait(tasks, 1)
            for call in [c for c in self._flight if c.task.finished and not c.task.error]:
                with self._dispatcher.changed:
                    self._flight.remove(call)
                if call.epochs:
                    self.duplicates += call.task.interrupted
                    self.progress.applied(0.0, [call.task.seconds], None)
                self._finish(call, call.task.result)
            _raise_first(tasks)

    def _finish(self, call, value):
        with self._dispatcher.changed:
            if self._calls and self._calls[0] is call:
                self._calls.popleft()
            if call.epochs:
                self.step += 1
                if self._strategy.mode == "async":  # they end in any order, and one that failed is none
                    call.step = self.step
                self._results[call.arguments.name] = value
                if self.step > self._furthest:  # else it was done before the doubts, too
                    self._furthest = self.step
                    self._doubts = self._cleared = 0
                self._since.append(call)
                self._forget_written()
                self.progress.step_done(self.step, call.epochs.epoch_of(call.number), value,
                                        len(call.epochs.indices(call.number)))
            call.result.set(value)
            if not self._calls or len(self._calls) == AHEAD - 1:
                self._dispatcher.changed.notify_all()


def _raise_first(tasks):
    for task in tasks:
        if task.error:
            raise _Failed from task.error
