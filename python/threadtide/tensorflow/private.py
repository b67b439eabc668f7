# SPDX-License-Identifier: Apache-2.0
"""Every private symbol of TensorFlow and Keras that Threadtide uses; no other file touches one.

Stock TensorFlow offers no public way to let a cluster grow, nor to give a variable another place,
so a few functions here reach inside. SYMBOLS names what they rely on, SUPPORTED the versions it was
tested with; tests/system/test_elastic_contract.py checks each name, for each version. With another
version :func:`check_version` refuses before anything is started.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import os
import sys
import threading
import weakref

import numpy as np
import tensorflow as tf

SUPPORTED = ("2.21", "2.18")

# Module, attribute path, parameters that are passed (None: the attribute is no function).
SYMBOLS = (
    ("tensorflow.python.eager.context", "context", ()),
    ("tensorflow.python.eager.context", "Context.get_server_def", ("self",)),
    ("tensorflow.python.eager.context", "Context.update_server_def", ("self", "server_def")),
    ("tensorflow.python.eager.context", "ensure_initialized", ()),
    ("tensorflow.python.eager.context", "executor_scope", ("e",)),
    ("tensorflow.python.eager.context", "anonymous_name", ()),
    ("tensorflow.python.framework.ops", "colocate_with", ("op", "ignore_existing")),
    ("tensorflow.python.eager.executor", "new_executor", ("enable_async",)),
    ("tensorflow.python.eager.executor", "Executor.clear_error", ("self",)),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2._connect_to_cluster", ("self", "coordinator_name")),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2Extended._create_variable", ("self", "next_creator")),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2Extended._create_variable_round_robin", ("self", "next_creator")),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2Extended._update", ("self", "var", "fn", "args", "kwargs", "group")),
    ("tensorflow.python.distribute.ps_values", "CachingVariable.get", ("self",)),
    ("tensorflow.python.distribute.sharded_variable", "ShardedVariable.variables", None),
    ("tensorflow.python.eager.polymorphic_function.concrete_function",
     "ConcreteFunction.set_external_captures", ("self", "captures")),
    ("tensorflow.python.eager.polymorphic_function.concrete_function",
     "ConcreteFunction.__init__", ("self",)),
    ("keras.src.backend.tensorflow.optimizer", "TFOptimizer._backend_update_step",
     ("self", "grads", "trainable_variables", "learning_rate")),
    ("keras.src.backend.common.name_scope", "current_path", ()),
    ("keras.src.random.seed_generator", "SeedGenerator.next", ("self", "ordered")),
    ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.fit", (
        "self", "x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split", "validation_data",
        "shuffle", "class_weight", "sample_weight", "initial_epoch", "steps_per_epoch")),
    ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.make_train_function", ("self", "force")),
    ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.make_test_function", ("self", "force")),
    ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.make_predict_function", ("self", "force")),
    ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer._get_metrics_result_or_logs", ("self", "logs")),
    ("keras.src.layers.layer", "Layer._flatten_layers", ("self",)),
    ("keras.src.trainers.data_adapters.array_data_adapter", "can_convert_arrays", ("arrays",)),
    ("keras.src.trainers.data_adapters.array_data_adapter", "ArrayDataAdapter",
     ("x", "y", "sample_weight", "batch_size", "steps", "class_weight")),
    ("keras.src.trainers.data_adapters.array_slicing", "convert_to_sliceable", ("arrays", "target_backend")),
    ("keras.src.trainers.data_adapters.array_slicing", "train_validation_split", ("arrays", "validation_split")),
    ("tensorflow.python.eager.context", "global_seed", ()),
)

# Attributes of objects, which _samples() makes.
ATTRIBUTES = (
    ("tensorflow.python.eager.context.Context", ("_server_def",)),
    ("tensorflow.python.ops.resource_variable_ops.ResourceVariable", ("_handle",)),
    ("the handle of a ResourceVariable", ("_handle_data",)),
    ("tensorflow.python.eager.polymorphic_function.concrete_function.ConcreteFunction",
     ("_captured_inputs",)),
    ("keras.src.backend.tensorflow.optimizer.TFOptimizer",
     ("_distribution_strategy", "_iterations", "_trainable_variables")),
    ("keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter", ("_inputs",)),
)
# Attributes that strategies use of themselves: looked for in the source, since no strategy can be
# made without a cluster.
IN_SOURCE = (
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2Extended.__init__", "_allow_run_without_coordinator"),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2.__init__", "_cluster_resolver"),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2._connect_to_cluster", "_num_workers"),
    ("tensorflow.python.distribute.parameter_server_strategy_v2",
     "ParameterServerStrategyV2._connect_to_cluster", "_num_ps"),
)


class UnsupportedTensorFlow(RuntimeError):
    """This version of TensorFlow was not tested; the text names those that were."""


def check_version(version=None):
    """Raises UnsupportedTensorFlow unless @version (default: the installed one) was tested."""
    version = version or tf.__version__
    if ".".join(version.split(".")[:2]) not in SUPPORTED:
        raise UnsupportedTensorFlow(
            f"TensorFlow {version}: elastic training needs one of {', '.join(SUPPORTED)}, since it "
            "depends on how those work inside; install one, for example tensorflow-cpu==2.21.0")


def check_symbols():
    """The symbols that are missing or have other parameters in the installed version: list of
    texts."""
    wrong = []
    for module, path, parameters in SYMBOLS:
        name = f"{module}.{path}"
        try:
            found = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
            has = () if parameters is None else tuple(inspect.signature(found).parameters)
        except (ImportError, AttributeError) as error:
            wrong.append(f"{name}: {error}")
            continue
        if not set(parameters or ()) <= set(has):
            wrong.append(f"{name}: parameters {has}, expected {parameters}")
    for (name, attributes), made in zip(ATTRIBUTES, _samples()):
        wrong += [f"{name}: no {a}" for a in attributes if not hasattr(made, a)]
    for module, name, attribute in IN_SOURCE:
        kind, method = name.split(".")
        found = getattr(getattr(importlib.import_module(module), kind), method)
        if attribute not in inspect.getsource(found):
            wrong.append(f"{module}.{name}: no {attribute}")
    return wrong


def _samples():
    """An object of each kind in ATTRIBUTES."""
    import keras
    from tensorflow.python.eager import context
    variable = tf.Variable(1.0)
    function = tf.function(lambda: variable + 1.0, autograph=False)
    return (context.context(), variable, variable.handle, function.get_concrete_function(),
            keras.optimizers.SGD(), _adapter(np.zeros((2, 1))))


# The cluster that the process is connected to.

def connect(cluster_spec):
    """Makes this process the chief of @cluster_spec; its tasks must be listening."""
    from tensorflow.python.eager import context
    # Calls to a peer that cannot be reached end at once instead of waiting for it for ever; one
    # call at a time for each worker; executors that are synchronous: as the stock strategy has it.
    os.environ["GRPC_FAIL_FAST"] = "true"
    os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"
    os.environ["TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY"] = "True"
    tf.config.experimental_connect_to_cluster(cluster_spec, job_name="chief", protocol="grpc")
    context.ensure_initialized()


def update_cluster(add, remove):
    """Adds tasks {(job, index): "host:port"} and removes [(job, index)]; training may go on.

    Raises a tf.errors.OpError when a task cannot be reached: then none is added, and those that
    were to be removed are with the next change. Blocks while a task accepts the connection and
    does not answer.
    """
    from tensorflow.python.eager import context
    changed = copy.deepcopy(context.context().get_server_def())
    jobs = {job.name: job for job in changed.cluster.job}
    for name, _ in add:
        if name not in jobs:
            jobs[name] = changed.cluster.job.add()
            jobs[name].name = name
    for name, index in remove:
        if name in jobs:
            jobs[name].tasks.pop(index, None)
    for (name, index), address in add.items():
        jobs[name].tasks[index] = address
    try:
        context.context().update_server_def(changed)
    except Exception:
        for name, index in add:
            jobs[name].tasks.pop(index, None)
        context.context()._server_def = changed  # what the next change starts from
        raise


class Strategy(tf.distribute.ParameterServerStrategy):
    """The stock strategy, but for how it connects to its cluster."""

    def _connect_to_cluster(self, coordinator_name):
        spec = self._cluster_resolver.cluster_spec()
        self._num_workers = spec.num_tasks("worker")
        self._num_ps = spec.num_tasks("ps")
        connect(spec)


def new_executor():
    """An executor of its own for each thread that runs functions on a worker."""
    from tensorflow.python.eager import executor
    return executor.new_executor(enable_async=False)


@contextlib.contextmanager
def run_on(device, executor):
    """Functions called in this thread run on @device, through @executor."""
    from tensorflow.python.eager import context
    with tf.device(device), context.executor_scope(executor):
        try:
            yield
        except tf.errors.OpError:
            executor.clear_error()  # else whatever comes next ends with it, too
            raise


# The strategy.

def intercept(strategy, create_variable, place_variable, check_update):
    """Lets our functions create the strategy's variables, and say who may update them.

    create_variable(original, next_creator, **kwargs) returns what the user gets; place_variable
    (next_creator, **kwargs) is called for every single variable that is free to lie anywhere.
    check_update() raises when an optimizer may not update a variable, or create a slot, now.
    """
    extended = strategy.extended
    original = extended._create_variable
    extended._create_variable = lambda next_creator, **kwargs: create_variable(
        original, next_creator, **kwargs)
    extended._create_variable_round_robin = place_variable
    colocate = extended.colocate_vars_with

    def update(*args):
        check_update()
        return _update(*args)

    def colocate_vars_with(variable):
        if tf.distribute.get_strategy() is not strategy:
            check_update()
        return colocate(resource_variable(variable))

    extended._update, extended.colocate_vars_with = update, colocate_vars_with
    extended._allow_run_without_coordinator = True


def _update(variable, function, args, kwargs, group):
    """Takes the place of strategy.extended._update(): every change that a Keras optimizer makes to
    a variable (its step, weight decay, moving averages, accumulated gradients) is computed here.

    The stock strategy writes the name of the server that the variable lies on today into each of
    these operations, where they stay when the variable has moved.
    """
    variable = resource_variable(variable)
    with beside(variable):
        result = function(variable, *args, **kwargs)
    return result if group else tf.nest.map_structure(lambda value: (value,), result)


@contextlib.contextmanager
def beside(variable):
    """Operations of a function being traced are placed where @variable is, wherever that will be.

    They are tied to a read of it, whatever they were tied to outside. The read needs a user:
    without one TensorFlow prunes it, and then places the operations that are tied to it anywhere.
    """
    from tensorflow.python.framework import ops
    with ops.colocate_with(None, ignore_existing=True):
        anchor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    with tf.control_dependencies([anchor]), ops.colocate_with(anchor, ignore_existing=True):
        yield


def anonymous_name():
    """The shared name of a resource that ends with the last reference to its handle."""
    from tensorflow.python.eager import context
    return context.anonymous_name()


# Variables: the Python objects stay, what they point to is replaced.

def parts_of(variable):
    """The variables with a place of their own: the shards of a partitioned one, else itself."""
    shards = getattr(variable, "variables", None)
    return list(shards) if isinstance(shards, (list, tuple)) else [variable]


def resource_variable(variable):
    """The variable that holds the handle: beneath Keras' and the strategy's wrappers."""
    if not isinstance(variable, tf.Variable):
        variable = variable.value
    return variable.get() if hasattr(variable, "get") else variable


def rebind(variable, handle):
    """@variable (a resource variable) is from now on the one behind @handle."""
    old = variable._handle
    for name in ("_handle_data", "_name", "_unique_id", "_parent_trackable"):
        if hasattr(old, name):
            setattr(handle, name, getattr(old, name))
    variable._handle = handle


_functions, _functions_lock = weakref.WeakSet(), threading.Lock()


def follow_functions():
    """From now on every function that is traced is known to rebind_functions(), also those of the
    user's own that no coordinator is told of."""
    from tensorflow.python.eager.polymorphic_function import concrete_function
    made = concrete_function.ConcreteFunction.__init__
    if getattr(made, "followed", False):
        return

    def make(self, *args, **kwargs):
        made(self, *args, **kwargs)
        with _functions_lock:
            _functions.add(self)

    make.followed = True
    concrete_function.ConcreteFunction.__init__ = make


