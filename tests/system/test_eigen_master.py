# SPDX-License-Identifier: Apache-2.0
"""tests/unit/test_eigen_pool.c once more, on the newer Eigen that comes with a TensorFlow wheel.

Debian's Eigen asks for work in LocalSteal, as TensorFlow until 2.20; the newer one in MaybeGetTask,
which is the agent's better gate. Skipped for a wheel whose Eigen is no newer.
"""

import pathlib
import platform
import re
import subprocess

import pytest
from program import ROOT, clean_env

UNIT = ROOT / "tests/unit"
SANITIZERS = {"plain": [], "tsan": ["-fsanitize=thread", "-Wno-tsan"],
              "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]}


def eigen_headers(python):
    for include in pathlib.Path(python).parent.parent.glob(
            "lib*/python3*/site-packages/tensorflow/include"):
        header = include / "Eigen/src/ThreadPool/NonBlockingThreadPool.h"
        if header.exists() and "MaybeGetTask" in header.read_text():
            return include
    return pytest.skip("this wheel's Eigen has no MaybeGetTask")


def agent_sources():
    """As src/agent/meson.build lists them."""
    text = (ROOT / "src/agent/meson.build").read_text()
    listed = re.search(r"agent_sources = files\((.*?)\)", text, re.S)[1]
    return [str(ROOT / "src/agent" / name) for name in re.findall(r"'([^']+)'", listed)]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_agent_on_the_newer_eigen(python, tmp_path, sanitizer):
    flags = SANITIZERS[sanitizer]
    include = eigen_headers(python)
    subprocess.run(["g++", "-std=c++17", "-O2", "-g", "-w", "-fPIC", "-shared", "-fno-inline", *flags,
                    "-DEIGEN_POOL_MASTER=1", f"-I{UNIT}", f"-isystem{include}",
                    "-o", str(tmp_path / "libpool.so"), str(UNIT / "eigen_pool/pool.cc")], check=True)
    program = tmp_path / "test_eigen_pool"
    subprocess.run(["gcc", "-std=gnu17", "-O2", "-g", "-D_GNU_SOURCE", '-DTIDE_VERSION="test"', *flags,
                    "-ftls-model=initial-exec", f"-I{ROOT}/src", f"-I{UNIT}", "-rdynamic",
                    str(UNIT / "test_eigen_pool.c"), str(UNIT / "eigen_pool/peer.c"),
                    *agent_sources(), f"-L{tmp_path}", "-lpool", f"-Wl,-rpath,{tmp_path}",
                    "-lcmocka", "-lpthread", "-ldl", "-o", str(program)], check=True)
    # A sanitizer's fixed addresses and address randomisation of 32 bits do not go together.
    fixed = ["setarch", platform.machine(), "-R"]
    if subprocess.run([*fixed, "true"], check=False, capture_output=True).returncode != 0:
        fixed = []
    result = subprocess.run([*fixed, str(program)], env=clean_env(TSAN_OPTIONS="halt_on_error=1"),
                            capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
