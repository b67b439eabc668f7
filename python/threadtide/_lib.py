# SPDX-License-Identifier: Apache-2.0
"""Finds libtide.so.1, declares its functions, and wraps the program side of tide.h."""

import atexit
import contextlib
import ctypes
import enum
import errno
import functools
import inspect
import operator
import os
import pathlib
import sys
from typing import Callable, Iterator, NamedTuple, Optional

SONAME = "libtide.so.1"
_PENDING_OR_DONE = (0, 1)


class Source(enum.IntEnum):
    """The one who asked for the present target."""

    LIMIT = 0  # nobody: it follows the own affinity and cgroup quota
    DAEMON = 1  # tided's policy, or a controller through tided
    SIGNAL = 2  # the resize signal
    API = 3  # set_threads() in this process


class State(NamedTuple):
    """The threads of this process."""

    max: int  # the pools were built with; 0: no pool exists yet
    target: int  # should be active
    active: int  # are not parked
    allowed: float  # cores: own affinity and quota, the smaller of the two
    source: Source
    frozen: bool
    generation: int  # differs after every change of target


class CState(ctypes.Structure):
    """struct tide_state"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("max", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("active", ctypes.c_uint32),
        ("allowed_mcpu", ctypes.c_uint32),
        ("source", ctypes.c_uint32),
        ("frozen", ctypes.c_uint32),
        ("generation", ctypes.c_uint64),
    ]

    def value(self) -> State:
        return State(
            self.max,
            self.target,
            self.active,
            self.allowed_mcpu / 1000,
            Source(self.source),
            bool(self.frozen),
            self.generation,
        )


ChangeFn = ctypes.CFUNCTYPE(None, ctypes.POINTER(CState), ctypes.c_void_p)


def _candidates() -> Iterator[str]:
    """Where the library may be, most explicit first."""
    named = os.environ.get("TIDE_LIBRARY")
    if named:
        yield named
        return
    # Beside the agent that `tide run` loaded: <dir>/agent/$LIB/libtide-agent.so.
    for entry in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if entry.endswith("/libtide-agent.so"):
            agent_dir = entry.split("/$LIB/")[0] if "/$LIB/" in entry else os.path.dirname(entry)
            build_dir = os.path.dirname(agent_dir)
            yield os.path.join(build_dir, SONAME)
            # Installed: PREFIX/lib/threadtide and PREFIX/$LIB, which dlopen replaces as ld.so does.
            yield os.path.join(os.path.dirname(build_dir), "$LIB", SONAME)
    # From a source tree: what was built there, in the tree that TIDE_BUILD_DIR names or in build/.
    tree = pathlib.Path(__file__).resolve().parents[2]
    build = os.environ.get("TIDE_BUILD_DIR")
    if build or (tree / "meson.build").is_file():
        yield str(pathlib.Path(build or tree / "build").resolve() / SONAME)
    # From a wheel, which brings it along; else the system's.
    own = pathlib.Path(__file__).resolve().parent / "bin" / SONAME
    if own.is_file():
        yield str(own)
    yield SONAME


def _declare(library: ctypes.CDLL) -> None:
    u32 = ctypes.c_uint32
    library.tide_get.argtypes = [ctypes.POINTER(CState)]
    library.tide_set.argtypes = [u32, u32]
    library.tide_on_change.argtypes = [ChangeFn, ctypes.c_void_p]
    library.tide_strerror.restype = ctypes.c_char_p
    library.tide_version.restype = ctypes.c_char_p


def _load() -> Optional[ctypes.CDLL]:
    if not sys.platform.startswith("linux"):
        return None
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            _declare(library)
        except (OSError, AttributeError):  # not there, or some other library of that name
            continue
        return library
    return None


library = _load()


def _quick(name: str, result, *arguments):
    """A function that takes no lock, called without giving up the GIL. None: the library lacks it."""
    function = getattr(ctypes.PyDLL(library._name), name, None) if library else None
    if function is not None:
        function.restype, function.argtypes = result, arguments
    return function


_u64 = ctypes.c_uint64
_c_progress = _quick("tide_progress", ctypes.c_int, _u64, _u64, ctypes.c_char_p)
_request_begin = _quick("tide_request_begin", _u64) or (lambda: 0)
_request_end = _quick("tide_request_end", None, _u64) or (lambda began: None)


def _check(result: int) -> bool:
    """True: done or pending. False: there is no agent. Anything else is the caller's mistake."""
    if result in _PENDING_OR_DONE:
        return True
    if result in (-errno.ENOENT, -errno.EOPNOTSUPP):
        return False
    text = library.tide_strerror(result).decode()
    if result in (-errno.ERANGE, -errno.EINVAL):
        raise ValueError(text)
    raise OSError(-result, text)


