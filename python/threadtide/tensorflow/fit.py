# SPDX-License-Identifier: Apache-2.0
"""model.fit(), evaluate() and predict() of Keras on a cluster that changes.

The data's way::

    fit(x, y): Keras' own loop, callbacks and data sets; for each batch it calls a function of ours
      -> Feed: the batch, as the chief read it, or by its numbers in an order that the coordinator owns
      -> schedule(): model.train_step() for each slot's part, on workers, in a StatelessScope
      -> a slot's gradients, and what it would add to each metric, beside their variables
      -> apply(): the optimizer once, the metrics' sums in the slots' order; their values are the logs

So a step has no effect but what apply() does, once, on the parameter servers, and all of it is in the
checkpoints. evaluate() and predict() are calls that change nothing: the metrics' state goes into the
call and comes out of it.
"""

import functools
import inspect

import numpy as np
import tensorflow as tf

from threadtide.tensorflow import private, steps
from threadtide.tensorflow.data import Batch, Epochs, Examples, Feed, Numbered
from threadtide.tensorflow.log import log
from threadtide.tensorflow.strategy import ElasticOptimizer, ElasticParameterServerStrategy

_INSTEAD = "or write a step function, see docs/elastic-tensorflow.md"
# Calls that a callback gets in an epoch, and does not in one that a resumed training has behind it.
_EVENTS = ("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end", "on_test_begin",
           "on_test_end", "on_test_batch_begin", "on_test_batch_end")
_models = {}  # id(model): _Elastic, for ever, as the strategy has its variables


def follow():
    """Keras' models do what is said here from now on, if they were made in an elastic strategy's scope."""
    private.follow_models(_fit, _function, lambda model, logs: (
        id(model) in _models and _models[id(model)].logs is logs))


def _fit(model, original, arguments):
    strategy = model.distribute_strategy
    if isinstance(strategy, ElasticParameterServerStrategy) and model.compiled:
        _refuse(model, strategy, arguments.arguments)
        return _elastic(model).fit(original, arguments)
    return original(*arguments.args, **arguments.kwargs)


def _elastic(model):
    """The record of @model; None while it is none of an elastic training."""
    strategy = model.distribute_strategy
    if not isinstance(strategy, ElasticParameterServerStrategy):
        return None
    if not strategy.coordinator or strategy.coordinator.closed:
        return None
    if id(model) not in _models:
        _models[id(model)] = _Elastic(model, strategy)
    return _models[id(model)]


def _function(model, kind, force):
    elastic = _elastic(model)
    if elastic is None or (kind != "train" and (_not_traceable(model) or not model.built)):
        return None
    known, made = getattr(model, f"{kind}_function"), {"train": _Train, "test": _Test, "predict": _Predict}[kind]
    return known if isinstance(known, made) and not force else made(elastic)


# Refusals, before anything was done.

def _refuse(model, strategy, given):
    """Raises ValueError or RuntimeError if fit() could not do with @given what it does without us."""
    if not strategy.coordinator:
        raise RuntimeError("model.fit(): make threadtide.tensorflow.ElasticCoordinator(strategy) before")
    if strategy.coordinator.closed:
        raise RuntimeError("model.fit(): the coordinator is closed: call fit() before close()")
    wrong = (_wrong_mode(strategy) or _not_traceable(model) or _wrong_loss(model) or _wrong_layer(model)
             or _made_outside(model, strategy) or _wrong_argument(given))
    if wrong:
        raise ValueError(f"model.fit(): {wrong}")


def _wrong_mode(strategy):
    if strategy.mode != "sync":
        return f"the strategy's mode must be sync, not {strategy.mode}, {_INSTEAD}"
    if strategy.reduction != "mean":
        return "Keras' losses are means: make the strategy with reduction='mean', " + _INSTEAD
    return None


def _not_traceable(model):
    if model.run_eagerly:
        return "workers run traced functions: compile the model without run_eagerly"
    if model.jit_compile:
        return "compile the model with jit_compile=False"
    if model.steps_per_execution != 1:
        return "each step is one call to the cluster: compile the model with steps_per_execution=1"
    return None


