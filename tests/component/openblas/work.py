# SPDX-License-Identifier: Apache-2.0
"""A NumPy program: it multiplies, and each line of its stdin is a statement of Python that it runs in between.

    work.py                     says "begun"; `say(…)` in a statement answers
    work.py products N          the bits of two results, with N of eight threads all the time

TIDE_OPENBLAS_POOL: make so many threads; OpenBLAS itself makes no more than there are cores.
"""
import ctypes
import hashlib
import os
import pathlib
import re
import sys
import threading

import numpy

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import elsewhere, goes_on, in_child, listen, say, team  # noqa: E402, F401 (statements use them)


def copy():
    return ctypes.CDLL(re.search(r"/\S*/numpy\.libs/libscipy_openblas\S*", pathlib.Path("/proc/self/maps").read_text())[0])


def number():
    return copy().scipy_openblas_get_num_threads64_()


def pool():
    return ctypes.c_int.in_dll(copy(), "blas_num_threads").value


def set_number(n):
    copy().scipy_openblas_set_num_threads64_(n)


left, right = (numpy.random.default_rng(seed).random((600, 600), dtype=numpy.float32) for seed in (1, 2))
long = numpy.random.default_rng(3).random(100_003)


def product():
    """The bits of two single calls of BLAS: a product, and a sum that has a part for each thread."""
    return [hashlib.sha256((left @ right).tobytes()).hexdigest()[:16], float(long @ long).hex()]


def in_threads(threads, rounds):
    """All results of several Python threads at once."""
    found = [set() for _ in range(threads)]
    workers = [threading.Thread(target=lambda mine=mine: [mine.update(product()) for _ in range(rounds)]) for mine in found]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(set.union(*found))


def main():
    say("begun")
    while goes_on(globals()):
        product()


if sys.argv[1:2] == ["products"]:
    set_number(8)
    set_number(int(sys.argv[2]))
    say(*product())
else:
    if "TIDE_OPENBLAS_POOL" in os.environ:
        set_number(int(os.environ["TIDE_OPENBLAS_POOL"]))
    listen()
    main()
