# SPDX-License-Identifier: Apache-2.0
"""Results of scheduled functions: NumPy arrays in the structure that the function returns."""

import threading

import numpy as np
import tensorflow as tf

KEPT = 1024  # elements of an array that a checkpoint keeps; of larger ones the shape


class Result:
    """The result of a scheduled function, to be fetched later; takes the place of RemoteValue.

    resumed: True if the function was not called, since the checkpoint that this program resumed
    from has that step already.
    """

    def __init__(self):
        self.resumed = False
        self._event, self._value, self._error = threading.Event(), None, None

    def set(self, value, error=None):
        self._value, self._error = value, error
        self._event.set()

    def fetch(self):
        """Waits for the value and returns it as NumPy; raises what the function raised.

        A step in sync mode gives the slots' mean, weighted by their examples, or their sum, as the
        strategy's `reduction` says; integers are added, and a tensor with an entry for each
        example is in the batch's order. A step that a resumed checkpoint contains gives what the
        last step before the checkpoint gave.
        """
        self._event.wait()
        if self._error:
            raise self._error
        return self._value

    get = fetch


def numpy(structure):
    return tf.nest.map_structure(lambda t: None if t is None else t.numpy(), structure)


def combine(results, counts, per_example, reduction):
    """The results of a step's micro-batches as one.

    @counts are their examples, @per_example says of each leaf whether its first dimension is
    theirs.
    """
    def one(*values):
        axis = next(axes)
        if values[0] is None:
            return None
        if axis:
            return np.concatenate(values)
        values = np.stack(values)
        if values.dtype.kind not in "fcV":  # V: bfloat16
            return values.sum(axis=0) if values.dtype.kind in "iu" else values[0]
        total = (np.sum(values, axis=0) if reduction == "sum" else
                 np.average(values, axis=0, weights=counts))
        return total.astype(values.dtype)

    axes = iter(per_example)
    return tf.nest.map_structure(one, *results)


def per_example(outputs):
    """For each leaf of a trace's outputs, whether its first dimension is that of the examples."""
    return [t is not None and t.shape.rank is not None and t.shape.rank > 0 and t.shape[0] is None
            for t in tf.nest.flatten(outputs)]


def to_json(value):
    """A result in a form that a checkpoint can hold."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {"dict": [[k if isinstance(k, (str, int)) else str(k), to_json(value[k])]
                         for k in value]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__ if type(value) in (list, tuple) else "tuple":
                [to_json(v) for v in value]}
    array = np.asarray(value)
    name, shape = tf.as_dtype(array.dtype).name, array.shape
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    kept = array.size <= KEPT and array.dtype.kind in "fiub"
    return {"array": [name, shape, array.ravel().tolist() if kept else None]}


def from_json(kept):
    if kept is None:
        return None
    (kind, value), = kept.items()
    if kind == "dict":
        return {key: from_json(v) for key, v in value}
    if kind in ("list", "tuple"):
        return {"list": list, "tuple": tuple}[kind](map(from_json, value))
    name, shape, values = value
    dtype = tf.as_dtype(name).as_numpy_dtype
    if values is None:
        return np.full(shape, np.nan if tf.as_dtype(name).is_floating else 0, dtype)
    return np.array(values, dtype).reshape(shape)[()]
