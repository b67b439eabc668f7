# SPDX-License-Identifier: Apache-2.0
"""The controller side of tide.h: list jobs, set their threads, move cores between them."""

import ctypes
import errno
import operator
import os
from typing import List, NamedTuple, Optional

from threadtide import _lib

_ASYNC_MS = 0xFFFFFFFF


class _Async:
    def __repr__(self) -> str:
        return "threadtide.ASYNC"


ASYNC = _Async()  # as a deadline: send and do not wait


class Job(NamedTuple):
    """One row of Controller.jobs()."""

    id: str  # "j3"; Controller's methods take it, the name or the pid as their job
    name: str
    # "starting": no pool is known yet; "running"; "moldable": its threads were chosen when it started;
    # "rigid": its threads stay as they are
    state: str
    pid: int  # of its first process
    cores: str  # that it may run on, as a list: "0-3,8"; ends in "…" when it was cut
    allowed: float  # cores' worth of time: its affinity and CPU quota, the smaller of the two
    target: int  # threads that shall be active, in all its processes together
    active: int  # threads that are not parked
    max: int  # threads that its pools were built with
    oversubscribed: bool  # more active threads than cores allowed to it
    lent: int  # cores that it has given away and not got back yet
    borrowed: int  # cores of the user's other jobs that it has now
    done: int  # units finished, as the program reports them with progress()
    total: Optional[int]  # units there are; None: unknown
    unit: str  # what is counted: "steps"
    rate: float  # units per second


class Result(NamedTuple):
    """How a synchronous request went. `before` and `after` are threads for set(), cores that the
    job has lent for lend() and reclaim(), cores that it has borrowed for borrow() and give_back().
    """

    before: int
    after: int
    latency: float  # seconds from the request to the acknowledgement
    partial: bool  # done in part: a thread was late, or fewer cores than asked for; message says it
    oversubscribed: bool  # more threads than the machine has cores: accepted, but slow
    message: str = ""  # what the daemon says of it, for people: "" if there is nothing to say


class Failure(NamedTuple):
    """An asynchronous request that failed."""

    request: int  # as the call returned it
    error: OSError


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_uint32),
    ]


class _Job(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)]
    _fields_ += [
        (name, ctypes.c_uint32)
        for name in "pid allowed_mcpu target active max oversubscribed lent borrowed".split()
    ]
    _fields_ += [
        (name, ctypes.c_uint64) for name in "progress_done progress_total rate_milli".split()
    ]
    _fields_ += [
        ("id", ctypes.c_char * 16),
        ("state", ctypes.c_char * 16),
        ("name", ctypes.c_char * 64),
        ("cores", ctypes.c_char * 128),
        ("unit", ctypes.c_char * 32),
    ]

    def value(self) -> Job:
        return Job(
            self.id.decode(errors="replace"),
            self.name.decode(errors="replace"),
            self.state.decode(errors="replace"),
            self.pid,
            self.cores.decode(errors="replace"),
            self.allowed_mcpu / 1000,
            self.target,
            self.active,
            self.max,
            bool(self.oversubscribed),
            self.lent,
            self.borrowed,
            self.progress_done,
            self.progress_total or None,
            self.unit.decode(errors="replace"),
            self.rate_milli / 1000,
        )


class _Result(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("status", ctypes.c_int32),
        ("before", ctypes.c_uint32),
        ("after", ctypes.c_uint32),
        ("oversubscribed", ctypes.c_uint32),
        ("latency_ns", ctypes.c_uint64),
        ("request", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


_JobFn = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Job), ctypes.c_void_p)


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    handle, text, u32 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32
    result = ctypes.POINTER(_Result)
    signatures = {
        "open": [ctypes.POINTER(_Options), ctypes.POINTER(handle)],
        "close": [handle],
        "fd": [handle],
        "message": [handle],
        "list": [handle, _JobFn, handle],
        "set": [handle, text, u32, u32, u32, result],
        "lend": [handle, text, u32, u32, result],
        "borrow": [handle, text, u32, u32, result],
        "reclaim": [handle, text, u32, result],
        "return": [handle, text, u32, result],
        "sent": [handle],
        "poll": [handle, result],
    }
    for name, argtypes in signatures.items():
        getattr(library, "tide_ctl_" + name).argtypes = argtypes
    library.tide_ctl_close.restype = handle
    library.tide_ctl_message.restype = text
    library.tide_ctl_sent.restype = u32
    return library


