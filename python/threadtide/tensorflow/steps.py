# SPDX-License-Identifier: Apache-2.0
"""A user's step function, traced: the part for workers, and the part that applies the gradients.

Sync mode. `micro(batch, key, handles)` computes the gradients of one micro-batch and *assigns* them
to the resources of its slot, which lie beside the variables. Done twice, it leaves the same as done
once. `apply(weights, handles)` runs on the parameter servers: it adds the slots in their order and
calls the optimizers. Random numbers depend on (step, slot) alone. So the result does not depend on
which worker did which slot, on their number, or on how often a slot was done.

A worker that was given up may still write into its slot. Therefore slots are replaced by new ones
whenever a micro-batch did not end cleanly, and the step's micro-batches are done again.
"""

import contextlib
import re
import threading

import numpy as np
import tensorflow as tf

from threadtide.tensorflow import private, results
from threadtide.tensorflow.log import log

_RANDOM = re.compile("^(RandomUniform|RandomStandardNormal|TruncatedNormal|RandomUniformInt|"
                     "RandomShuffle|Multinomial|RandomGammaV2|RandomPoissonV2)$")
_ASSIGN = re.compile("^(Assign|ResourceScatter|ResourceStridedSliceAssign)")
_EFFECT = re.compile(f"{_ASSIGN.pattern}|^Print|PyFunc$|Summary|TableInsert")
_tracing = threading.local()


def step_seed(salt=0):
    """A seed for tf.random.stateless_*: another one in each step and slot, the same when redone.

    For use in step functions. Keras' random layers get such seeds by themselves.
    """
    key = getattr(_tracing, "key", None)
    if key is None:
        raise RuntimeError("step_seed() works in a function given to coordinator.schedule() only")
    return _fold([7919, salt], key)


def _fold(base, key):
    fold = tf.random.experimental.stateless_fold_in
    return fold(fold(tf.constant(base, tf.int64), key[0]), key[1])


def _keras_seed():
    """seed_of(generator) for a trace: by the generator's own seed, which draw it is, and the
    key."""
    draws = {}

    def seed_of(generator):
        draws[id(generator)] = draw = draws.get(id(generator), -1) + 1
        with tf.init_scope():
            own = int(generator.state.numpy()[0])
        return _fold([own, draw], _tracing.key)

    return seed_of


def _trace(python, *spec):
    return tf.function(python, autograph=False).get_concrete_function(*spec)


class Recorder(list):
    """The list that a step function leaves to apply() while it is traced: [(optimizer, [(gradient, variable)])].

    states: [(variable, value, how)] of what the step would assign itself. "sum": the slots' values
    are added to the variable; "mean": it becomes their mean; "first": slot 0's value.
    answer: a function, traced behind the updates, whose dict takes the place of what the slots
    returned, for the keys that are in names (in their order).
    """

    def __init__(self):
        super().__init__()
        self.states, self.answer, self.names = [], None, ()


@contextlib.contextmanager
def seeds(key):
    """Inside, Keras' random layers that are traced draw numbers by @key, two integers, alone."""
    before, _tracing.key = getattr(_tracing, "key", None), key
    try:
        with private.keras_seeds(_keras_seed()):
            yield
    finally:
        _tracing.key = before


