# SPDX-License-Identifier: Apache-2.0
"""ElasticParameterServerStrategy: where variables lie, and how they move while Python objects stay.

A variable is moved by creating another resource on the new parameter server, copying the value from
server to server, and exchanging the handle inside the variable and inside the functions that were
traced with it. Nothing is rebound by the user and nothing is traced again. Optimizer slots are
created beside their variable and move with it.

A partitioned variable keeps the shards that its partitioner made; these are spread over whichever
servers there are. So the graph, and with it the result, is the same for any number of servers: give
the partitioner as many shards as there will ever be servers, or twice that.
"""

import collections
import contextlib
import functools
import os
import socket
import threading

import numpy as np
import tensorflow as tf

from threadtide.tensorflow import checkpoint, members, private, progress
from threadtide.tensorflow.cluster import Cluster
from threadtide.tensorflow.log import log


# Methods of a variable that change it.
_ASSIGNING = ("assign", "assign_add", "assign_sub", "scatter_add", "scatter_div", "scatter_max",
              "scatter_min", "scatter_mul", "scatter_sub", "scatter_update", "batch_scatter_update",
              "scatter_nd_add", "scatter_nd_max", "scatter_nd_min", "scatter_nd_sub",
              "scatter_nd_update")


class _Entry:
    """A variable with a place: a whole one, or a shard."""

    def __init__(self, number, name, variable, group, home):
        self.variable = variable
        self.name = name  # in checkpoints
        self.group = group  # number of the entry that it lies beside; its own otherwise
        self.home = home  # index of its parameter server; None: the chief, after the end
        self.dtype, self.shape = variable.dtype, variable.shape
        self.bytes = (variable.shape.num_elements() or 1) * max(1, variable.dtype.size)
        self.assigned = (0, 0)  # by the program itself: after which step last, how often there
        self.resumed = None  # of those that it does again, how many the checkpoint has there

    def row(self):
        """Its row in a checkpoint: name, shape, type."""
        return [self.name, self.shape.as_list(), self.dtype.name]


def spread(sizes, homes, servers):
    """The server of each group: {group: server}. Pure.

    @sizes is {group: bytes}, @homes {group: server, or one that is not there any more}. Groups stay
    where they are as long as their server has no more than its share; the others go, largest first,
    to the server with the least.
    """
    share = 1.05 * sum(sizes.values()) / len(servers)
    load = dict.fromkeys(servers, 0)
    order = sorted(sizes, key=lambda g: (-sizes[g], g))
    place, homeless = {}, []
    for group in order:
        home = homes.get(group)
        if home in load and (load[home] + sizes[group] <= share or not load[home]):
            place[group] = home
            load[home] += sizes[group]
        else:
            homeless.append(group)
    for group in homeless:
        place[group] = min(servers, key=lambda s: (load[s], s))
        load[place[group]] += sizes[group]
    return place


def _own(value):
    """A copy of @value in this process, which nobody else changes."""
    if isinstance(value, (tf.Tensor, tf.Variable)):
        return value.numpy()
    return value.copy() if isinstance(value, np.ndarray) else value


