# SPDX-License-Identifier: Apache-2.0
"""A program that multiplies with a BLAS of its own; each line of its stdin is a statement of Python that it runs in between.

    work.py LIBRARY…                says "begun"; `say(…)` in a statement answers
    work.py LIBRARY results N…      the bits of all results, with each N of threads; N is the number set in the library

With several libraries the first is meant where nothing else is said.
"""
import ctypes
import hashlib
import os
import pathlib
import sys
import threading
import time

import numpy

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import elsewhere, goes_on, in_child, lines, listen, say, team  # noqa: E402, F401 (statements use them)

words = sys.argv[1:]
libraries = [ctypes.CDLL(word) for word in words if "/" in word]
library = libraries[0]
SIZE = 240
left, right = (numpy.random.default_rng(seed).random((SIZE, SIZE)) for seed in (1, 2))
long = numpy.random.default_rng(3).random(100_003)
library.cblas_ddot.restype = ctypes.c_double


def at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def bits(*arrays):
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16]


def product(library=library):
    """Row-major, without transposing, 1.0 * left @ right + 0.0 * out"""
    out = numpy.zeros((SIZE, SIZE))
    library.cblas_dgemm(101, 111, 111, SIZE, SIZE, SIZE, ctypes.c_double(1), at(left), SIZE, at(right), SIZE,
                        ctypes.c_double(0), at(out), SIZE)
    return bits(out)


def update():
    """The upper half of left @ left.T"""
    out = numpy.zeros((SIZE, SIZE))
    library.cblas_dsyrk(101, 121, 111, SIZE, SIZE, ctypes.c_double(1), at(left), SIZE, ctypes.c_double(0), at(out), SIZE)
    return bits(out)


def dot():
    return library.cblas_ddot(len(long), at(long), 1, at(long), 1).hex()


def results():
    return [product(), update(), dot()]


def factors():
    """If three functions of LAPACK, each of many calls of BLAS, are right: LU, QR, eigenvalues of a symmetric matrix."""
    lu, qr, both = left.copy(), left.copy(), left + left.T
    pivots, tau, values = numpy.zeros(SIZE, "int32"), numpy.zeros(SIZE), numpy.zeros(SIZE)
    assert library.LAPACKE_dgetrf(101, SIZE, SIZE, at(lu), SIZE, at(pivots)) == 0
    assert library.LAPACKE_dgeqrf(101, SIZE, SIZE, at(qr), SIZE, at(tau)) == 0
    assert library.LAPACKE_dsyevd(101, ord("V"), ord("U"), SIZE, at(both), SIZE, at(values)) == 0
    upper, lower = numpy.triu(lu), numpy.tril(lu, -1) + numpy.eye(SIZE)
    rows = numpy.arange(SIZE)
    for i, pivot in enumerate(pivots):
        rows[[i, pivot - 1]] = rows[[pivot - 1, i]]
    triangle = numpy.triu(qr)
    square = left + left.T
    return [all((numpy.allclose(lower @ upper, left[rows]), numpy.allclose(triangle.T @ triangle, left.T @ left),
                numpy.allclose(square @ both, both * values)))]


def number():
    """How many threads a product is done by."""
    return team(lambda: [product() for _ in range(3)])


def alive(library=library):
    """The same where threads are made for each product and end with it: the most at once."""
    def count():
        return len(os.listdir("/proc/self/task"))
    most, done = count(), threading.Event()
    before = most

    def work():
        for _ in range(4):
            product(library)
        done.set()
    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        most = max(most, count())
        time.sleep(0)
    thread.join()
    return most - before


def in_threads(threads, work=results):
    """All results of several Python threads at once, until the next statement is there."""
    found = [set() for _ in range(threads)]

    def until(mine):
        while lines.empty():
            mine.update(work())
    workers = [threading.Thread(target=until, args=[mine]) for mine in found]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(set.union(*found))


def set_number(n):
    (library.MKL_Set_Num_Threads if "mkl" in words[0] else library.bli_thread_set_num_threads)(n)


def told():
    """The number that the program is told."""
    return (library.MKL_Get_Max_Threads if "mkl" in words[0] else library.bli_thread_get_num_threads)()


def answered():
    """The number that fake_mkl.c is answered in a product."""
    product()
    return library.last_number()


def variable():
    """Returns BLIS's number in libblas.so.3; four bytes of gcc's code that copies it lead to its place."""
    code = ctypes.string_at(ctypes.cast(library.dgemm_, ctypes.c_void_p).value - 100_000, 100_000)
    place = code.index(b"\x66\x0f\x6f\x05", code.index(b"\x48\x89\xef\x0f\x11\x03") - 8)
    start = ctypes.cast(library.dgemm_, ctypes.c_void_p).value - 100_000 + place + 8
    return ctypes.c_int64.from_address(start + int.from_bytes(code[place + 4:place + 8], "little", signed=True) + 8).value


def comes_to(function, most):
    """False if @function does not return @most or less for long."""
    end = time.monotonic() + 20
    while function() > most and time.monotonic() < end:
        pass
    return function() <= most


def torch():
    import torch
    torch.randn(300, 300) @ torch.randn(300, 300)
    return torch


def main():
    say("begun")
    while goes_on(globals()):
        for one in libraries:
            product(one)
        time.sleep(0.01)


if "results" in words:
    found = set()
    for n in words[words.index("results") + 1:]:
        set_number(int(n))
        found.update(results())
    say(*sorted(found))
else:
    listen()
    main()