def rebind_functions(handles):
    """Traced functions use other handles: @handles is {id(old): new}. No retracing."""
    with _functions_lock:
        functions = list(_functions)
    for concrete in functions:
        captures = list(concrete._captured_inputs)
        if any(id(c) in handles for c in captures):
            concrete.set_external_captures([handles.get(id(c), c) for c in captures])


# Keras.

def optimizers_in(optimizer):
    """@optimizer, and the ones that it wraps: a LossScaleOptimizer has an inner optimizer."""
    found = [optimizer]
    while inner := getattr(found[-1], "inner_optimizer", None):
        found.append(inner)
    return found


def check_optimizer(optimizer):
    """Raises ValueError for an optimizer of Keras that TensorFlow's variables do not suffice
    for."""
    if type(optimizer).__name__ == "Muon" and not hasattr(tf.Variable, "path"):
        raise ValueError("Keras' Muon does not work with TensorFlow, elastic or not: it asks each "
                         "variable for its `path`, which TensorFlow's variables do not have. Use "
                         "another optimizer")


def scales_dynamically(optimizer):
    """Whether the optimizer's loss scale is a variable of its own: a LossScaleOptimizer."""
    return len(optimizers_in(optimizer)) > 1


def step_counter(optimizer):
    """The variable that counts the calls of apply(). `iterations` is computed from it when
    gradients are accumulated."""
    return optimizer._iterations