def _wrong_loss(model):
    if model.optimizer is None:
        return "compile the model with an optimizer"
    for loss in tf.nest.flatten(model.loss):
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("sum_over_batch_size", "mean"):
            return (f"the loss {loss.name} has reduction={reduction!r}: the slots' parts of a batch are averaged by "
                    f"their examples, so it must be 'sum_over_batch_size', {_INSTEAD}")
        name = getattr(loss, "name", None) or getattr(loss, "__name__", loss)
        if str(name).lower() in ("dice", "tversky", "circle"):
            return f"the loss {name} is reckoned over a whole batch, and each slot has a part of it: {_INSTEAD}"
    return None


def _wrong_layer(model):
    for layer in private.layers_of(model):
        if layer.activity_regularizer is not None:
            return (f"layer {layer.name}: an activity_regularizer is a sum over a batch, and each slot has a part of "
                    f"the batch: add_loss() of a mean in the layer's call(), {_INSTEAD}")
        if getattr(layer, "synchronized", False):
            return f"layer {layer.name}: synchronized=True would need the whole batch in one place: leave it out"
    return None


def _made_outside(model, strategy):
    for variable in [*model.variables, *_metric_variables(model), *model.optimizer.variables]:
        try:
            strategy.variables_in.entry_of(variable)
        except ValueError:
            return (f"{variable.path} was made outside of strategy.scope(): make the model and its optimizer, and call "
                    "model.compile(), inside")
    return None


def _wrong_argument(given):
    import keras
    if given["shuffle"] == "batch":
        return "shuffle must be True or False"
    callbacks = given["callbacks"]
    for callback in getattr(callbacks, "callbacks", None) or tf.nest.flatten(callbacks):
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            return ("leave BackupAndRestore out: the strategy's checkpoint_dir does that, and a program that is run "
                    "again goes on where they end")
    if isinstance(given["x"], Examples) and not all(
            given[name] is None for name in ("y", "sample_weight", "class_weight")):
        return "what Examples(count, load) loads is the whole batch: y, sample_weight and class_weight are in it"
    if isinstance(given["x"], Examples) and given["validation_split"]:
        return "Examples(count, load) cannot be split: give validation_data"
    return None


# How a batch is handed over.

def _tuples(data):
    """@data with tuples for lists, as data sets have them."""
    if isinstance(data, dict):
        return {key: _tuples(value) for key, value in data.items()}
    return tuple(map(_tuples, data)) if isinstance(data, (list, tuple)) else data


def _check_dense(leaves):
    for leaf in leaves:
        if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError("what goes to workers and comes from them must be dense tensors, not a "
                             f"{type(leaf).__name__}: make it dense, or have Examples(count, load) make it there")


def _arrays(batch):
    """The leaves of @batch as arrays; None where there is none."""
    leaves = [None if isinstance(leaf, tf.experimental.Optional) else leaf for leaf in tf.nest.flatten(batch)]
    _check_dense(leaves)
    arrays = [None if leaf is None else np.asarray(leaf) for leaf in leaves]
    counts = {array.shape[:1] for array in arrays if array is not None}
    if len(counts) != 1 or () in counts:
        raise ValueError("each part of a batch must have the examples in its first dimension; the parts' shapes are "
                         f"{[a.shape for a in arrays if a is not None]}")
    return arrays


class _Forms:
    """The things that are made for batches of a structure: make(types, build). The number of examples is left open, and so is
    each dimension in which batches turn out to differ."""

    def __init__(self, make):
        self._make, self._known = make, {}

    def of(self, batch):
        """The thing that was made for @batch, and its arrays."""
        leaves = _arrays(batch)
        structure = tf.nest.map_structure(lambda _: 0, batch)
        present = [n for n, leaf in enumerate(leaves) if leaf is not None]
        arrays = [leaves[n] for n in present]
        types = [tf.as_dtype(a.dtype) for a in arrays]
        shapes = [tf.TensorShape([None, *a.shape[1:]]) for a in arrays]
        key = repr(structure), tuple(present), tuple(types), tuple(s.rank for s in shapes)
        known, made = self._known.get(key, (shapes, None))
        shapes = [a.most_specific_compatible_shape(b) for a, b in zip(known, shapes)]
        if made is None or list(map(str, shapes)) != list(map(str, known)):
            made = self._make(list(map(tf.TensorSpec, shapes, types)),
                              functools.partial(_build, structure, len(leaves), present))
            self._known[key] = shapes, made
        return made, arrays


