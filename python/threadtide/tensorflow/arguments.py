# SPDX-License-Identifier: Apache-2.0
"""A function and its arguments, as the program gave them to schedule(), and the key of their trace.

As with tf.function, tensors and NumPy arrays are inputs of a trace. Everything else is part of it:
plain values by their value, objects by their identity. A method is known by its function and its
object, a lambda or nested function by its code and what it closes over, since Python makes a new
object for it at each evaluation. What it closes over is that of the call to schedule(): the program
may give those names other values before the training's thread traces the function.
"""

import dis
import functools
import inspect
import types

import numpy as np
import tensorflow as tf

from threadtide.tensorflow.data import Batches

_PLAIN = (bool, int, float, complex, str, bytes, type(None), tf.DType)


class Arguments:
    """A function with its arguments. Made in the program's thread, traced in the training's."""

    def __init__(self, function, args, kwargs):
        self.function = function
        self._python = _frozen(getattr(function, "python_function", function))
        structure = (tuple(args or ()), dict(kwargs or {}))
        leaves = tf.nest.flatten(structure)
        iterators = {id(x): x for x in leaves if isinstance(x, Batches)}
        if len(iterators) > 1:
            raise ValueError("a step has one iterator of create_epochs(): zip what it reads, as in "
                             "create_epochs((x, y), ...)")
        self.epochs = next(iter(iterators.values()), None)
        self.tensors = [tf.convert_to_tensor(x) for x in leaves if _is_input(x)]
        # A function of ours may say that one trace serves for tensors of several shapes.
        self._types = getattr(function, "tide_types", None) or [
            tf.TensorSpec(t.shape, t.dtype) for t in self.tensors]
        self._leaves = [None if _is_input(x) else x for x in leaves]
        self._positions = [number for number, x in enumerate(leaves) if _is_input(x)]
        self._structure = tf.nest.map_structure(lambda _: 0, structure)
        # The trace keeps this object, so that no object named here by its identity ends before it.
        self.key = (_function_key(function), repr(self._structure), tuple(self._positions),
                    tuple((str(t.shape), t.dtype.name) for t in self._types),
                    tuple(_key(x) for x in self._leaves))

    @property
    def name(self):
        function = getattr(self.function, "python_function", self.function)
        return getattr(function, "__qualname__", type(function).__name__)

    def spec(self):
        """The types of a trace's inputs: the batch, then the tensors."""
        batch = self.epochs.spec() if self.epochs else []
        return batch + self._types

    def call(self, tensors):
        """Calls the function, converted by AutoGraph as in a tf.function, while it is traced."""
        batch = len(tensors) - len(self._positions)
        leaves = list(self._leaves)
        for number, tensor in zip(self._positions, tensors[batch:]):
            leaves[number] = tensor
        args, kwargs = tf.nest.pack_sequence_as(self._structure, leaves)
        python = self._python
        try:
            converted = tf.autograph.to_graph(getattr(python, "__func__", python))
            if hasattr(python, "__self__"):
                args = (python.__self__, *args)
            python = converted
        except Exception:  # no source, as in an interactive shell: taken as it is
            pass
        if self.epochs:
            return self.epochs.traced(lambda: python(*args, **kwargs), tensors[:batch])
        return python(*args, **kwargs)


def _frozen(function):
    """@function with the values that it closes over now. They live as long as it does, so that none
    of their identities is another object's meanwhile. Names that it assigns stay the program's, and so do
    those that functions among its values assign."""
    if inspect.ismethod(function):
        return types.MethodType(_frozen(function.__func__), function.__self__)
    if isinstance(function, functools.partial):
        return functools.partial(_frozen(function.func), *function.args, **function.keywords)
    if not inspect.isfunction(function) or not function.__closure__:
        return function
    shared = {id(cell) for user in (function, *filter(inspect.isfunction, map(_content, function.__closure__)))
              for name, cell in zip(user.__code__.co_freevars, user.__closure__ or ())
              if name in _assigned_in(user.__code__)}
    cells = tuple(cell if id(cell) in shared else _copy_cell(cell) for cell in function.__closure__)
    frozen = types.FunctionType(function.__code__, function.__globals__, function.__name__,
                                function.__defaults__, cells)
    for name in ("__kwdefaults__", "__qualname__", "__module__"):
        setattr(frozen, name, getattr(function, name))
    frozen.__dict__.update(function.__dict__)
    return frozen


@functools.lru_cache(1024)
def _assigned_in(code):
    """The outer names that a function assigns, itself or in functions inside: what it leaves there
    is for the program."""
    names = {step.argval for step in dis.get_instructions(code)
             if step.opname in ("STORE_DEREF", "DELETE_DEREF")} & set(code.co_freevars)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= _assigned_in(inner) & set(code.co_freevars)
    return frozenset(names)


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _copy_cell(cell):
    try:
        return types.CellType(cell.cell_contents)
    except ValueError:
        return cell


def _is_input(value):
    return isinstance(value, (tf.Tensor, np.ndarray, np.generic))


def _key(value):
    # The text tells 1, 1.0 and True apart, which are equal, and finds NaN, which is not equal to
    # itself.
    return (type(value), repr(value)) if isinstance(value, _PLAIN) else id(value)


def _function_key(function):
    if inspect.ismethod(function):
        return _function_key(function.__func__), id(function.__self__)
    if isinstance(function, functools.partial):
        return (_function_key(function.func), tuple(map(_key, function.args)),
                tuple((name, _key(x)) for name, x in sorted(function.keywords.items())))
    if not inspect.isfunction(function):
        return id(function)  # a tf.function, or an object that can be called
    cells = tuple(_cell_key(cell) for cell in function.__closure__ or ())
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return id(function.__code__), cells, tuple(map(_key, defaults))


def _cell_key(cell):
    try:
        return _key(cell.cell_contents)
    except ValueError:  # not assigned yet
        return None
