# SPDX-License-Identifier: Apache-2.0
"""Runtimes that the agent follows on x86-64 alone: on another processor their programs are told so, and left alone."""
import platform
import shutil
import sys

import pytest

from program import run, tided  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(platform.machine() == "x86_64", reason="the agent follows them on x86-64")
WORK = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); input()"


@pytest.mark.parametrize("backend, file", [("ggml", "libggml-base.so"), ("onnxruntime", "libonnxruntime.so.1")])
def test_the_note_says_that_the_processor_is_not_supported(run, compiled, tmp_path, backend, file):  # noqa: F811
    library = shutil.copy(compiled("processor/library.c", "-shared", "-fPIC"), tmp_path / file)
    program = run(sys.executable, "-c", WORK, library, backend=backend)
    program.expect("ready")
    program.becomes(malleable=False, note="moldable: not supported on this processor")
    program.tell("")
    program.end()
