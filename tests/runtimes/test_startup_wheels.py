# SPDX-License-Identifier: Apache-2.0
"""Pool sizes of real runtimes under `tide run` (src/base/startup.c). For `make soak`: the wheels of
requirements/runtimes.txt are downloaded, and Rayon is built. TIDE_PYTHON_RUNTIMES is their interpreter."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TIDE = pathlib.Path(os.environ["TIDE_BUILD_DIR"]).resolve() / "tide"
CORES = len(os.sched_getaffinity(0))
COMMS = 'comms = [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]'
POOLS = 'from threadpoolctl import threadpool_info; api = {i["internal_api"]: i["num_threads"] for i in threadpool_info()}'

# Code that prints the size of the pool, and its greatest size on this machine (None: any). The agent makes ONNX
# Runtime's pools as large as they may ever be, which is the machine's size if nobody says less.
GROWS = {"onnxruntime"}
RUNTIMES = {
    "polars": ("import polars; print(polars.thread_pool_size())", None),
    "numba": ("import numba; print(numba.get_num_threads())", None),
    "numexpr": ("import numexpr; print(numexpr.nthreads)", None),
    "joblib": ("import joblib; print(joblib.cpu_count())", CORES),
    "openblas": (f"import numpy; {POOLS}; print(api['openblas'])", CORES),
    "openmp of scikit-learn": (f"import sklearn.ensemble; {POOLS}; print(api['openmp'])", None),
    "opencv": ("import cv2; print(cv2.getNumThreads())", None),
    "jax": ("import os, jax.numpy as n; x = n.ones((500, 500)); (x @ x).block_until_ready(); "
            f"{COMMS}; print(comms.count('tf_XLAEigen'))", None),
    # The thread that runs the session counts as one of its pool.
    "onnxruntime": ("import os, onnxruntime as o; from onnxruntime.datasets import get_example; "
                    "n = len(os.listdir('/proc/self/task')); "
                    "s = o.InferenceSession(get_example('sigmoid.onnx'), providers=['CPUExecutionProvider']); "
                    "print(len(os.listdir('/proc/self/task')) - n + 1)", None),
}


@pytest.fixture
def run(tmp_path):
    kept = {k: v for k, v in os.environ.items()
            if not k.endswith(("_NUM_THREADS", "_MAX_THREADS")) and not k.startswith(("TIDE_", "OMP_"))}

    def run(*arguments, env=None):
        done = subprocess.run([TIDE, "run", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                              env={**kept, "TIDE_DIR": str(tmp_path / "run"),
                                   "TIDE_CLAIMS_DIR": str(tmp_path / "claims"), **(env or {})})
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[-1])

    return run


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_pool_has_the_size_of_the_job(run, name):
    python = os.environ.get("TIDE_PYTHON_RUNTIMES", sys.executable)
    code, most = RUNTIMES[name]
    own = run("--", python, "-c", code)
    assert own >= 1
    for size in (1, 3, 5):
        built = max(size, CORES) if name in GROWS else size
        assert run("--threads", size, "--", python, "-c", code) == min(built, most or built)
    assert run("--max", CORES + 8, "--", python, "-c", code) == own
    if CORES > 1:
        assert run("--max", 1, "--", python, "-c", code) == 1


def test_rayon(run, tmp_path):
    if not shutil.which("cargo"):
        pytest.skip("no cargo here")
    (tmp_path / "size/src").mkdir(parents=True)
    (tmp_path / "size/Cargo.toml").write_text('[package]\nname = "size"\nversion = "0.1.0"\nedition = "2021"\n'
                                              '[dependencies]\nrayon = "=1.12.0"\n')
    (tmp_path / "size/src/main.rs").write_text(
        'fn main() { println!("{}", rayon::current_num_threads());\n'
        '  if std::env::args().len() > 1 { std::io::stdin().read_line(&mut String::new()).unwrap(); } }\n')
    subprocess.run(["cargo", "build", "-q", "--release"], cwd=tmp_path / "size", check=True, timeout=600)
    built = tmp_path / "size/target/release/size"
    assert run("--threads", 5, "--", built) == 5
    assert run("--", built) == CORES
    with subprocess.Popen([built, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == f"{CORES}\n"
        said = subprocess.run([TIDE, "doctor", str(process.pid)], capture_output=True, text=True, timeout=60)
        process.stdin.write("\n")
    assert "rayon 1.13.0: moldable" in said.stdout  # of rayon-core, which has the pool


# x * x for four numbers: a model for LiteRT, as TensorFlow 2.21 wrote it (zlib, base 85).
SQUARE = ("c-m!AO-lk%6g{Jp2@NJXg$p4Uu7@;hFJ>h80XDRVzyyV6;RrT;LF;}%>y|BB_5)h?8(Oqz(XVJa@4Y)BbcX}?o%im!_uMH1@Q=EC"
          "E-EOa1Q&TY<g&1tgPcJ`R4t%E9H)RZOfW@*u!+w&j%~?{L~GDLZ4Xa6gZ`-3_M3-Ize!z3YiD6JlDD%U94)THD40!0H`B#cFb}at"
          "{*`zko{0x}|0I1bh`h{^MQ*99xT<C|n#)L?3TNrj);`}4ZqLS#JH@nkv2_(t_v$ro_rHeHu6g_BO5*D`j=zZ?Vw2}yw==A?<{^DV"
          "(}@SJOz#q$G3l-}bHc0ro{OJ}^qGx=P*tqfy1KuE4XG9HTaM(H+>0eOsg?Px6(s-6mp&h?QCE4<P<JKbjl9}rXENnaiS82}v&U`i"
          "1LDNQI$6`sm6?;-ZT*?^-HMJSJss@{npIv3MyK!xr%gw2")
LITERT = f"""
import base64, os, sys, zlib
from ai_edge_litert.interpreter import Interpreter
n, threads = len(os.listdir('/proc/self/task')), int(sys.argv[1])
model = zlib.decompress(base64.b85decode({SQUARE!r}))
i = Interpreter(model_content=model, **({{'num_threads': threads}} if threads else {{}}))
i.allocate_tensors(), i.invoke()
print(len(os.listdir('/proc/self/task')) - n + 1, flush=True)
sys.stdin.read()
"""


def test_litert_has_the_threads_that_the_program_asks_for(run):
    python = os.environ.get("TIDE_PYTHON_RUNTIMES", sys.executable)
    for asked, expected in ((0, 1), (1, 1), (3, 3)):
        assert run("--threads", 2, "--", python, "-c", LITERT, asked) == expected
    with subprocess.Popen([python, "-c", LITERT, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "3\n"
        said = subprocess.run([TIDE, "doctor", str(process.pid)], capture_output=True, text=True, timeout=60)
        process.stdin.close()
    assert "litert 2.3.0: rigid" in said.stdout
