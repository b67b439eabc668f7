# SPDX-License-Identifier: Apache-2.0
"""The C API of ONNX Runtime, as programs in C++ or Java call it: through the table OrtApi of libonnxruntime.so."""
import ctypes
import hashlib
import pathlib
import threading

import onnxruntime

LIBRARY = next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
P, I, Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
# Place in the table, and the types of what it takes (onnxruntime_c_api.h).
FUNCTIONS = {
    "GetErrorMessage": (2, P), "CreateEnv": (3, I, ctypes.c_char_p, P), "CreateSessionFromArray": (8, P, ctypes.c_char_p, Z, P, P),
    "Run": (9, P, P, P, P, Z, P, Z, P), "CreateSessionOptions": (10, P), "SetSessionLogSeverityLevel": (22, P, I),
    "SetIntraOpNumThreads": (24, P, I), "CreateTensorWithDataAsOrtValue": (49, P, P, Z, P, Z, I, P), "GetTensorMutableData": (51, P, P),
    "CreateCpuMemoryInfo": (69, I, I, P), "RunWithBinding": (133, P, P, P), "CreateIoBinding": (134, P, P),
    "BindInput": (136, P, ctypes.c_char_p, P), "BindOutputToDevice": (138, P, ctypes.c_char_p, P),
    "RunAsync": (260, P, P, P, P, Z, P, Z, P, P, P)}
ANSWER = ctypes.CFUNCTYPE(None, P, ctypes.POINTER(P), Z, P)


class Base(ctypes.Structure):
    _fields_ = [("get", ctypes.CFUNCTYPE(P, ctypes.c_uint32)), ("version", P)]


def names(*texts):
    return (ctypes.c_char_p * len(texts))(*texts)


class Session:
    def __init__(self, model, threads=8):
        library = ctypes.CDLL(LIBRARY)
        library.OrtGetApiBase.restype = ctypes.POINTER(Base)
        self.table = ctypes.cast(library.OrtGetApiBase().contents.get(16), ctypes.POINTER(P))
        env, options, self.session, self.memory = P(), P(), P(), P()
        self.call("CreateEnv", 3, b"capi", ctypes.byref(env))
        self.call("CreateSessionOptions", ctypes.byref(options))
        self.call("SetIntraOpNumThreads", options, threads)
        self.call("SetSessionLogSeverityLevel", options, 4)
        self.call("CreateSessionFromArray", env, model, len(model), options, ctypes.byref(self.session))
        self.call("CreateCpuMemoryInfo", 0, 0, ctypes.byref(self.memory))

    def call(self, name, *values):
        """Raises what the function complains of."""
        place, *types = FUNCTIONS[name]
        status = ctypes.CFUNCTYPE(P, *types)(self.table[place])(*values)
        if status:
            raise RuntimeError(ctypes.CFUNCTYPE(ctypes.c_char_p, P)(self.table[FUNCTIONS["GetErrorMessage"][0]])(status).decode())

    def seen(self):
        """All three ways to run a model lead to the agent."""
        ours = [[int(end, 16) for end in line.split()[0].split("-")] for line in open("/proc/self/maps") if "libtide-agent" in line]
        return all(any(low <= self.table[FUNCTIONS[name][0]] < high for low, high in ours) for name in ("Run", "RunWithBinding", "RunAsync"))

    def tensor(self, array):
        value, shape = P(), (ctypes.c_int64 * array.ndim)(*array.shape)
        kind = {"float32": 1, "int64": 7}[array.dtype.name]
        self.call("CreateTensorWithDataAsOrtValue", self.memory, array.ctypes.data, array.nbytes, shape, array.ndim, kind, ctypes.byref(value))
        return value

    def digest(self, value, like):
        data = P()
        self.call("GetTensorMutableData", value, ctypes.byref(data))
        return hashlib.sha256(ctypes.string_at(data, like.nbytes)).hexdigest()[:16]

    def run(self, array):
        """For a model whose output has its input's shape."""
        given, got = P(self.tensor(array).value), P()
        self.call("Run", self.session, None, names(b"x"), ctypes.byref(given), 1, names(b"y"), 1, ctypes.byref(got))
        return self.digest(got, array)

    def run_bound(self, array):
        binding = P()
        self.call("CreateIoBinding", self.session, ctypes.byref(binding))
        self.call("BindInput", binding, b"x", self.tensor(array))
        self.call("BindOutputToDevice", binding, b"y", self.memory)
        self.call("RunWithBinding", self.session, None, binding)

    def run_async(self, array):
        done, said = threading.Event(), []
        given, got = P(self.tensor(array).value), (P * 1)()

        def answer(arg, outputs, count, status):
            said.append(f"{arg} {count} " + (self.digest(outputs[0], array) if not status else "failed"))
            done.set()
        kept = ANSWER(answer)
        self.call("RunAsync", self.session, None, names(b"x"), ctypes.byref(given), 1, names(b"y"), 1, got,
                  ctypes.cast(kept, P), 42)
        assert done.wait(30)
        return said[0]

    def fails(self, array, how="run"):
        try:
            return "failed" in getattr(self, how)(array)
        except RuntimeError:
            return True