def _build(structure, count, present, tensors):
    leaves = [None] * count
    for number, tensor in zip(present, tensors):
        leaves[number] = tensor
    return tf.nest.pack_sequence_as(structure, leaves)


def _plain(function, name, types=None):
    """@function for schedule(): traced as it is, once for all tensors of @types."""
    plain = tf.autograph.experimental.do_not_convert(function)
    plain.__qualname__, plain.tide_types = name, types
    return plain


# Assignments that a step would make.

def _metric_variables(model):
    return list({id(v): v for metric in model.metrics for v in metric.variables}.values())


class _Captured:
    """Inside, what @model would assign is kept here; @values are (variable, value) that it begins with."""

    def __init__(self, model, values):
        import keras
        self._scope = keras.StatelessScope(values, collect_losses=True, initialize_variables=False)
        self._known = {id(v): v for v in [*model.variables, *_metric_variables(model)]}
        for variable in self._known.values():  # they are read as ever: so do regularizers, and gradients
            self._scope.state_mapping.setdefault(id(variable), variable.value)
        self.begin = dict(self._scope.state_mapping)

    def __enter__(self):
        self._scope.__enter__()
        return self

    def __exit__(self, *error):
        self._scope.__exit__(*error)

    def value(self, variable):
        return self._scope.get_current_value(variable)

    def assigned(self):
        """[(variable, value)] that differ from what they began with. ValueError for a variable that is none of
        the model."""
        found = []
        for key, value in self._scope.state_mapping.items():
            if value is not self.begin.get(key):
                if key not in self._known:
                    raise ValueError("a step assigns a variable that is no weight and no metric of the model: make "
                                     "it an attribute of the model or of one of its layers")
                found.append((self._known[key], value))
        return found


def _adds(value, start):
    """Whether @value, a tensor of a graph, is @start with something added that does not depend on it."""
    dependent, waiting = {start.op.name}, [start.op]
    while waiting:
        users = [user for tensor in waiting.pop().outputs for user in tensor.consumers()]
        waiting += [user for user in users if user.name not in dependent]
        dependent.update(user.name for user in users)
    while value.op.name != start.op.name:
        inputs = [tensor for tensor in value.op.inputs if tensor.op.name in dependent]
        if value.op.type not in ("AddV2", "Add", "AddN", "Identity") or len(inputs) != 1:
            return False
        value, = inputs
    return True


def _tensors(structure):
    """The value that a model returned, as it is now: a metric's result() may be its variable."""
    _check_dense(tf.nest.flatten(structure))
    return tf.nest.map_structure(lambda leaf: leaf if leaf is None else tf.convert_to_tensor(leaf), structure)


def _loss_first(names):
    return sorted(names, key=lambda name: name != "loss")


