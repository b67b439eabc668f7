# SPDX-License-Identifier: Apache-2.0
"""A NumPy program: it multiplies, and each line of its stdin is a statement of Python that it runs in between.

    work.py                     says "begun"; `say(…)` in a statement answers
    work.py products N          sums of the bits of products, with N threads all the time
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


def set_number(n):
    copy().scipy_openblas_set_num_threads64_(n)


left, right = (numpy.random.default_rng(seed).random((600, 600), dtype=numpy.float32) for seed in (1, 2))


def product():
    """A sum of the bits of a product, a solution and eigenvalues: BLAS and LAPACK."""
    parts = left @ right, numpy.linalg.solve(left[:200, :200], right[:200, :20]), numpy.linalg.eigvalsh(left[:60, :60])
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def in_threads(threads, rounds):
    """Products of several Python threads at once, each a set."""
    found = [set() for _ in range(threads)]
    workers = [threading.Thread(target=lambda mine=mine: [mine.add(product()) for _ in range(rounds)]) for mine in found]
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
    set_number(int(sys.argv[2]))
    say(product())
else:
    if "TIDE_OPENBLAS_LIMIT" in os.environ:
        set_number(int(os.environ["TIDE_OPENBLAS_LIMIT"]))
    listen()
    main()
