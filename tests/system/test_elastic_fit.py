# SPDX-License-Identifier: Apache-2.0
"""Keras' fit(), evaluate() and predict() on a cluster that changes."""

import json
import pathlib
import subprocess

import pytest

from conftest import SOAK
from elastic import GUARD_S
from program import BUILD, HERE, clean_env, tensorflow_pythons

pytestmark = pytest.mark.timeout(4 * GUARD_S)
STEPS_PER_EPOCH, EPOCHS, DIED = 7, 4, 18  # of elastic_fit.py

# Refusals, and words of their messages.
REFUSED = {
    "run_eagerly": "without run_eagerly",
    "jit_compile": "jit_compile=False",
    "steps_per_execution": "steps_per_execution=1",
    "loss": "must be 'sum_over_batch_size'",
    "no optimizer": "with an optimizer",
    "wrapped optimizer": "takes the Keras optimizer itself",
    "loss of a batch": "reckoned over a whole batch",
    "activity_regularizer": "sum over a batch",
    "synchronized": "leave it out",
    "shuffle": "True or False",
    "backup": "leave BackupAndRestore out",
    "unknown size": "say steps_per_epoch",
    "endless": "needs steps_per_epoch",
    "not batched": "examples in its first dimension",
    "sparse": "dense tensors, not a SparseTensor",
    "metric": "largest/most is no sum over examples",
    "assigns": "count, and each slot would give it another value",
    "mask": "output has a mask",
    "outside": "outside of strategy.scope()",
    "train_on_batch": "call fit()",
    "async": "must be sync, not async",
    "reduction": "reduction='mean'",
    "closed": "before close()",
}


class Program:
    def __init__(self, python, what, directory, log):
        self._log = log
        with open(log, "w+b") as words:
            self._process = subprocess.Popen(
                [python, str(HERE / "elastic_fit.py"), what, str(directory)], stdout=subprocess.PIPE, stderr=words,
                text=True, env=clean_env(TIDE_BUILD_DIR=BUILD))

    def said(self):
        try:
            output = self._process.communicate(timeout=2 * GUARD_S)[0]
        finally:
            self.kill()
        assert self._process.returncode == 0, self.words()[-6000:]
        return json.loads(output.splitlines()[-1])

    def kill(self):
        self._process.kill()
        self._process.wait()

    def words(self):
        return pathlib.Path(self._log).read_text(errors="replace")


@pytest.fixture(scope="module", params=tensorflow_pythons()[:2 if SOAK else 1],
                ids=lambda p: pathlib.Path(p).parent.parent.name.lstrip("."))
def said(request, tmp_path_factory):
    """{what: (what elastic_fit.py said, its log)}, two at a time."""
    there = tmp_path_factory.mktemp("fit")

    def begin(what, directory):
        return Program(request.param, what, there / directory, there / f"{what}.log")

    plain = begin("plain", "c")
    try:
        answers = {}
        for what, directory in (("fixed", "a"), ("changed", "b"), ("resumed", "b")):
            program = begin(what, directory)
            answers[what] = program.said(), program.words()
        return {**answers, "plain": (plain.said(), plain.words())}
    finally:
        plain.kill()


def test_a_cluster_that_changes_and_a_chief_that_resumes_give_the_same_bits(said):
    (fixed, _), (changed, _), (resumed, log) = said["fixed"], said["changed"], said["resumed"]
    assert fixed["steps"] == resumed["steps"] == STEPS_PER_EPOCH * EPOCHS
    assert fixed["epochs"] == [0, 1, 2, 3] and len(fixed["history"]["val_loss"]) == EPOCHS
    assert changed["died"] == DIED  # in the third epoch
    assert f"resuming after step {DIED}" in log and "fit() goes on in epoch 2" in log
    assert "restarted after step" in log  # a server died
    assert resumed["digest"] == fixed["digest"]  # weights, optimizer, metrics, averages of batch normalisation
    # A callback read the weights as the server died.
    assert len(fixed["read"]) == 1 and resumed["read"] == fixed["read"]


def test_history_of_the_epochs_after_a_resume_is_that_of_a_fixed_cluster(said):
    fixed, resumed = said["fixed"][0]["history"], said["resumed"][0]["history"]
    assert said["resumed"][0]["epochs"] == [2, 3]
    assert resumed == {name: values[2:] for name, values in fixed.items()}
    assert fixed["loss"][-1] < fixed["loss"][0]


def test_fit_does_what_keras_does_alone_wherever_the_data_come_from(said):
    assert said["plain"][0]["compared"] == dict.fromkeys(("arrays", "data set", "callable", "examples"), [])


def test_evaluate_takes_a_metric_that_cannot_be_added(said):
    whole, parts, predicted = said["plain"][0]["largest"]
    assert whole == parts == pytest.approx(predicted, abs=1e-6)


def test_callbacks_stop_save_and_restore_and_a_layer_counts_as_it_says(said):
    # The learning rate is far too high: the first epoch is the best one, the second one the last.
    assert said["plain"][0]["kept"] == {
        "epochs": 2, "diverged": True, "rate": 0.5, "best": [True] * 4, "counts": [3.0, 3.0], "on batch": 2,
        "predicted": [8, 1], "finite": True}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_cannot_be_is_refused_with_the_cure(said, what):
    message = said["plain"][0]["refused"][what]
    assert REFUSED[what] in message and message.startswith(("ValueError: ", "RuntimeError: "))


def test_nothing_that_is_refused_was_done_in_part(said):
    assert set(said["plain"][0]["refused"]) == set(REFUSED) and said["plain"][0]["steps"] == 0