class Variables:
    """All variables of a strategy and their places. The user's thread creates them, the training's
    moves them between two steps."""

    def __init__(self, cluster, checkpoints):
        self.lock = threading.RLock()
        self.entries = []
        self.taken = 0  # that began with a value from a checkpoint
        self._cluster, self._checkpoints = cluster, checkpoints
        self._named = collections.Counter()  # variables of a name
        self._resumed = checkpoints.latest.meta["step"] if checkpoints.latest else 0
        self._creator = None  # the thread that is creating one
        self._at_home = False  # after the end of the training: all lie in the chief
        self.on_assign = self._assign  # (entry, do): what the program assigns; the coordinator's
        self.on_read = None  # (do): how numpy() reads a variable, if not at once
        self._by_variable = {}  # id(resource variable): entry

    def device(self, home):
        """The device of parameter server number @home; None: of the chief, this process."""
        node = "chief/replica:0/task:0" if home is None else f"ps/replica:0/task:{home}"
        return f"/job:{node}/device:CPU:0"

    def _server_for_new(self):
        if self._at_home:
            return None
        load = {node.index: 0 for node in self._cluster.wait_server()}
        for entry in self.entries:
            if entry.home in load:
                load[entry.home] += entry.bytes
        return min(load, key=lambda s: (load[s], s))

    def place(self, next_creator, **kwargs):
        """Creates a single variable on the server with the least."""
        with self.lock:
            home = self._server_for_new()
            with tf.device(None), tf.device(self.device(home)):
                variable = next_creator(**kwargs)
            self._add(variable, kwargs.get("name"), None, home)
        return variable

    def create(self, original, next_creator, **kwargs):
        """Creates what the user asked for, beside another variable if it is to lie there."""
        beside = kwargs.get("colocate_with")
        with self.lock:
            known, outer = len(self.entries), self._creator
            self._creator = threading.get_ident()
            try:
                created = original(next_creator, **kwargs)
            finally:
                self._creator = outer
            if len(self.entries) == known:  # not through place(): beside another one
                entry = self.entry_of(beside)
                self._add(created, kwargs.get("name"), entry.group, entry.home)
        return created

    def entry_of(self, variable):
        try:
            return self._by_variable[id(private.resource_variable(variable))]
        except KeyError:
            raise ValueError(f"{variable.name}: create it inside strategy.scope()") from None

    def _add(self, variable, name, group, home):
        inner = private.resource_variable(variable)
        number = len(self.entries)
        entry = _Entry(number, self._identity(name), inner, number if group is None else group, home)
        # In a resumed training a variable begins with its value in the checkpoint.
        snapshot = self._checkpoints.latest
        if snapshot and snapshot.has(entry):
            inner.assign(snapshot.value(entry))
            entry.resumed = snapshot.assigned(entry)
            entry.assigned = snapshot.meta["step"], entry.resumed
            self.taken += 1
        for method in _ASSIGNING:
            setattr(inner, method, self._followed(entry, getattr(inner, method)))
        for owner in {id(v): v for v in (variable, inner)}.values():
            owner.numpy = self._reader(owner.numpy)
        self.entries.append(entry)
        self._by_variable[id(inner)] = entry

    def _identity(self, name):
        """A name that is the same whenever the program runs. The order of creation may differ,
        since steps that a checkpoint has are not traced again; it counts only among variables of
        the same name. Keras' path names the layer, or the optimizer and the variable that its slot
        belongs to; the name in TensorFlow depends on the function that is being traced."""
        path = "/".join(filter(None, [private.keras_path(), name or "Variable"]))
        self._named[path] += 1
        return f"{path}#{self._named[path]}"

    # Assignments by the program itself, outside of functions: a rate, weights that it has loaded.

    def _followed(self, entry, method):
        @tf.autograph.experimental.do_not_convert
        def assign(*args, **kwargs):
            if not tf.executing_eagerly():
                return method(*args, **kwargs)
            # A tensor may lie on a server that is lost before this is done again.
            args, kwargs = tf.nest.map_structure(_own, (args, kwargs), expand_composites=True)
            return self.on_assign(entry, functools.partial(method, *args, **kwargs))

        return assign

    def _reader(self, numpy):
        @tf.autograph.experimental.do_not_convert
        def read():
            return self.on_read(numpy) if self.on_read and tf.executing_eagerly() else numpy()

        return read

    def _assign(self, entry, do):
        """While there is no coordinator: before the first step."""
        if self.resumed_has(entry, 0):
            return entry.variable
        return self.assign_now(entry, 0, do)

    def assign_now(self, entry, step, do):
        value = do()
        self.assigned(entry, step)
        return value

    def creating(self):
        """Whether this thread is creating one: its initial value may draw from a random state."""
        return self._creator == threading.get_ident()

    def assigned(self, entry, step):
        """The program has assigned @entry after so many steps."""
        last, count = entry.assigned
        entry.assigned = step, count + 1 if step == last else 1

    def resumed_has(self, entry, step):
        """Whether the checkpoint that the program resumes from has what it assigns after @step."""
        if entry.resumed is None or step > self._resumed:
            return False
        if step == self._resumed:
            entry.resumed -= 1
            return entry.resumed >= 0
        return True

    def read(self):
        """The values as they are now, left on their servers: later updates do not change them."""
        values = []
        for entry in self.entries:
            with tf.device(self.device(entry.home)):
                values.append(tf.raw_ops.ReadVariableOp(
                    resource=entry.variable.handle, dtype=entry.dtype))
        return values

    def new_handle(self, home, dtype, shape):
        """A resource of its own on server @home, with no value yet; it ends with its last user."""
        with tf.device(self.device(home)):
            return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape,
                                          shared_name=private.anonymous_name())

    def _put(self, entry, home, value):
        handle = self.new_handle(home, entry.dtype, entry.shape)
        with tf.device(self.device(home)):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return handle

    def _exchange(self, handles, homes):
        """Everything uses @handles, a list of (entry, handle), from now on."""
        by_old = {}
        for entry, handle in handles:
            by_old[id(entry.variable.handle)] = handle
        private.rebind_functions(by_old)
        for entry, handle in handles:
            private.rebind(entry.variable, handle)
            entry.home = homes[entry.group]

    def _spread(self, servers):
        sizes, homes = {}, {}
        for entry in self.entries:
            sizes[entry.group] = sizes.get(entry.group, 0) + entry.bytes
            homes[entry.group] = entry.home
        return spread(sizes, homes, servers)

    def move(self, servers):
        """Spreads the variables over @servers; the number that moved. No step is under way."""
        with self.lock:
            return self._move(self._spread(servers))

    def _move(self, homes):
        moving = [e for e in self.entries if homes[e.group] != e.home]
        handles = []
        for entry in moving:
            with tf.device(self.device(entry.home)):
                value = tf.raw_ops.ReadVariableOp(resource=entry.variable.handle, dtype=entry.dtype)
            handles.append((entry, self._put(entry, homes[entry.group], value)))
        self._exchange(handles, homes)
        return len(moving)

    def bring_home(self):
        """Moves all variables into the chief: the parameter servers end. No step is under way."""
        with self.lock:
            self._move(dict.fromkeys((e.group for e in self.entries)))
            self._at_home = True

    def rebuild(self, servers, snapshot):
        """All variables anew, on @servers, with the values of @snapshot: a server was lost."""
        with self.lock:
            homes = self._spread(servers)
            self._exchange([
                (e, self._put(e, homes[e.group], tf.constant(snapshot.value(e), e.dtype)))
                for e in self.entries], homes)
            for entry in self.entries:
                entry.assigned = snapshot.meta["step"], snapshot.assigned(entry)


