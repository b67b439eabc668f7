# SPDX-License-Identifier: Apache-2.0
"""The epochs' permutations, owned by the coordinator.

The examples of batch number n are a pure function of (seed, n). Workers do not know it and cannot
lose it, whatever happens to the cluster. Every example is in exactly one batch of an epoch.
"""

import heapq

import numpy as np
import tensorflow as tf


class Examples:
    """Examples that workers read themselves: @load turns a vector of indices into a batch.

    @load is traced into the step, so it must consist of TensorFlow operations (tf.io.read_file,
    tf.io.parse_example, tf.gather of a variable, ...)::

        Examples(len(files), lambda i: (decode(tf.gather(files, i)), tf.gather(labels, i)))
    """

    def __init__(self, count, load):
        if count < 1:
            raise ValueError("Examples: count must be at least 1")
        self.count, self.load = int(count), load


def _array(value):
    """@value as an array with an entry for each example."""
    array = None if isinstance(value, tf.data.Dataset) else np.asarray(value)
    if array is None or array.ndim == 0:
        raise TypeError(f"create_epochs() cannot read a {type(value).__name__}: the coordinator "
                        "picks examples by their numbers, so give it arrays with an entry for each "
                        "example, or threadtide.tensorflow.Examples(count, load), whose "
                        "load(numbers) reads them on the workers")
    return array


class Batches:
    """The place from which a step function gets its batch: ``next(iterator)`` is the batch (a slot's part of it in sync
    mode), as with the iterator of a per-worker dataset."""

    _now = None  # the tensors that next() gives while a step is traced

    def __iter__(self):
        return self

    def __next__(self):
        if self._now is None:
            raise RuntimeError("next() works in a function given to coordinator.schedule() only")
        return self._now

    def traced(self, function, tensors):
        """Returns the result of @function() where next(self) gives the batch behind @tensors."""
        self._now = self._batch(tensors)
        try:
            return function()
        finally:
            self._now = None


class Epochs(Batches):
    """Batches of shuffled examples, epoch after epoch, without end."""

    def __init__(self, source, batch_size, seed=0, shuffle=True, drop_remainder=False):
        self._examples = source if isinstance(source, Examples) else None
        self._arrays = None
        if self._examples is None:
            self._arrays = tf.nest.map_structure(_array, source)
            counts = {len(array) for array in tf.nest.flatten(self._arrays)}
            if len(counts) != 1 or 0 in counts:
                raise ValueError(f"arrays must have the same, positive length, not {counts}")
            self.count = counts.pop()
        else:
            self.count = self._examples.count
        if batch_size < 1 or (drop_remainder and batch_size > self.count):
            raise ValueError(f"batch_size must be at least 1 and, with drop_remainder, at most {self.count} "
                             f"(the number of examples), not {batch_size}")
        self.batch_size = int(batch_size)
        self._seed, self._shuffle = int(seed), shuffle
        full, rest = divmod(self.count, self.batch_size)
        self.steps_per_epoch = full + (1 if rest and not drop_remainder else 0)
        self._taken = 0  # batches that schedule() has taken
        self._returned = []  # a heap: taken batches that were not done after all
        self._order = (None, None)  # epoch, permutation

    def take(self):
        """The number of the next batch, which is the caller's then."""
        if self._returned:
            return heapq.heappop(self._returned)
        self._taken += 1
        return self._taken - 1

    def give_back(self, number):
        """Batch @number was not done: it is the next again."""
        heapq.heappush(self._returned, number)

    def epoch_of(self, number):
        return number // self.steps_per_epoch

    def indices(self, number):
        """The examples of batch @number, in order."""
        epoch, position = divmod(number, self.steps_per_epoch)
        known, order = self._order  # one reference: several threads may ask
        if known != epoch:
            order = np.arange(self.count, dtype=np.int64)
            if self._shuffle:
                order = np.random.Generator(np.random.PCG64([self._seed, epoch])).permutation(order)
            self._order = (epoch, order)
        return order[position * self.batch_size:(position + 1) * self.batch_size]

    def spec(self):
        """The arguments' types of a traced step: flat, the number of examples left open."""
        if self._arrays is None:
            return [tf.TensorSpec([None], tf.int64)]
        return [tf.TensorSpec([None, *a.shape[1:]], tf.as_dtype(a.dtype))
                for a in tf.nest.flatten(self._arrays)]

    def arguments(self, number, indices):
        """The arguments of a step for these examples of batch @number."""
        if self._arrays is None:
            return [tf.constant(indices)]
        return [tf.constant(array[indices]) for array in tf.nest.flatten(self._arrays)]

    def _batch(self, tensors):
        if self._arrays is None:
            return self._examples.load(tensors[0])
        return tf.nest.pack_sequence_as(self._arrays, tensors)


class Batch:
    """A batch that the program has read: its arrays, kept as long as a step may be done again."""

    def __init__(self, arrays, epoch):
        self.epoch, self._arrays = epoch, arrays

    def indices(self):
        return np.arange(len(self._arrays[0]))

    def arguments(self, indices):
        return [tf.constant(array[indices]) for array in self._arrays]


class Numbered:
    """A batch that is known by its number in @epochs."""

    def __init__(self, epochs, epoch):
        self.epoch, self._epochs, self._number = epoch, epochs, epochs.take()

    def indices(self):
        return self._epochs.indices(self._number)

    def arguments(self, indices):
        return self._epochs.arguments(self._number, indices)


class Feed(Batches):
    """Batches that the program offers one by one, wherever it has them from: a step that reads a Feed is traced
    once for all of them.

    @spec: the types of a batch's arguments, the number of examples left open. @build makes the
    batch that the step sees of them.
    """

    def __init__(self, spec, build):
        self._spec, self._batch, self._offered = list(spec), build, None

    def offer(self, batch):
        """@batch, a Batch or a Numbered, is the one that the next schedule() takes."""
        self._offered = batch

    def take(self):
        batch, self._offered = self._offered, None
        return batch

    def give_back(self, batch):
        """The step failed: its program knows which batch that was."""

    def epoch_of(self, batch):
        return batch.epoch

    def indices(self, batch):
        return batch.indices()

    def arguments(self, batch, indices):
        return batch.arguments(indices)

    def spec(self):
        return self._spec