class _Elastic:
    """A model of an elastic training."""

    def __init__(self, model, strategy):
        self.model, self.strategy, self.coordinator = model, strategy, strategy.coordinator
        self.logs = None  # what a function of ours returned last
        self.epoch, self.resumed = 0, False  # of the fit() under way; whether the checkpoint has all of the epoch
        self.epochs, self.source = None, None  # Epochs of the fit() under way, and what their batches are like
        self._fits = 0

    def call(self, function, *args):
        result = self.coordinator.schedule(function, args=args)
        self.coordinator.join()
        return result.fetch()

    def told(self, logs):
        """@logs for Keras: numbers, the loss first."""
        logs = logs if isinstance(logs, dict) else {}  # nan: another program's checkpoint
        self.logs = {name: float(logs[name]) if np.ndim(logs[name]) == 0 else logs[name] for name in _loss_first(logs)}
        return self.logs

    # fit()

    def fit(self, original, arguments):
        given = arguments.arguments
        self._fits += 1
        try:
            in_data = self._take_source(given)
            given["callbacks"] = self._callbacks(given, given["steps_per_epoch"] or in_data)
            # Callbacks read and save the state that the steps have left, whatever happens to a server meanwhile.
            self.strategy.variables_in.on_read = self.coordinator.read
            with self.strategy.updating():  # Keras itself writes an optimizer's moving averages at the end
                return original(*arguments.args, **arguments.kwargs)
        finally:
            self.strategy.variables_in.on_read = None
            self.epochs = self.source = None
            self.resumed = False

    def _take_source(self, given):
        """Finds out where batches come from, and gives Keras what it needs to know of it. The number of batches that
        there are; None if that is not known and need not be."""
        x = given["x"]
        if inspect.isfunction(x) or inspect.ismethod(x) or isinstance(x, functools.partial):
            x = given["x"] = x()
        if isinstance(x, Examples):
            return self._take_examples(x, given)
        if private.are_arrays(x, given["y"], given["sample_weight"]):
            return self._take_arrays(given)
        count = getattr(x, "num_batches", None)
        if isinstance(x, tf.data.Dataset):
            count = int(x.cardinality())
        if not given["steps_per_epoch"] and (count is None or count < 0):
            if count == tf.data.INFINITE_CARDINALITY:
                raise ValueError("model.fit(): an endless data set needs steps_per_epoch")
            if self.strategy.checkpoints.in_directory:
                raise ValueError("model.fit(): nobody knows how many batches the data set has, so a program that "
                                 "resumes from checkpoint_dir would not know which epochs it has behind it: say "
                                 "steps_per_epoch, or dataset.apply(tf.data.experimental.assert_cardinality(count))")
            return None
        return count

    def _take_examples(self, x, given):
        self.epochs = Epochs(x, given["batch_size"] or 32, self._seed(), bool(given["shuffle"]))
        self.source = x
        # Keras looks at one batch and counts them.
        batch = x.load(tf.range(min(self.epochs.batch_size, x.count), dtype=tf.int64))
        given.update(x=tf.data.Dataset.from_tensors(_tuples(batch)).repeat(self.epochs.steps_per_epoch),
                     batch_size=None, shuffle=False)
        return self.epochs.steps_per_epoch

    def _take_arrays(self, given):
        names = "x", "y", "sample_weight"
        data = tuple(given[name] for name in names)
        if given["validation_split"] and given["validation_data"] is None:
            data, given["validation_data"] = private.split_arrays(data, given["validation_split"])
            given.update(zip(names, data))
        given["validation_split"] = 0.0
        arrays, batch_size = private.arrays_of(
            *data, given["batch_size"], given["steps_per_epoch"], given["class_weight"])
        arrays = _tuples(arrays)
        leaves = tf.nest.flatten(arrays)
        _check_dense(leaves)
        if any(leaf is None for leaf in leaves):
            raise ValueError("model.fit(): each output needs its sample_weight: give ones where all examples count "
                             "alike")
        arrays = tf.nest.map_structure(np.asarray, arrays)
        self.epochs = Epochs(arrays, batch_size, self._seed(), bool(given["shuffle"]))
        self.source = tf.nest.map_structure(lambda array: array[:1], arrays)
        given["shuffle"] = False  # of what Keras reads one batch is looked at
        return self.epochs.steps_per_epoch

    def _seed(self):
        """The order of examples: another one for each fit(), the same whenever the program runs."""
        return (abs(private.global_seed() or 0) << 20) + self._fits

    def _callbacks(self, given, size):
        """Keras' list of callbacks, which hear nothing of epochs that a resumed training has behind it: they would
        see, and save, the weights of the checkpoint instead of the epoch's."""
        import keras
        own = given["callbacks"]
        heard = keras.callbacks.CallbackList(
            getattr(own, "callbacks", own), add_history=True, add_progbar=given["verbose"] != 0, model=self.model,
            verbose=given["verbose"], epochs=given["epochs"], steps=size)
        for name in _EVENTS:
            setattr(heard, name, self._if_new(getattr(heard, name)))
        begin = heard.on_epoch_begin

        def on_epoch_begin(epoch, logs=None):
            behind = self.resumed
            self.epoch, self.resumed = epoch, bool(size) and self.coordinator.resuming >= size
            if behind and not self.resumed:
                log(f"model.fit() goes on in epoch {epoch}; callbacks know nothing of the epochs before")
            begin(epoch, logs)

        heard.on_epoch_begin = on_epoch_begin
        return heard

    def _if_new(self, event):
        return lambda *args, **kwargs: None if self.resumed else event(*args, **kwargs)

    # A training step, traced.

    def train(self, data, optimizer):
        """model.train_step(), whose effects are left to the recorder."""
        model, recorder = self.model, self.strategy.recorder
        variables = _metric_variables(model)
        zeros = [(v, tf.identity(tf.zeros(v.shape, v.dtype))) for v in variables]
        with _Captured(model, zeros) as captured, private.replaced(
                model, optimizer=optimizer, compute_loss=self._unmasked(model.compute_loss)):
            logs = _tensors(model.train_step(data))
            if not isinstance(logs, dict):
                raise ValueError(f"model.fit(): train_step() must return a dict, not a {type(logs).__name__}")
            measured = model.get_metrics_result()
        metrics = set(map(id, variables))
        for variable, value in captured.assigned():
            if id(variable) not in metrics:
                how = self._how(variable)
            elif _adds(value, captured.begin[id(variable)]):
                how = "sum"
            else:
                raise ValueError(f"model.fit(): metric variable {variable.path} is no sum over examples, so the slots' "
                                 "values cannot be added: leave it out of compile() here, and compile the model with "
                                 f"it for evaluate(), {_INSTEAD}")
            recorder.states.append((variable, value, how))
        recorder.answer, recorder.names = lambda: _tensors(model.get_metrics_result()), _loss_first(logs)
        return {name: value for name, value in logs.items() if name not in measured}

    def _unmasked(self, compute_loss):
        def compute(*args, **kwargs):
            if private.is_masked(kwargs.get("y_pred", args[2] if len(args) > 2 else None)):
                raise ValueError("model.fit(): the model's output has a mask: its loss is a mean over what is not "
                                 "masked, which is another number in each slot. End the model with a layer that drops "
                                 f"the mask, and give sample_weight, {_INSTEAD}")
            return compute_loss(*args, **kwargs)

        return compute

    def _how(self, variable):
        """How the slots' values of what a step assigns itself become one."""
        import keras
        averages = [v for layer in private.layers_of(self.model)
                    if isinstance(layer, keras.layers.BatchNormalization)
                    for v in (layer.moving_mean, layer.moving_variance)]
        if any(variable is v for v in averages):
            return "mean"
        how = {"mean": "mean", "only_first_replica": "first"}.get(variable.aggregation)
        if how is None or variable.trainable or how == "mean" and not tf.as_dtype(variable.dtype).is_floating:
            raise ValueError(f"model.fit(): a step assigns {variable.path}, and each slot would give it another value: "
                             "create it with aggregation='mean' or 'only_first_replica', as for Keras on several "
                             f"replicas, {_INSTEAD}")
        return how