_KERAS = "model.compile() takes the Keras optimizer itself, and model.fit() wraps it"


class ElasticOptimizer:
    """A Keras optimizer whose gradients go where the strategy's mode wants them.

    In sync mode apply_gradients() in a step function hands the micro-batch's gradient over; the
    optimizer itself is applied once for all slots. Everything else, read or set, is the Keras
    optimizer's.
    """

    def __init__(self, strategy, inner):
        self.__dict__.update(_strategy=strategy, inner=inner)
        for optimizer in private.optimizers_in(inner):
            private.check_optimizer(optimizer)
            counter = private.step_counter(optimizer)
            strategy.variables_in.entry_of(counter)  # an error here says what is wrong
            private.use_strategy(optimizer, strategy)
            # Keras reads the counter and assigns it: with two workers at once one step would be
            # lost.
            counter.assign_add = private.resource_variable(counter).assign_add

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self, grads_and_vars, **kwargs):
        pairs = list(grads_and_vars)
        if not self.inner.built:
            self.build([v for _, v in pairs])
        recorder = self._strategy.recorder
        if recorder is not None:
            recorder.append((self, pairs))
            return None
        return self.apply_now(pairs, **kwargs)

    def apply_now(self, pairs, **kwargs):
        """Updates the variables where this is called, or traced: [(gradient, variable)]."""
        with self._strategy.updating():
            return self.inner.apply_gradients(pairs, **kwargs)

    @tf.autograph.experimental.do_not_convert
    def finalize_variable_values(self, variables):
        """Gives @variables their moving averages, if the optimizer keeps any, as Keras defines
        it."""
        with self._strategy.updating():
            self.inner.finalize_variable_values(variables)

    @tf.autograph.experimental.do_not_convert
    def apply(self, grads, trainable_variables=None):
        """Keras 3's own name for apply_gradients()."""
        if trainable_variables is None:
            trainable_variables = private.variables_of(self.inner)
        return self.apply_gradients(zip(grads, trainable_variables, strict=True))

    @tf.autograph.experimental.do_not_convert
    def build(self, variables):
        """Creates the optimizer's slots for @variables, each beside its variable."""
        with tf.init_scope(), self._strategy.scope():
            self.inner.build(list(variables))

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss):
        """@loss times the optimizer's loss scale, as Keras defines it."""
        if not self.inner.built and private.scales_dynamically(self.inner):
            # Keras gives its first scale as a plain number, which the traced step would keep for
            # ever.
            raise ValueError("a LossScaleOptimizer has its scale only once it is built: call "
                             "optimizer.build(model.trainable_variables) before the first step")
        return self.inner.scale_loss(loss)

    def __repr__(self):
        # Keras prints it where it expects an optimizer of its own: model.compile(optimizer=...).
        return (f"<ElasticOptimizer for {type(self.inner).__name__}, for step functions that are "
                f"given to coordinator.schedule(). {_KERAS}>")

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __setattr__(self, name, value):
        setattr(self.inner, name, value)


def _own_address(environ):
    """Where nodes reach the chief: host:port."""
    host = environ.get("POD_IP") or "127.0.0.1"
    port = environ.get("TIDE_PORT")
    if not port or not environ.get("POD_IP"):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
    return members.address(host, port)