def use_strategy(optimizer, strategy):
    """The optimizer creates slots and updates variables through @strategy, wherever it was made."""
    optimizer._distribution_strategy = strategy


def keras_path():
    """The path in Keras, as in "adam/dense", of the variable that is being created; "" outside of
    Keras."""
    scope = sys.modules.get("keras.src.backend.common.name_scope")
    return scope.current_path() if scope else ""


def variables_of(optimizer):
    """The variables that the optimizer was built for; ValueError if it was not."""
    if not optimizer.built:
        raise ValueError("apply() without variables: call the optimizer's build(variables) before")
    return optimizer._trainable_variables


@contextlib.contextmanager
def keras_seeds(seed_of):
    """Inside, random layers that are traced get seed_of(generator) instead of a shared counter."""
    import keras
    original = keras.random.SeedGenerator.next

    def draw(generator, ordered=True):
        if tf.executing_eagerly():
            return original(generator, ordered)
        return seed_of(generator)

    keras.random.SeedGenerator.next = draw
    try:
        yield
    finally:
        keras.random.SeedGenerator.next = original


# Keras' models.

def follow_models(fit, function, has_logs):
    """From now on models ask these, each with itself as the first argument.

    fit(model, original, arguments): takes the place of fit(); @arguments are its bound arguments,
    with which original(*arguments.args, **arguments.kwargs) is Keras' own.
    function(model, kind, force): the function that does a batch for "train", "test" or "predict";
    None: Keras' own. has_logs(model, logs): whether @logs, which such a function returned, are the
    metrics' values, so that Keras need not read the variables.
    """
    try:
        from keras.src.backend.tensorflow import trainer
    except ImportError:  # no Keras, no models
        return
    trainer = trainer.TensorFlowTrainer
    if hasattr(trainer.fit, "followed"):
        return
    original_fit, read_metrics = trainer.fit, trainer._get_metrics_result_or_logs
    signature = inspect.signature(original_fit)

    @functools.wraps(original_fit)
    def fit_model(model, *args, **kwargs):
        arguments = signature.bind(model, *args, **kwargs)
        arguments.apply_defaults()
        return fit(model, original_fit, arguments)

    def metrics_or_logs(model, logs):
        return logs if has_logs(model, logs) else read_metrics(model, logs)

    fit_model.followed = True
    trainer.fit, trainer._get_metrics_result_or_logs = fit_model, metrics_or_logs
    for kind in ("train", "test", "predict"):
        _follow_function(trainer, kind, function)


