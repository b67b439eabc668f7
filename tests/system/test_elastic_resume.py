# SPDX-License-Identifier: Apache-2.0
"""A new chief goes on where the last one was."""

import json
import subprocess

from elastic import GUARD_S, cluster
from program import HERE, clean_env, tensorflow_pythons

PYTHON = tensorflow_pythons()[0]


def run(nodes, directory, stop, log):
    with open(log, "w+") as words:
        done = subprocess.run(
            [PYTHON, str(HERE / "elastic_phases.py"), str(directory), str(stop)],
            stdout=subprocess.PIPE, stderr=words, text=True, timeout=2 * GUARD_S,
            env=clean_env(TF_CPP_MIN_LOG_LEVEL=2, **nodes.env))
        words.seek(0)
        told = words.read()
    assert done.returncode == 0, told[-4000:]
    return (json.loads(done.stdout) if done.stdout else None), told


def down(steps):
    """Where a weight is after so many steps."""
    weight, velocity = 0.0, 0.0
    for step in range(steps):
        velocity = 0.5 * velocity - 0.5 ** step
        weight += velocity
    return weight


def test_what_the_program_creates_and_assigns_is_what_it_was(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    with cluster(PYTHON) as nodes:
        run(nodes, checkpoints, 4, tmp_path / "log1")
        # Only the second layer is built in the next step; the first, unused, is in its checkpoint.
        run(nodes, checkpoints, 5, tmp_path / "log2")
        weights, told = run(nodes, checkpoints, 0, tmp_path / "log3")
    assert "resuming after step 5" in told and "are not there yet" in told
    assert weights == {"count": 8, "first": down(5), "second": down(2)}
    # close() wrote the last checkpoint: the same program has nothing left to do.
    with cluster(PYTHON) as nodes:
        again, told = run(nodes, checkpoints, 0, tmp_path / "log4")
    assert "resuming after step 7" in told and again == weights
