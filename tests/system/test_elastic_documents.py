# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/elastic-tensorflow.md do what it says."""

import re
import subprocess

import pytest

from elastic import GUARD_S, cluster
from program import ROOT, clean_env, tensorflow_pythons

PYTHON = tensorflow_pythons()[0]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/elastic-tensorflow.md").read_text(), re.S)


def block(beginning):
    found, = [text for text in BLOCKS if text.startswith(beginning)]
    return found


@pytest.mark.parametrize("example", ["quick start", "reading variables"])
def test_program_of_the_document_runs(example, tmp_path):
    program = block("# train.py")
    if example == "reading variables":
        program = program.replace("coordinator.close()", block("read = tf.function") + (
            "assert all((w == v.numpy()).all() for w, v in zip(weights, model.variables))\n"
            "coordinator.close()"))
    (tmp_path / "train.py").write_text(program)
    with cluster(PYTHON, workers=2) as nodes:
        try:
            done = subprocess.run(
                [PYTHON, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=GUARD_S,
                env=clean_env(PYTHONPATH=ROOT / "python", CUDA_VISIBLE_DEVICES="",
                              TF_CPP_MIN_LOG_LEVEL=2, **nodes.env))
        except subprocess.TimeoutExpired as late:  # by itself it tells the first lines alone
            said = [(late.stderr or b"").decode()] + [log.read_text() for log in sorted(nodes.directory.glob("*.log"))]
            pytest.fail("\n".join([f"no end within {GUARD_S} s", *(text[-3000:] for text in said)]))
    assert done.returncode == 0, done.stderr[-4000:]
    assert "epoch 2: loss" in done.stdout and "'accuracy'" in done.stdout
    assert (tmp_path / "model.keras").stat().st_size > 0