def available() -> bool:
    """True when the agent is in this process, so that the other functions have an effect."""
    return state() is not None


def progress(done: int, total: Optional[int] = None, unit: str = "steps") -> bool:
    """Reports that `done` of `total` units (None: unknown) are finished. True if an agent took it.

    Cheap enough for every step. `done` counts from the program's start.
    """
    if _c_progress is None:
        return False
    return _c_progress(max(0, int(done)), max(0, int(total or 0)), unit.encode()) == 0


class request:
    """A request of a server: ``with request():`` around it, or ``@request()`` above the function that
    answers it, also one that is ``async``. The time inside is its latency, so begin where the request
    arrives, before it waits.

    ``with request() as told:`` says whether an agent took it. One object for each request; for one
    that ends in another place, call ``__enter__()`` and, on any thread, ``__exit__()``.
    """

    __slots__ = ("_began",)

    def __enter__(self) -> bool:
        self._began = began = _request_begin()
        return began != 0

    def __exit__(self, *exc) -> None:
        _request_end(self._began)
        self._began = 0  # a second end does nothing

    def __call__(self, function: Callable) -> Callable:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator ends later than its call: use `with request():` inside")
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def answer(*args, **kwargs):
                with request():
                    return await function(*args, **kwargs)
        else:
            @functools.wraps(function)
            def answer(*args, **kwargs):
                began = _request_begin()
                try:
                    return function(*args, **kwargs)
                finally:
                    _request_end(began)
        return answer


def state() -> Optional[State]:
    """The present state, or None without an agent."""
    now = CState(size=ctypes.sizeof(CState))
    if library is None or not _check(library.tide_get(ctypes.byref(now))):
        return None
    return now.value()


def set_threads(threads: int, inter: int = 0) -> bool:
    """Holds this process at `threads` active threads (0: automatic again), `inter` in the pool
    that runs operations side by side (0: the same). True if an agent took it; ValueError out of
    range.
    """
    for number in (threads, inter):
        if not 0 <= operator.index(number) <= 4096:
            raise ValueError("threads must be 0 to 4096")
    return library is not None and _check(library.tide_set(threads, inter))


@contextlib.contextmanager
def freeze() -> Iterator[bool]:
    """``with freeze():`` the number of active threads does not change inside. Nests."""
    held = library is not None and _check(library.tide_freeze())
    try:
        yield held
    finally:
        if held:
            library.tide_thaw()


_change: Optional[Callable[[State], None]] = None


@ChangeFn
def _call_change(now, _):
    """The function that C calls; it exists for good, so that a callback may replace itself while it runs."""
    fn = _change
    if fn is not None:
        fn(now.contents.value())


def on_change(fn: Optional[Callable[[State], None]]) -> bool:
    """Calls ``fn(state)`` after every change of target, on a thread of the agent's; None removes
    it. One per process. When this returns, the previous callback is over (unless called from
    inside it): hold no lock that it takes. True if there is an agent.
    """
    global _change
    if library is None:
        return False
    _change = fn
    return _check(library.tide_on_change(_call_change if fn else ChangeFn(), None))


# While the interpreter shuts down no foreign thread may enter it any more.
atexit.register(on_change, None)