class ElasticParameterServerStrategy(private.Strategy):
    """ParameterServerStrategy for a cluster that grows and shrinks while it trains.

    Args:
      mode: "sync" (default): each step's batch is divided over @slots micro-batches, whose
        gradients are added in order and applied once, so that the result does not depend on the
        cluster at all; or "async": each step is one worker's, applied at once, at least once.
        Without it: TIDE_MODE, else what the members say.
      slots: micro-batches of a step in sync mode, 1 to 4096: more workers are of no use. Without
        it: TIDE_SLOTS, what the members say, or 8. Another number is another order of additions,
        so other last bits.
      reduction: how a step function's loss goes over the examples that it gets: "mean" (default),
        or "sum", as tf.nn.compute_average_loss() gives it with a global_batch_size. In sync mode
        the slots' gradients and results are averaged or added accordingly.
      variable_partitioner: as with the stock strategy. Shards stay as they are, and move between
        servers as wholes.
      checkpoint_dir: the directory for checkpoints, which a new chief resumes from. Without it the
        last one lies in the chief's memory, against the loss of parameter servers only. Default:
        TIDE_CHECKPOINT.
      checkpoint_interval_s: seconds between two checkpoints, and so of work that is done again at
        most. Default: TIDE_CHECKPOINT_INTERVAL, or 30.
      source: an object whose exchange(report) returns members.Members, or None if they are the
        same (default: as TIDE_CONTROLLER or TIDE_CLUSTER says).

    Blocks until the first parameter server and worker are there. Raises UnsupportedTensorFlow, or
    ValueError for arguments out of range, for an environment that names no members, and for a
    checkpoint of another mode or number of slots.
    """

    def __init__(self, mode=None, slots=None, variable_partitioner=None, checkpoint_dir=None,
                 checkpoint_interval_s=None, source=None, reduction="mean"):
        private.check_version()
        private.follow_functions()
        self._tide_channel = None
        mode = mode or os.environ.get("TIDE_MODE")
        if mode not in (None, "sync", "async"):
            raise ValueError(f"mode must be sync or async, not {mode!r}")
        slots = int(slots or os.environ.get("TIDE_SLOTS") or 0)
        if not 0 <= slots <= 4096:
            raise ValueError(f"slots must be from 1 to 4096, not {slots}")
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction must be mean or sum, not {reduction!r}")
        self.reduction = reduction
        self.recorder = None  # collects gradients while a step is traced
        self.coordinator = None  # once there is one
        self._updates = threading.local()
        self.checkpoints = checkpoint.Checkpoints(
            checkpoint_dir or os.environ.get("TIDE_CHECKPOINT"), float(
                checkpoint_interval_s or os.environ.get("TIDE_CHECKPOINT_INTERVAL") or 30))
        self.restored = self.checkpoints.latest.meta if self.checkpoints.latest else None
        self.on_change = lambda: None  # set by the coordinator
        self.report = lambda: progress.Progress(0).report(0, 0, self.cluster.report())
        self.cluster = Cluster(self._changed)
        self.variables_in = Variables(self.cluster, self.checkpoints)
        self._tide_channel = members.Channel(
            source or members.from_environment(), lambda: self.report(),
            self.cluster.on_members, log)
        spec = self.cluster.connect(_own_address(os.environ))
        self.mode = mode or self.cluster.mode or "sync"
        self.slots = slots or self.cluster.slots or 8
        if self.restored:
            self.checkpoints.latest.check(self.mode, self.slots)
            log(f"resuming after step {self.restored['step']}")
        super().__init__(tf.distribute.cluster_resolver.SimpleClusterResolver(
            spec, task_type="chief", task_id=0, rpc_layer="grpc"), variable_partitioner)
        private.intercept(self, self.variables_in.create, self.variables_in.place,
                          self._check_updating)
        self.cluster.connected()

    def _changed(self):
        if self._tide_channel:
            self._tide_channel.tell()
        self.on_change()

    def run(self, fn, args=(), kwargs=None, options=None):
        """Calls @fn: a step function runs on one worker, as one replica."""
        return fn(*args, **(kwargs or {}))

    def optimizer(self, optimizer):
        """@optimizer, a Keras optimizer made inside scope(), for use in step functions. ValueError
        if it was made elsewhere, or is one that does not work with TensorFlow."""
        return ElasticOptimizer(self, optimizer)

    @contextlib.contextmanager
    def updating(self):
        """Inside, this thread's updates of variables come from a wrapped optimizer."""
        before = getattr(self._updates, "wrapped", False)
        self._updates.wrapped = True
        try:
            yield
        finally:
            self._updates.wrapped = before

    def _check_updating(self):
        if not getattr(self._updates, "wrapped", False):
            raise RuntimeError("an optimizer is used as Keras made it: wrap it, as in optimizer = "
                               f"strategy.optimizer(keras.optimizers.Adam()). {_KERAS}")

    def experimental_distribute_dataset(self, dataset, options=None):
        """@dataset as it is: what model.predict() and model.evaluate() read, they read in the
        chief."""
        return dataset

    def close(self, release=False):
        """Ends links and channel; with @release the nodes end, too."""
        if self._tide_channel:
            self._tide_channel.close()
        self.cluster.close(release)
        self.checkpoints.close()