class _Train:
    """The function that Keras calls for each batch of fit()."""

    of_coordinator = True

    def __init__(self, elastic):
        self._elastic = elastic
        self._optimizer = ElasticOptimizer(elastic.strategy, elastic.model.optimizer)
        self._forms, self._loads = _Forms(Feed), {}
        self._step = _plain(self._traced, f"fit of {elastic.model.name}")

    def _traced(self, batches):
        return self._elastic.train(next(batches), self._optimizer)

    def _feed(self, source):
        if not isinstance(source, Examples):
            return self._forms.of(source)[0]
        if source not in self._loads:
            self._loads[source] = Feed([tf.TensorSpec([None], tf.int64)], lambda tensors: source.load(tensors[0]))
        return self._loads[source]

    def __call__(self, iterator):
        elastic = self._elastic
        if inspect.isgenerator(iterator):
            raise ValueError("model.train_on_batch() does not train with an elastic strategy: call fit(), " + _INSTEAD)
        if elastic.epochs:
            feed, batch = self._feed(elastic.source), Numbered(elastic.epochs, elastic.epoch)
        else:
            feed, arrays = self._forms.of(next(iterator))
            batch = Batch(arrays, elastic.epoch)
        feed.offer(batch)
        return elastic.told(elastic.call(self._step, feed))


