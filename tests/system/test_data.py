# SPDX-License-Identifier: Apache-2.0
"""Iterators of tf.data end at once (docs/tensorflow-stall.md)."""
import pathlib
import statistics
import subprocess

import pytest
from conftest import SOAK
from program import IMPORT_GUARD_S, agent_env, is_newest

PROGRAM = pathlib.Path(__file__).parent / "programs" / "data_ends.py"


def ends(python, *words, **env):
    """How long the program slept for each, in seconds."""
    done = subprocess.run([python, PROGRAM, *map(str, words)], env=agent_env(None, **env), capture_output=True, text=True,
                          timeout=4 * IMPORT_GUARD_S)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


def test_an_iterator_ends_at_once(python):
    """Without the agent's second call most wait until they are 0.63 s old; on a busy machine fewer."""
    assert any(max(ends(python, "one", 5, TIDE_STALLS="keep")) > 0.15 for _ in range(4))
    assert statistics.median(ends(python, "one", 5)) < 0.1


def test_iterators_end_in_several_threads(python):
    if not SOAK and not is_newest(python):
        pytest.skip("with one version; with all under TIDE_SOAK")
    assert len(ends(python, "many", 25)) == 100
