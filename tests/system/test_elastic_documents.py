# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/elastic-tensorflow.md do what it says."""

import re
import signal
import subprocess

import pytest

from elastic import GUARD_S, cluster
from program import ROOT, clean_env, tensorflow_pythons

PYTHON = tensorflow_pythons()[0]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/elastic-tensorflow.md").read_text(), re.S)


def block(beginning):
    found, = [text for text in BLOCKS if text.startswith(beginning)]
    return found


@pytest.mark.parametrize("example, said", [("# train.py", "Epoch 3/3"), ("# loop.py", "epoch 2: loss")])
def test_program_of_the_document_runs(example, said, tmp_path):
    program = block(example)
    if example == "# loop.py":
        program = program.replace("coordinator.close()", block("read = tf.function") + (
            "assert all((w == v.numpy()).all() for w, v in zip(weights, model.variables))\n"
            "coordinator.close()"))
    (tmp_path / "train.py").write_text(program)
    with cluster(PYTHON, workers=2) as nodes, subprocess.Popen(
            [PYTHON, "-X", "faulthandler", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=clean_env(PYTHONPATH=ROOT / "python", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL=2, **nodes.env)) as training:
        try:
            output, errors = training.communicate(timeout=GUARD_S)
        except subprocess.TimeoutExpired:
            training.send_signal(signal.SIGABRT)  # it tells where each of its threads is
            errors = training.communicate()[1]
            words = [errors[-9000:], *(log.read_text()[-3000:] for log in sorted(nodes.directory.glob("*.log")))]
            pytest.fail("\n".join([f"no end within {GUARD_S} s", *words]))
    assert training.returncode == 0, errors[-4000:]
    assert said in output and "'accuracy'" in output
    assert (tmp_path / "model.keras").stat().st_size > 0