class Controller:
    """A connection to the daemon; a context manager. One thread at a time.

    Failures are OSErrors of the fitting kind: ProcessLookupError (no such job), PermissionError,
    ConnectionRefusedError (no daemon), TimeoutError; ValueError for numbers out of range. Never
    hangs; after the daemon was replaced the next call connects to the new one.

    `path`: the daemon's directory or its agent.sock; None finds it. `timeout`: seconds, for calls
    without a deadline of their own. A job is an id, a name or a pid; None is the caller's own.
    """

    def __init__(self, path: Optional[str] = None, timeout: float = 5.0):
        self._handle = None
        if _lib.library is None:
            raise FileNotFoundError(
                errno.ENOENT,
                "not found: install Threadtide, or set TIDE_LIBRARY to the library's path",
                _lib.SONAME,
            )
        self._library = _bind(_lib.library)
        options = _Options(
            size=ctypes.sizeof(_Options),
            path=_text(path) if path else None,
            timeout_ms=_milliseconds(timeout),
        )
        handle = ctypes.c_void_p()
        self._raise(self._library.tide_ctl_open(ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle

    def close(self) -> None:
        """Closes the connection. Nothing that was set is undone."""
        if self._handle is not None:
            self._library.tide_ctl_close(self._handle)
            self._handle = None

    def __enter__(self) -> "Controller":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    __del__ = close

    def fileno(self) -> int:
        """For select(); readable: call failures()."""
        return self._raise(self._library.tide_ctl_fd(self._open()))

    def jobs(self) -> List[Job]:
        """Every job that the caller may see, by age."""
        rows: List[Job] = []

        def keep(job, _):
            rows.append(job.contents.value())
            return 0

        self._raise(self._library.tide_ctl_list(self._open(), _JobFn(keep), None))
        return rows

    def set(self, job, threads: int, inter: int = 0, deadline=None):
        """Holds `job` at `threads` active threads (0: automatic again), `inter` in its second pool
        (0: the same). Returns a Result, or with deadline=ASYNC the request's number at once.
        """
        return self._ask("set", job, (_count(threads), _count(inter)), deadline)

    def lend(self, job, cores: int, deadline=None):
        """Puts `cores` of the job's own into the daemon's pool, from which other jobs borrow. The
        job keeps at least one core, and its minimum: of two jobs on two cores neither can lend
        any, and the Result is partial and says so.
        """
        return self._ask("lend", job, (_count(cores),), deadline)

    def borrow(self, job, cores: int, deadline=None):
        """Gives the job up to `cores` from the pool; Result.after says how many it has now. What is
        missing it gets when another job lends, until give_back().
        """
        return self._ask("borrow", job, (_count(cores),), deadline)

    def reclaim(self, job, deadline=None):
        """Takes everything back that the job has lent, from borrowers too."""
        return self._ask("reclaim", job, (), deadline)

    def give_back(self, job, deadline=None):
        """Returns everything that the job has borrowed, to the lenders or into the pool, and ends
        its wish for more. `return`, as C's tide_ctl_return has it, is no name for a Python method.
        """
        return self._ask("return", job, (), deadline)

    def failures(self) -> List[Failure]:
        """The asynchronous requests that failed since the last call. Does not wait."""
        failed: List[Failure] = []
        result = _Result(size=ctypes.sizeof(_Result))
        while self._raise(self._library.tide_ctl_poll(self._open(), ctypes.byref(result))):
            failed.append(Failure(result.request, OSError(-result.status, self._message())))
        return failed

    def _ask(self, verb: str, job, numbers, deadline):
        result = _Result(size=ctypes.sizeof(_Result))
        name = None if job is None else _text(job)
        wait_ms = _ASYNC_MS if deadline is ASYNC else _milliseconds(deadline)
        call = getattr(self._library, "tide_ctl_" + verb)
        status = self._raise(call(self._open(), name, *numbers, wait_ms, ctypes.byref(result)))
        if deadline is ASYNC:
            return self._library.tide_ctl_sent(self._handle)
        return Result(
            result.before,
            result.after,
            result.latency_ns / 1e9,
            status > 0,
            bool(result.oversubscribed),
            self._message(),
        )

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("this Controller is closed")
        return self._handle

    def _message(self) -> str:
        return self._library.tide_ctl_message(self._handle).decode(errors="replace")

    def _raise(self, result: int) -> int:
        if result >= 0:
            return result
        text = self._message() if self._handle is not None else ""
        text = text or self._library.tide_strerror(result).decode()
        if result in (-errno.ERANGE, -errno.EINVAL):
            raise ValueError(text)
        raise OSError(-result, text)


def _text(value) -> bytes:
    """C ends a text at its first NUL: what stands before it is the name of something else."""
    text = os.fsencode(value if isinstance(value, os.PathLike) else str(value))
    if b"\0" in text:
        raise ValueError("%r: a name has no NUL character" % (value,))
    return text


def _count(number: int) -> int:
    """ctypes would cut a number that does not fit to 32 bits, and -1 means something else there."""
    try:
        number = operator.index(number)
    except TypeError:
        raise TypeError("%r: threads and cores are whole numbers" % (number,)) from None
    if not 0 <= number <= 4096:
        raise ValueError("%r: threads and cores are 0 to 4096" % (number,))
    return number


def _milliseconds(seconds: Optional[float]) -> int:
    """0 stands for the default; anything shorter than a millisecond is one."""
    if seconds is None:
        return 0
    if not 0 < seconds <= 86400:
        raise ValueError("%r: a deadline is more than 0 s and at most a day" % (seconds,))
    return max(1, round(seconds * 1000))
