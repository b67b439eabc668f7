#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stock programs of other runtimes than TensorFlow, for bench/runtimes.py and the demo.

    runtime_work.py --work transformer --seconds 20 [--times FILE]
    runtime_work.py --work forest --steps 30

Nothing here knows of Threadtide. A step is a piece of work of some 20 to 200 ms on one core: a batch of a
training, a forest of four trees, a booster's round, eight products of matrices. Numbers are random from a fixed seed.
`--times` writes CLOCK_MONOTONIC at the end of every step; a line of JSON at the end is the result.
"""

import argparse
import array
import ctypes
import json
import os
import pathlib
import sys
import tempfile
import time

import resting

SEED = 7


def torch_training(make):
    """make(torch) returns the net, its input and the number of classes."""
    def build():
        import torch
        torch.manual_seed(SEED)
        net, x, classes = make(torch)
        y = torch.randint(0, classes, (x.shape[0],))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loss_of = torch.nn.CrossEntropyLoss()

        def step():
            optimizer.zero_grad()
            loss_of(net(x), y).backward()
            optimizer.step()
        return step, f"torch {torch.__version__}"
    return build


def cnn(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))
    return net, torch.randn(32, 3, 32, 32), 10


def mlp(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, torch.randn(64, 512), 10


def lstm(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = torch.nn.LSTM(64, 128, batch_first=True), torch.nn.Linear(128, 10)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])
    return Net(), torch.randn(64, 32, 64), 10


def transformer(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
            self.body, self.out = torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(128, 10)

        def forward(self, x):
            return self.out(self.body(x).mean(1))
    return Net(), torch.randn(16, 32, 128), 10


def table(rows, columns):
    import numpy
    rng = numpy.random.default_rng(SEED)
    x = rng.standard_normal((rows, columns), dtype="float32")
    return x, (x[:, 0] * x[:, 1] > 0).astype("int32")


def forest():
    import sklearn
    from sklearn.ensemble import RandomForestClassifier
    x, y = table(4000, 20)
    # n_jobs=-1: as many threads as joblib counts cores
    jobs, trees = int(os.environ.get("WORK_FOREST_JOBS", -1)), int(os.environ.get("WORK_FOREST_TREES", 4))
    return lambda: RandomForestClassifier(trees, n_jobs=jobs, random_state=SEED).fit(x, y), f"scikit-learn {sklearn.__version__}"


def histgb():
    import sklearn
    from sklearn.ensemble import HistGradientBoostingClassifier
    x, y = table(20000, 20)
    model = HistGradientBoostingClassifier(max_iter=5, early_stopping=False, random_state=SEED)
    return lambda: model.fit(x, y), f"scikit-learn {sklearn.__version__}"


def kmeans():
    import sklearn
    from sklearn.cluster import KMeans
    x, _ = table(20000, 16)
    return lambda: KMeans(8, n_init=1, max_iter=5, random_state=SEED, tol=0).fit(x), f"scikit-learn {sklearn.__version__}"


def xgboost():
    import xgboost as xgb
    x, y = table(20000, 20)
    data = xgb.DMatrix(x, y)
    booster = [xgb.Booster({"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6}, [data])]

    def step():
        if booster[0].num_boosted_rounds() >= 200:  # a round costs more with each tree before it
            booster[0] = xgb.Booster({"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6}, [data])
        booster[0].update(data, booster[0].num_boosted_rounds())
    return step, f"xgboost {xgb.__version__}"


def lightgbm():
    import lightgbm as lgb
    x, y = table(20000, 20)
    parameters = {"objective": "binary", "verbosity": -1, "num_leaves": 63}
    data = lgb.Dataset(x, y, params=parameters).construct()
    booster = [lgb.Booster(parameters, data)]

    def step():
        if booster[0].current_iteration() >= 200:
            booster[0] = lgb.Booster(parameters, data)
        booster[0].update()
    return step, f"lightgbm {lgb.__version__}"


def gemm():
    import numpy
    rng = numpy.random.default_rng(SEED)
    a, b = (rng.standard_normal((512, 512), dtype="float32") for _ in range(2))

    if "WORK_BLAS_THREADS" in os.environ:  # OpenBLAS makes no more threads than cores unless it is told
        import threadpoolctl
        threadpoolctl.threadpool_limits(int(os.environ["WORK_BLAS_THREADS"]), user_api="blas")

    def product():
        a @ b

    def step():
        for _ in range(8):
            product()
    return step, f"numpy {numpy.__version__}"


def products(library):
    """A step of gemm with another BLAS, @library."""
    import numpy
    rng = numpy.random.default_rng(SEED)
    a, b, c = (rng.standard_normal((512, 512), dtype="float32") for _ in range(3))
    at_a, at_b, at_c = (x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, c))

    def step():
        for _ in range(8):
            library.cblas_sgemm(101, 111, 111, 512, 512, 512, ctypes.c_float(1), at_a, 512, at_b, 512, ctypes.c_float(0), at_c, 512)
    return step


def mkl():
    library = ctypes.CDLL(str(next(pathlib.Path(sys.prefix, "lib").glob("libmkl_rt.so*"), "libmkl_rt.so")))
    library.MKL_Set_Dynamic(0)  # else it has no more threads than cores
    return products(library), "mkl"


def blis():
    library = ctypes.CDLL("libblis.so.4")
    if "OMP_NUM_THREADS" not in os.environ:  # without a number it has one thread
        library.bli_thread_set_num_threads(len(os.sched_getaffinity(0)))
    library.bli_info_get_version_str.restype = ctypes.c_char_p
    return products(library), f"blis {library.bli_info_get_version_str().decode()}"


# ---- a model for ONNX Runtime, as protocol buffers have it (onnx.proto3), without the package onnx ----

def field(number, value):
    def varint(n):
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        return bytes([*out, n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx_model(layers, width, batch):
    """Layers of a product and Relu, float32, input "x" (batch × width) and output "y"."""
    import numpy
    rng = numpy.random.default_rng(SEED)

    def tensor_type(name):
        dims = b"".join(field(1, field(1, n)) for n in (batch, width))
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))
    graph, before = b"", "x"
    for i in range(layers):
        after = "y" if i == layers - 1 else f"h{i}"
        weights = (rng.standard_normal((width, width)) / width ** .5).astype("<f4").tobytes()
        graph += field(1, field(1, before) + field(1, f"w{i}") + field(2, f"m{i}") + field(4, "MatMul"))
        graph += field(1, field(1, f"m{i}") + field(2, after) + field(4, "Relu"))
        graph += field(5, field(1, width) * 2 + field(2, 1) + field(8, f"w{i}") + field(9, weights))
        before = after
    graph += field(2, "work") + field(11, tensor_type("x")) + field(12, tensor_type("y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def ort():
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("WORK_ORT_THREADS", 0))
    session = onnxruntime.InferenceSession(onnx_model(6, 512, 64), options, providers=["CPUExecutionProvider"])
    x = numpy.ones((64, 512), dtype="float32")

    def step():
        for _ in range(8):
            session.run(None, {"x": x})
    return step, f"onnxruntime {onnxruntime.__version__}"


def llama():
    """llama.cpp's server: a prompt of 32 tokens and 64 more, a small model. LLAMA_ARG_THREADS as llama-server reads it."""
    import xllamacpp
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests/component/llama"))
    import model
    params = xllamacpp.CommonParams()
    params.n_ctx, params.n_parallel, params.verbosity = 512, 1, 0
    params.warmup = params.fit_params = params.use_jinja = False
    threads = os.environ.get("LLAMA_ARG_THREADS")
    if threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    with tempfile.TemporaryDirectory() as folder:
        params.model.path = f"{folder}/model.gguf"
        model.write(params.model.path)
        server = xllamacpp.Server(params)

    def step():
        server.handle_completions({"prompt": list(range(3, 35)), "max_tokens": 64, "temperature": 0, "cache_prompt": False,
                                   "ignore_eos": True})
    return step, f"xllamacpp {xllamacpp.__version__}"