class _Test:
    """The function that Keras calls for each batch of evaluate(), validation's too: a call that gets the metrics' variables and
    returns what they are then. So every metric will do."""

    of_coordinator = True

    def __init__(self, elastic):
        self._elastic, self._forms = elastic, _Forms(self._make)
        self._iterator, self._number, self._state = None, 0, []

    def _make(self, types, build):
        variables = _metric_variables(self._elastic.model)
        known = [tf.TensorSpec([2], tf.int64), *(tf.TensorSpec(v.shape, v.dtype) for v in variables)]

        def test(key, *tensors):
            values = list(zip(variables, tensors))
            with steps.seeds(key), _Captured(self._elastic.model, values) as captured:
                logs = _tensors(self._elastic.model.test_step(build(tensors[len(variables):])))
            _check_pure("evaluate()", captured, variables)
            return logs, [captured.value(v) for v in variables]

        return _plain(test, f"evaluation of {self._elastic.model.name}", known + types)

    def _begin(self, iterator):
        """The metrics' variables as Keras has just reset them."""
        self._iterator, self._number = iterator, 0
        model, variables = self._elastic.model, _metric_variables(self._elastic.model)
        with _Captured(model, []) as captured:
            model.reset_metrics()
        reset = {id(v): value for v, value in captured.assigned()}
        for variable in variables:
            if id(variable) not in reset:
                raise ValueError(f"model.evaluate(): reset_state() of its metric does not set {variable.path}")
        self._state = [np.asarray(reset[id(v)]) for v in variables]

    def __call__(self, iterator):
        elastic = self._elastic
        if inspect.isgenerator(iterator):  # test_on_batch()
            return private.keras_function(elastic.model, "test")(iterator)
        data = next(iterator)
        if elastic.resumed:
            return elastic.told({})
        if iterator is not self._iterator:
            self._begin(iterator)
        test, arrays = self._forms.of(data)
        key = np.array([self._number, -1], np.int64)
        self._number += 1
        logs, self._state = elastic.call(test, key, *self._state, *arrays)
        return elastic.told(logs)


def _check_pure(name, captured, variables):
    for variable, _ in captured.assigned():
        if not any(variable is v for v in variables):
            raise ValueError(f"model.{name} runs on workers and keeps nothing: {variable.path}, which it assigns, "
                             "would be as before")


class _Predict:
    """The function that Keras calls for each batch of predict()."""

    of_coordinator = True

    def __init__(self, elastic):
        self._elastic, self._forms, self._number = elastic, _Forms(self._make), 0

    def _make(self, types, build):
        def predict(key, *tensors):
            with steps.seeds(key), _Captured(self._elastic.model, []) as captured:
                predicted = _tensors(self._elastic.model.predict_step(build(tensors)))
            _check_pure("predict()", captured, [])
            return predicted

        return _plain(predict, f"prediction of {self._elastic.model.name}", [tf.TensorSpec([2], tf.int64), *types])

    def __call__(self, data):
        predict, arrays = self._forms.of(data[0])
        key = np.array([self._number, -2], np.int64)
        self._number += 1
        return tf.nest.map_structure(tf.constant, self._elastic.call(predict, key, *arrays))
