# SPDX-License-Identifier: Apache-2.0
"""A small ggml program, through the library of a wheel: it computes graphs with 6 threads, and each line of its stdin
is a statement of Python that it runs in between.

    work.py             says "begun"; `say(…)` in a statement answers
    work.py results     what each number of threads from 1 to 6 gives
"""
import ctypes
import hashlib
import os
import pathlib
import random
import sys
import sysconfig
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import goes_on, lines, listen, say  # noqa: E402, F401 (statements use them)

ASKED = 6
PACKAGES = pathlib.Path(sysconfig.get_path("platlib"))
FIRST = next((PACKAGES / "pywhispercpp.libs").glob("libggml-cpu-*.so*"))
SECOND = PACKAGES / "libggml-cpu.so"  # the same library once more, under another name
F32, EACH_THREAD = 0, -1


class Params(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


POINTER, INT, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
CUSTOM = ctypes.CFUNCTYPE(None, POINTER, POINTER, INT, INT, POINTER)
FUNCTIONS = {
    "ggml_init": (POINTER, Params),
    "ggml_new_tensor_2d": (POINTER, POINTER, INT, LONG, LONG),
    "ggml_mul_mat": (POINTER, POINTER, POINTER, POINTER),
    "ggml_soft_max": (POINTER, POINTER, POINTER),
    "ggml_map_custom1": (POINTER, POINTER, POINTER, CUSTOM, INT, POINTER),
    "ggml_new_graph": (POINTER, POINTER),
    "ggml_build_forward_expand": (None, POINTER, POINTER),
    "ggml_get_data": (POINTER, POINTER),
    "ggml_nbytes": (ctypes.c_size_t, POINTER),
    "ggml_backend_cpu_init": (POINTER,),
    "ggml_backend_cpu_set_n_threads": (None, POINTER, INT),
    "ggml_backend_cpu_set_threadpool": (None, POINTER, POINTER),
    "ggml_backend_graph_compute": (INT, POINTER, POINTER),
    "ggml_backend_graph_plan_create": (POINTER, POINTER, POINTER),
    "ggml_backend_graph_plan_compute": (INT, POINTER, POINTER),
    "ggml_threadpool_params_init": (None, POINTER, INT),
    "ggml_threadpool_new": (POINTER, POINTER),
    "ggml_version": (ctypes.c_char_p,),
}


class Copy:
    """A copy of ggml, in a scope of its own (RTLD_LOCAL), and a graph: two products of matrices, and an operation
    that sees with how many threads it runs."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)
        self.seen, self.pause = [], 0
        self.custom = CUSTOM(self._operation)
        self.context = self.init(Params(16 << 20, None, False))
        self.backend, self.graph = self.backend_cpu_init(), self.new_graph(self.context)
        dice = random.Random(5)
        head = self.map_custom1(self.context, self._tensor(dice, 8, 8), self.custom, EACH_THREAD, None)
        hidden = self.mul_mat(self.context, self._tensor(dice, 128, 256), self._tensor(dice, 128, 64))
        self.result = self.mul_mat(self.context, self._tensor(dice, 256, 32), self.soft_max(self.context, hidden))
        self.build_forward_expand(self.graph, head)
        self.build_forward_expand(self.graph, self.result)
        self.backend_cpu_set_n_threads(self.backend, ASKED)

    def _tensor(self, dice, *size):
        tensor = self.new_tensor_2d(self.context, F32, *size)
        values = (ctypes.c_float * (size[0] * size[1]))(*(dice.uniform(-1, 1) for _ in range(size[0] * size[1])))
        ctypes.memmove(self.get_data(tensor), values, ctypes.sizeof(values))
        return tensor

    def _operation(self, to, from_, index, threads, data):
        self.seen.append(threads)
        if self.pause and index == 0:
            say("within")
            time.sleep(self.pause)

    def _number(self, status):
        assert status == 0 and len(self.seen) == self.seen[0] and len(set(self.seen)) == 1, (status, self.seen)
        return self.seen[0]

    def compute(self, pause=0):
        """With how many threads a graph ran."""
        self.pause = pause
        self.seen.clear()
        return self._number(self.backend_graph_compute(self.backend, self.graph))

    def compute_kept(self, plan):
        self.seen.clear()
        return self._number(self.backend_graph_plan_compute(self.backend, plan))

    def digest(self):
        return hashlib.sha256(ctypes.string_at(self.get_data(self.result), self.nbytes(self.result))).hexdigest()

    def use_pool(self, threads):
        params = ctypes.create_string_buffer(4096)
        self.threadpool_params_init(params, threads)
        self.backend_cpu_set_threadpool(self.backend, self.threadpool_new(params))


def results(until=lambda: not lines.empty()):
    """Each number of threads that was seen, with each result that came out."""
    found, graphs = set(), 0
    while not until():
        found.add(f"{copy.compute()}:{copy.digest()}")
        graphs += 1
    return graphs, *sorted(found)


def child():
    """Computes in the child of a fork: with one thread, since OpenMP's others are not there."""
    pid = os.fork()
    if pid == 0:
        copy.backend_cpu_set_n_threads(copy.backend, 1)
        os._exit(copy.compute())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


copy = Copy(FIRST)

if sys.argv[1:2] == ["results"]:
    found = []
    for n in range(1, ASKED + 1):
        copy.backend_cpu_set_n_threads(copy.backend, n)
        found.append(f"{copy.compute()}:{copy.digest()}")
    say(*found)
else:
    listen()
    copy.compute()
    say("begun")
    while goes_on(globals()):
        copy.compute()