WORK = {"cnn": torch_training(cnn), "mlp": torch_training(mlp), "lstm": torch_training(lstm),
        "transformer": torch_training(transformer), "forest": forest, "histgb": histgb, "kmeans": kmeans, "xgboost": xgboost,
        "lightgbm": lightgbm, "gemm": gemm, "mkl": mkl, "blis": blis, "ort": ort, "llama": llama}


def marker(path):
    """Notes from now on when functions are called and return. The function that it returns writes what was noted."""
    noted, now, file = array.array("q"), time.monotonic_ns, open(path, "ab")

    def note(frame, event, arg):
        noted.append(now())

    def write():
        file.write(noted.tobytes())
        file.flush()
        del noted[:]
    sys.setprofile(note)
    return write


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True, choices=WORK)
    length = p.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=20)
    length.add_argument("--steps", type=int)
    p.add_argument("--times", metavar="FILE")
    p.add_argument("--marks", metavar="FILE", help="also CLOCK_MONOTONIC in ns, 64 bits each, at each call and return of a function on the main thread")
    p.add_argument("--pause-after", type=int, default=0, metavar="N", help="rest after every N steps …")
    p.add_argument("--pause", type=float, default=3, metavar="S", help="… for so many seconds")
    args = p.parse_args()
    try:
        step, version = WORK[args.work]()
    except (ModuleNotFoundError, OSError) as missing:
        sys.exit(f"runtime_work.py: {args.work}: {missing}")
    times = open(args.times, "a", encoding="ascii") if args.times else None
    marks = marker(args.marks) if args.marks else None
    begin, done = time.monotonic(), 0
    while done < args.steps if args.steps else time.monotonic() < begin + args.seconds:
        step()
        done += 1
        if times:
            times.write(f"{time.monotonic():.6f}\n")
            times.flush()
        if marks:
            marks()
        if args.pause_after and done % args.pause_after == 0:
            resting.rest(args.pause)
    took = time.monotonic() - begin
    print(json.dumps({"work": args.work, "runtime": version, "steps": done, "seconds": round(took, 3),
                      "steps_per_s": round(done / took, 3)}))


if __name__ == "__main__":
    main()