_makers = {}  # kind: Keras' own make_..._function()


def _follow_function(trainer, kind, function):
    name, attribute = f"make_{kind}_function", f"{kind}_function"
    original = _makers[kind] = getattr(trainer, name)

    @functools.wraps(original)
    def make(model, force=False):
        ours = function(model, kind, force)
        if ours is None:
            # The one that is there may be of the time before the coordinator was closed.
            return original(model, force or hasattr(getattr(model, attribute), "of_coordinator"))
        setattr(model, attribute, ours)
        return ours

    setattr(trainer, name, make)


def keras_function(model, kind):
    """The function that a model has without us, see follow_models()."""
    attribute = f"{kind}_function"
    ours = getattr(model, attribute)
    _makers[kind](model, force=True)
    made = getattr(model, attribute)
    setattr(model, attribute, ours)
    return made


def layers_of(model):
    """All layers of a model, also those inside of others."""
    return model._flatten_layers(include_self=False)


@contextlib.contextmanager
def replaced(model, **attributes):
    """Inside, the model has these attributes; Keras does not track them."""
    before = {name: model.__dict__[name] for name in attributes if name in model.__dict__}
    model.__dict__.update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            del model.__dict__[name]
        model.__dict__.update(before)


def is_masked(structure):
    """Whether a tensor in it carries a mask of Keras."""
    return any(getattr(t, "_keras_mask", None) is not None for t in tf.nest.flatten(structure))


def global_seed():
    """The seed that keras.utils.set_random_seed() or tf.random.set_seed() was given, or None."""
    from tensorflow.python.eager import context
    return context.global_seed()


def _adapter(x, y=None, sample_weight=None, batch_size=None, steps=None, class_weight=None):
    from keras.src.trainers.data_adapters import array_data_adapter
    return array_data_adapter.ArrayDataAdapter(
        x, y, sample_weight=sample_weight, batch_size=batch_size, steps=steps, class_weight=class_weight)


def are_arrays(*data):
    """Whether fit() takes these as arrays with an entry for each example."""
    from keras.src.trainers.data_adapters import array_data_adapter
    return array_data_adapter.can_convert_arrays(data)


def arrays_of(*data):
    """The batches that fit() makes of arrays, see _adapter() for @data: (a structure of arrays, the batch size)."""
    from keras.src.trainers.data_adapters import array_slicing
    adapter = _adapter(*data)
    return array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow"), adapter.batch_size


def split_arrays(data, fraction):
    """(the examples to train with, the last @fraction of them) of a structure of arrays."""
    from keras.src.trainers.data_adapters import array_slicing
    return array_slicing.train_validation_split(data, validation_split=fraction)