class SyncStep:
    """micro and apply of a step function, and its slots."""

    def __init__(self, strategy, arguments):
        self._strategy, self._variables = strategy, strategy.variables_in
        self._arguments = arguments
        self._slots = strategy.slots
        self.rows = None  # of the sparse gradients of a micro-batch, once known
        self._applies = []  # (optimizer, [position of a gradient], [variable])
        self._gradients = []  # (entry, sparse); behind them the states
        self._states = []  # (position in _gradients, how)
        spec = arguments.spec() + [tf.TensorSpec([2], tf.int64)]
        compute = tf.function(self._compute, autograph=False)

        def micro(*tensors):
            count = len(spec)
            result, gradients, rows = compute(*tensors[:count])
            for handle, gradient in zip(tensors[count:], gradients):
                tf.raw_ops.AssignVariableOp(resource=handle, value=gradient)
            return result, rows

        concrete = compute.get_concrete_function(*spec)
        self.sparse = any(sparse for _, sparse in self._gradients)
        types = _operations(concrete.graph)
        _warn(arguments.name, types)
        if self._recorder.answer and any(map(_ASSIGN.search, types)):
            raise ValueError(f"{arguments.name}: a step assigns a tf.Variable itself, which each slot would do, in any "
                             "order: write a step function, see docs/elastic-tensorflow.md")
        self.pure = not any(map(_EFFECT.search, types))
        self.per_example = results.per_example(concrete.structured_outputs[0])
        self._resources = [tf.TensorSpec([], tf.resource)] * self._width()
        self.micro = _trace(micro, *spec, *self._resources)
        self.probe = _trace(self._probe, tf.TensorSpec([], tf.float32),
                            tf.TensorSpec([None], tf.int64), *self._resources)
        self._apply = _trace(self._sum_and_apply, tf.TensorSpec([self._slots], tf.float32),
                             *self._resources * self._slots)
        self.handles = []
        self.renew()

    def _width(self):
        return sum(2 if sparse else 1 for _, sparse in self._gradients)

    def _compute(self, *tensors):
        self._applies.clear()
        self._gradients.clear()
        self._states.clear()
        self._strategy.recorder = self._recorder = recorder = Recorder()
        try:
            with seeds(tensors[-1]):
                result = self._arguments.call(tensors[:-1])
        finally:
            self._strategy.recorder = None
        flat, rows = [], []
        for optimizer, pairs in recorder:
            pairs = [(g, v) for g, v in pairs if g is not None]
            first = len(self._gradients)
            self._applies.append((optimizer, range(first, first + len(pairs)),
                                  [v for _, v in pairs]))
            for gradient, variable in pairs:
                sparse = isinstance(gradient, tf.IndexedSlices)
                self._gradients.append((self._variables.entry_of(variable), sparse))
                if sparse:
                    rows.append(tf.size(gradient.indices, tf.int64))
                    flat += [tf.cast(gradient.indices, tf.int64), gradient.values]
                else:
                    flat.append(gradient)
        if not flat:
            raise ValueError("the step function gave no gradients to an optimizer made with "
                             "strategy.optimizer(...)")
        for variable, value, how in recorder.states:
            self._states.append((len(self._gradients), how))
            self._gradients.append((self._variables.entry_of(variable), False))
            flat.append(value)
        return result, flat, tf.stack(rows) if rows else tf.zeros([0], tf.int64)

    def renew(self):
        """New resources for all slots, beside their variables, and for one more: scratch."""
        new = self._variables.new_handle
        self.handles = []
        for _ in range(self._slots + 1):
            slot = []
            for entry, sparse in self._gradients:
                if sparse:
                    # Any shape is assigned; an unknown one (-1) would crash TensorFlow's server.
                    slot.append(new(entry.home, tf.int64, [0]))
                    slot.append(new(entry.home, entry.dtype, [0]))
                else:
                    slot.append(new(entry.home, entry.dtype, entry.shape))
            self.handles.append(slot)

    def _read_slots(self, handles, number):
        """The slots' values of gradient @number: a list of tensors, or of (indices, values)."""
        width = self._width()
        at = sum(2 if sparse else 1 for _, sparse in self._gradients[:number])
        entry, sparse = self._gradients[number]
        values = []
        for slot in range(self._slots):
            own = handles[slot * width + at:]
            if sparse:
                indices = tf.raw_ops.ReadVariableOp(resource=own[0], dtype=tf.int64)
                rows = tf.raw_ops.ReadVariableOp(resource=own[1], dtype=entry.dtype)
                values.append((tf.ensure_shape(indices, [None]),
                               tf.ensure_shape(rows, [None, *entry.shape[1:]])))
            else:
                values.append(tf.ensure_shape(tf.raw_ops.ReadVariableOp(
                    resource=own[0], dtype=entry.dtype), entry.shape))
        return values

    def _total(self, weights, handles, number):
        """The slots' gradients, weighted and added in the order of the slots."""
        entry, sparse = self._gradients[number]
        values = self._read_slots(handles, number)
        weights = tf.unstack(tf.cast(weights, entry.dtype))
        if sparse:
            with private.beside(entry.variable):
                return tf.IndexedSlices(
                    tf.concat([tf.math.multiply_no_nan(v, w)
                               for (_, v), w in zip(values, weights)], 0),
                    tf.concat([i for i, _ in values], 0), tf.constant(entry.shape.as_list()))
        with private.beside(entry.variable):
            total = tf.math.multiply_no_nan(values[0], weights[0])
            for value, weight in zip(values[1:], weights[1:]):
                total = total + tf.math.multiply_no_nan(value, weight)
            return total

    def _sum_and_apply(self, weights, *handles):
        if self._strategy.reduction == "sum":
            weights = tf.cast(weights > 0, weights.dtype)
        for optimizer, numbers, variables in self._applies:
            totals = [self._total(weights, handles, number) for number in numbers]
            optimizer.apply_now(list(zip(totals, variables)))
        for number, how in self._states:
            self._assign_state(weights, handles, number, how)
        return self._recorder.answer() if self._recorder.answer else tf.constant(True)

    def _assign_state(self, weights, handles, number, how):
        variable = self._gradients[number][0].variable
        values = self._read_slots(handles, number)
        with private.beside(variable):
            if how == "first":
                variable.assign(values[0])
            elif how == "mean":
                variable.assign(self._total(weights, handles, number))
            else:
                total = values[0]  # slot 0 is never empty
                for value, weight in zip(values[1:], tf.unstack(weights)[1:]):
                    total = total + tf.where(weight > 0, value, tf.zeros_like(value))
                variable.assign_add(total)

    def answer(self, value, said):
        """The step's result: @value of the slots, @said by apply()."""
        if not self._recorder.answer:
            return value
        return {name: said[name] if name in said else value[name] for name in self._recorder.names}

    def _probe(self, scale, rows, *handles):
        """Sends and receives as much as micro does, and computes nothing."""
        handles, sparse_number = list(handles), 0
        for entry, sparse in self._gradients:
            if sparse:
                ids = tf.range(rows[sparse_number]) % entry.shape[0]
                sparse_number += 1
                value = tf.raw_ops.ResourceGather(resource=entry.variable.handle, indices=ids,
                                                  dtype=entry.dtype) * tf.cast(scale, entry.dtype)
                tf.raw_ops.AssignVariableOp(resource=handles.pop(0), value=ids)
            else:
                value = entry.variable.read_value() * tf.cast(scale, entry.dtype)
            tf.raw_ops.AssignVariableOp(resource=handles.pop(0), value=value)
        return scale

    def parts(self, indices):
        """The micro-batches of a step: (slot, examples), and the slots' weights."""
        parts = [p for p in np.array_split(indices, self._slots) if len(p)]
        weights = np.zeros(self._slots, np.float32)
        weights[:len(parts)] = [len(p) / len(indices) for p in parts]
        return list(enumerate(parts)), weights

    def apply(self, weights, device, executor):
        """Adds the slots and applies the sum. A slot of weight 0 was not written: slot 0 for it."""
        handles = []
        for slot, weight in enumerate(weights):
            handles += self.handles[slot if weight else 0]
        with private.run_on(device, executor):
            return results.numpy(self._apply(tf.constant(weights), *handles))


class PlainCall:
    """A function that is called as it is: steps in async mode, evaluation, anything else."""

    def __init__(self, arguments):
        self._arguments = arguments

        def call(*tensors):
            return tf.nest.map_structure(
                lambda t: t if t is None else tf.identity(t), arguments.call(tensors))

        self.concrete = _trace(call, *arguments.spec())


def _operations(graph):
    """The types of all operations, those of the functions that it calls, too."""
    definition = graph.as_graph_def()
    return {node.op for nodes in [definition.node, *(f.node_def for f in definition.library.function)]
            for node in nodes}


def _warn(name, types):
    found = sorted(filter(_RANDOM.search, types))
    if found:
        log(f"{', '.join(found)} in {name}: its numbers depend on the worker that "
            "runs it. Use Keras layers, or tf.random.stateless_* with threadtide.tensorflow."
            "step_seed(), for a result that does not depend on the cluster")
    found = sorted(filter(_ASSIGN.search, types))
    if found:
        log(f"{', '.join(found)} in {name}: what a step assigns past an optimizer (metrics, averages "
            "of batch normalisation) is done by each slot, in any order and perhaps twice, so the "
            "values depend on the cluster. Return such values, and sum them up in the program")
