# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of Keras, with each option: a cluster that changes gives the same bits."""

import json
import pathlib
import subprocess

import pytest

from conftest import SOAK
from elastic import GUARD_S
from program import BUILD, HERE, clean_env, tensorflow_pythons

OPTIONS = {"plain", "weight_decay", "clipnorm", "global_clipnorm", "use_ema", "schedule",
           "accumulation", "loss_scale"}
LIMIT_S = 5 * GUARD_S  # the whole table, most of it TensorFlow's reading of functions: three minutes alone
pytestmark = pytest.mark.timeout(LIMIT_S + GUARD_S)
REFUSED = {"Muon": "does not work with TensorFlow, elastic or not"}  # and the reason


@pytest.fixture(scope="module", params=tensorflow_pythons()[:2 if SOAK else 1],
                ids=lambda p: pathlib.Path(p).parent.parent.name.lstrip("."))
def table(request, tmp_path_factory):
    log = tmp_path_factory.mktemp("optimizers") / "log"
    with open(log, "w+b") as words:
        done = subprocess.run([request.param, str(HERE / "elastic_optimizers.py")],
                              stdout=subprocess.PIPE, stderr=words, timeout=LIMIT_S,
                              env=clean_env(TIDE_BUILD_DIR=BUILD))
    said = log.read_text(errors="replace")
    assert done.returncode == 0, said[-6000:]
    assert "restarted after step" in said  # a server died
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_optimizer_gives_the_same_bits_or_was_refused(table, option):
    assert set(table) == OPTIONS and {"AdamW", "SGD", "Adam"} <= set(table[option])
    for name, outcome in table[option].items():
        assert outcome == "same" or REFUSED.get(name, "no reason") in outcome, (option, name)
