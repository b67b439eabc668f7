# SPDX-License-Identifier: Apache-2.0
"""The program's own work around its steps, and what it is told: one training in this process.

All tests share the cluster and the coordinator; each makes variables and optimizers of its own.
"""

import socket
import sys
import threading

import numpy as np
import pytest

from elastic import GUARD_S, cluster
from peer import wait_until

SLOTS = 2


class Bed:
    """The training, and what it says."""

    def __init__(self, nodes, strategy, coordinator, tf, keras):
        self.nodes, self.strategy, self.coordinator = nodes, strategy, coordinator
        self.tf, self.keras = tf, keras

    def variable(self, value=0.0, dtype="float32"):
        with self.strategy.scope():
            return self.tf.Variable(self.tf.constant(value, dtype))

    def sgd(self, rate=1.0):
        with self.strategy.scope():
            return self.strategy.optimizer(self.keras.optimizers.SGD(rate))

    def epochs(self, *arrays, batch_size=None):
        return iter(self.coordinator.create_epochs(
            arrays, batch_size=batch_size or len(arrays[0]), shuffle=False))

    def done(self, function, *args, **kwargs):
        """The result of a call."""
        result = self.coordinator.schedule(function, args=args, kwargs=kwargs)
        self.coordinator.join()
        return result.fetch()


@pytest.fixture(scope="module")
def bed():
    environ = {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with pytest.MonkeyPatch.context() as patch, cluster(sys.executable, slots=SLOTS) as nodes:
        for name, value in {**environ, **nodes.env}.items():
            patch.setenv(name, value)
        import keras
        import tensorflow as tf

        import threadtide.tensorflow as tide
        strategy = tide.ElasticParameterServerStrategy()
        coordinator = tide.ElasticCoordinator(strategy)
        yield Bed(nodes, strategy, coordinator, tf, keras)
        coordinator.close()


def ones(count=4):
    return np.ones(count, np.float32)


def test_a_learning_rate_that_is_set_is_used(bed):
    weight, sgd = bed.variable(), bed.sgd(1.0)

    def step(batch):
        slope, = next(batch)
        sgd.apply([bed.tf.reduce_mean(slope)], [weight])
        return weight.read_value()

    batch = bed.epochs(ones())
    bed.done(step, batch)
    assert weight.numpy() == -1.0 and int(sgd.iterations.numpy()) == 1  # once for all slots
    sgd.learning_rate = 0.25
    bed.done(step, batch)
    assert weight.numpy() == -1.25 and float(sgd.learning_rate) == 0.25


def test_each_pause_is_in_the_programs_report(bed):
    tf, weight, sgd = bed.tf, bed.variable(), bed.sgd(1.0)

    def step(batch):
        slope, = next(batch)
        sgd.apply([tf.reduce_mean(slope)], [weight])

    batch = bed.epochs(ones())
    bed.done(step, batch)
    before = len(bed.coordinator.report()["pauses_ms"])
    worker, = bed.nodes.start("worker")
    wait_until(lambda: len(bed.strategy.cluster.of("worker", "in")) == 2, "it joins", GUARD_S)
    for _ in range(4):
        bed.done(step, batch)
    bed.nodes.leave("worker", worker.index)
    wait_until(lambda: len(bed.strategy.cluster.of("worker")) == 1, "it leaves", GUARD_S)
    for _ in range(4):
        bed.done(step, batch)
    reports = [bed.coordinator.report()["pauses_ms"] for _ in range(2)]
    assert reports[0] == reports[1] and len(reports[0]) == before + 2


@pytest.mark.parametrize("slots", ["its slots are there", "its slots are not there yet"])
def test_an_optimizer_that_is_not_wrapped_is_refused_with_the_cure(bed, slots):
    tf, keras = bed.tf, bed.keras
    weight = bed.variable()
    with bed.strategy.scope():
        adam = keras.optimizers.Adam(1.0)
        if slots == "its slots are there":
            adam.build([weight])

    def step(batch):
        slope, = next(batch)
        adam.apply([tf.reduce_mean(slope)], [weight])

    with pytest.raises(RuntimeError, match=r"wrap it, as in optimizer = strategy.optimizer\("):
        bed.done(step, bed.epochs(ones()))
    assert weight.numpy() == 0.0


def test_a_loss_scale_that_would_stay_in_the_trace_is_refused(bed):
    tf, keras = bed.tf, bed.keras
    weight = bed.variable()
    with bed.strategy.scope():
        scaled = bed.strategy.optimizer(
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0)))

    def step(batch):
        slope, = next(batch)
        scaled.apply([scaled.scale_loss(tf.reduce_mean(slope))], [weight])

    batch = bed.epochs(ones())
    with pytest.raises(ValueError, match="call optimizer.build"):
        bed.done(step, batch)
    scaled.build([weight])
    bed.done(step, batch)
    assert weight.numpy() == -1.0


def test_what_has_no_numbered_examples_is_refused(bed):
    for source in (bed.tf.data.Dataset.range(4), iter([1]), 3.0):
        with pytest.raises(TypeError, match=r"Examples\(count, load\)"):
            bed.coordinator.create_epochs(source, batch_size=1)
    with pytest.raises(TypeError, match="a RangeDataset|a _RangeDataset"):
        bed.coordinator.create_epochs((ones(), bed.tf.data.Dataset.range(4)), batch_size=1)


def keras_model(bed):
    with bed.strategy.scope():
        model = bed.keras.Sequential([bed.keras.Input((2,)), bed.keras.layers.Dense(
            1, kernel_initializer="ones")])
        model.compile(loss="mse", metrics=["mae"])
    return model


X, Y = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[3.0], [8.0]], np.float32)


def check_model(model, directory):
    """Checks Keras' methods with the initial weights."""
    assert model.predict(X, verbose=0).tolist() == [[3.0], [7.0]]
    assert model.evaluate(X, Y, verbose=0, return_dict=True)["mae"] == 0.5
    model.save(directory / "model.keras")


def test_keras_predicts_evaluates_and_fits_between_steps(bed, tmp_path):
    model = keras_model(bed)
    check_model(model, tmp_path)
    bed.nodes.start("ps")
    wait_until(lambda: len(bed.strategy.cluster.of("ps", "in")) > 1, "it joins", GUARD_S)
    check_model(model, tmp_path)
    with bed.strategy.scope():
        wrapped = bed.strategy.optimizer(bed.keras.optimizers.Adam())
        with pytest.raises(ValueError, match="takes the Keras optimizer itself"):
            model.compile(loss="mse", optimizer=wrapped)
        model.compile(loss="mse", optimizer=bed.keras.optimizers.SGD(0.01))
    history = model.fit(X, Y, epochs=2, verbose=0).history
    assert history["loss"][0] == 0.5 > history["loss"][1]


def test_functions_of_the_program_follow_variables_that_move(bed):
    tf = bed.tf
    weights = [bed.variable([1.0, 2.0]) for _ in range(4)]
    traces = []

    @tf.function
    def inner():
        return tf.add_n([w.read_value() for w in weights])

    @tf.function
    def total(times):
        traces.append(1)
        value = inner()
        for _ in tf.range(times):
            value += weights[0]
        return tf.cond(times > 0, lambda: value + weights[1], lambda: value)

    @tf.function
    def slope():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(total(tf.constant(1)) * weights[0])
        return tape.gradient(value, weights[0])

    assert total(tf.constant(1)).numpy().tolist() == [6.0, 12.0]
    assert slope().numpy().tolist() == [8.0, 16.0]
    # Which variables a new server gets depends on those that other tests have made; from a server
    # that leaves all go.
    homes, servers = {w.device for w in weights}, bed.strategy.cluster.of("ps")
    bed.nodes.start("ps")
    for server in servers:
        bed.nodes.leave("ps", server.index)
    wait_until(lambda: not homes & {w.device for w in weights}, "variables have moved", GUARD_S)
    wait_until(lambda: len(bed.strategy.cluster.of("ps")) == 1, "the others leave", GUARD_S)
    for weight in weights:
        weight.assign([5.0, 6.0])
    assert total(tf.constant(1)).numpy().tolist() == [30.0, 36.0] and len(traces) == 1
    assert slope().numpy().tolist() == [40.0, 48.0]


def test_a_function_is_traced_anew_when_what_it_is_given_differs(bed, capfd):
    tf = bed.tf
    weight, sgd = bed.variable(), bed.sgd(1.0)
    traces = []

    class Model:
        def __init__(self, factor):
            self.factor = factor

        def step(self, batch, scale, rate=1.0):
            traces.append(rate)
            slope, = next(batch)
            sgd.apply_gradients([(tf.reduce_mean(slope) * scale * rate * self.factor, weight)])
            return scale

    batch, one = bed.epochs(ones()), tf.constant(1.0)

    def moved(function, *args, **kwargs):
        before = float(weight.numpy())
        bed.done(function, *args, **kwargs)
        return before - float(weight.numpy())

    assert moved(Model(2.0).step, batch, one) == 2.0
    model = Model(3.0)
    assert moved(model.step, batch, one) == 3.0
    assert moved(model.step, batch, one, rate=2.0) == 6.0
    known = len(traces)
    assert moved(model.step, batch=batch, scale=one, rate=2.0) == 6.0
    known += 1  # by name: another structure
    for scale in (2.0, 3.0, 4.0):  # neither new tensors nor new lambdas are traced again
        assert moved(model.step, batch, tf.constant(scale)) == 3.0 * scale
        calls = [bed.done(lambda x: model.factor * x, np.float32(scale)) for _ in range(2)]
        assert calls == [3.0 * scale] * 2
    assert len(traces) == known
    assert "times, which is slow" not in capfd.readouterr().err
    for number in range(8):
        bed.done(lambda x: x + float(number), one)
    assert "times, which is slow" in capfd.readouterr().err
    with pytest.raises(ValueError, match="one iterator"):
        bed.coordinator.schedule(model.step, args=(batch, bed.epochs(ones())))


def test_a_step_has_what_its_function_closed_over_when_it_was_scheduled(bed):
    tf, batch, traced = bed.tf, bed.epochs(ones()), threading.Event()

    @tf.autograph.experimental.do_not_convert
    def gate():  # the calls behind it are traced once the program has scheduled them all
        assert traced.wait(GUARD_S)
        return tf.constant(0)

    def sums(rates):
        """How far steps move a weight: one with each rate, then two with the last one."""
        weight, sgd = bed.variable(), bed.sgd(1.0)
        rate = last = None

        def step(batch):
            nonlocal last
            last = rate
            slope, = next(batch)
            sgd.apply([tf.reduce_mean(slope) * rate], [weight])

        traced.clear()
        bed.coordinator.schedule(gate)
        for factor, value in rates:
            rate = None  # the next one may get the place in memory
            rate = factor(value)
            bed.coordinator.schedule(step, (batch,))
        bed.coordinator.schedule(step, (batch,))
        traced.set()
        bed.coordinator.join()
        assert last == rates[-1][1]  # what it leaves in the program's names is there
        return -float(weight.numpy())

    assert sums([(float, 1.0), (float, 10.0), (float, 100.0)]) == 211.0
    assert sums([(np.float32, 1.0), (np.float32, 10.0), (np.float32, 100.0)]) == 211.0


def test_a_name_that_a_function_of_the_step_assigns_is_the_programs(bed):
    tf, batch, weight, sgd = bed.tf, bed.epochs(ones()), bed.variable(), None

    def begin():
        nonlocal sgd
        sgd = bed.sgd(1.0)

    def step(batch):
        if sgd is None:
            begin()
        slope, = next(batch)
        sgd.apply([tf.reduce_mean(slope)], [weight])

    bed.done(step, batch)
    assert weight.numpy() == -1.0


def test_steps_and_batches_that_an_error_left_undone_are_the_next(bed, capfd):
    tf, coordinator = bed.tf, bed.coordinator
    weight, sgd = bed.variable(), bed.sgd(1.0)
    poisoned = bed.variable(1.0)

    def step(batch):
        number, = next(batch)
        with tf.control_dependencies([tf.debugging.assert_less(
                number * poisoned, 2.0, "spoilt example")]):
            sgd.apply_gradients([(tf.reduce_mean(tf.pow(10.0, number)), weight)])
        return number

    batch = bed.epochs(np.arange(4, dtype=np.float32), batch_size=1)
    before = coordinator.step
    with pytest.raises(tf.errors.InvalidArgumentError, match="spoilt example"):
        for _ in range(4):
            coordinator.schedule(step, args=(batch,))
        coordinator.join()
    assert coordinator.step == before + 2 and weight.numpy() == -11.0
    poisoned.assign(0.0)
    numbers = [bed.done(step, batch).tolist() for _ in range(2)]
    assert numbers == [[2.0], [3.0]]  # an entry for each example of the batch
    assert coordinator.step == before + 4 and weight.numpy() == -1111.0
    assert "restarted after" not in capfd.readouterr().err


def test_an_assignment_behind_a_step_that_failed_stays_in_front_of_the_steps_that_follow(bed):
    """Also when a server is lost, and all of them are done again."""
    tf, coordinator, batch, held = bed.tf, bed.coordinator, bed.epochs(ones()), threading.Event()
    weight, poisoned, sgd = bed.variable(), bed.variable(0.0), bed.sgd(1.0)

    @tf.autograph.experimental.do_not_convert
    def gate():
        assert held.wait(GUARD_S)
        return tf.constant(0)

    def step(batch):
        slope, = next(batch)
        with tf.control_dependencies([tf.debugging.assert_less(poisoned, 1.0, "spoilt example")]):
            sgd.apply_gradients([(tf.reduce_mean(slope), weight)])

    bed.done(step, batch)
    coordinator.checkpoint()
    poisoned.assign(1.0)
    coordinator.schedule(gate)
    for _ in range(3):
        coordinator.schedule(step, (batch,))
    assigning = threading.Thread(target=weight.assign, args=(100.0,))
    assigning.start()
    wait_until(lambda: len(coordinator._calls) == 5, "the assignment waits behind the steps", GUARD_S)
    held.set()
    with pytest.raises(tf.errors.InvalidArgumentError, match="spoilt example"):
        coordinator.join()
    assigning.join()
    poisoned.assign(0.0)
    for _ in range(3):
        bed.done(step, batch)
    assert weight.numpy() == 97.0
    bed.nodes.start("ps")
    bed.nodes.kill("ps", bed.strategy.variables_in.entry_of(weight).home)
    bed.done(step, batch)
    assert weight.numpy() == 96.0


def test_what_a_step_returns_and_what_it_had_better_not_do(bed, capfd, monkeypatch):
    tf = bed.tf
    weight, counter, sgd = bed.variable(), bed.variable(), bed.sgd(1.0)

    def step(batch):
        slope, = next(batch)
        sgd.apply_gradients([(tf.reduce_mean(slope), weight)])
        return {"each": slope * 2.0, "loss": tf.reduce_mean(slope), "none": None}

    uneven = np.array([1.0, 2.0, 6.0], np.float32)  # slots of two and one
    result = bed.done(step, bed.epochs(uneven))
    assert result["each"].tolist() == [2.0, 4.0, 12.0] and result["none"] is None
    assert result["loss"] == 3.0 and weight.numpy() == -3.0
    assert "past an optimizer" not in capfd.readouterr().err

    def silent(batch):
        slope, = next(batch)
        sgd.apply_gradients([(tf.reduce_sum(slope) / 3.0, weight)])
        tf.cond(slope[0] > 0.0, lambda: counter.assign_add(1.0), lambda: counter.assign_add(0.0))

    monkeypatch.setattr(bed.strategy, "reduction", "sum")
    assert bed.done(silent, bed.epochs(uneven)) is None
    assert weight.numpy() == -6.0
    assert "past an optimizer" in capfd.readouterr().err
    # A new worker prepares with a step's last batch: not with one that has effects.
    counted = counter.numpy()
    worker, = bed.nodes.start(
        "worker", host="::1" if socket.has_dualstack_ipv6() else "127.0.0.1")
    wait_until(lambda: len(bed.strategy.cluster.of("worker", "in")) == 2, "it joins", GUARD_S)
    bed.nodes.leave("worker", worker.index)
    wait_until(lambda: len(bed.nodes.nodes) == len(bed.strategy.cluster.of("ps")) + 1, "it ends",
               GUARD_S)
    assert counter.numpy() == counted


def test_bfloat16_comes_back_from_a_checkpoint(bed, tmp_path):
    from threadtide.tensorflow import checkpoint
    weight = bed.variable([1.5, -2.0], "bfloat16")
    entry = bed.strategy.variables_in.entry_of(weight)
    known = [e.row() for e in bed.strategy.variables_in.entries]
    writer = checkpoint.Checkpoints(tmp_path, 30)
    writer.begin({"step": 1, "variables": known}, bed.strategy.variables_in.read())
    writer.wait()
    value = checkpoint.Checkpoints(tmp_path, 30).latest.value(entry)
    weight.assign([0.0, 0.0])
    weight.assign(value)
    assert weight.numpy().tolist() == [1.5, -2.0]


def test_a_training_goes_on_whose_checkpoints_cannot_be_written(bed, tmp_path, monkeypatch, capfd):
    from threadtide.tensorflow import checkpoint
    tf, coordinator = bed.tf, bed.coordinator
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(bed.strategy, "checkpoints",
                        checkpoint.Checkpoints(tmp_path / "file/below", 3600))
    weight, sgd = bed.variable(), bed.sgd(1.0)

    def step(batch):
        slope, = next(batch)
        sgd.apply([tf.reduce_mean(slope)], [weight])

    batch = bed.epochs(ones())
    sums = bed.variable([0.0, 0.0])
    more = np.ones(2, np.float32)
    sums.assign_add(more)
    bed.done(step, batch)
    with pytest.raises(OSError, match="no checkpoint of step .*Not a directory"):
        coordinator.checkpoint()
    told = coordinator.report()
    assert told["checkpoint_step"] == coordinator.step and "Not a dir" in told["checkpoint_error"]
    bed.done(step, batch)
    # The program's assignments between its steps are lost no more than the steps are.
    sgd.learning_rate = 0.5
    sums.assign_add(more)
    more += 10.0
    bed.done(step, batch)
    bed.nodes.start("ps")
    bed.nodes.kill("ps", bed.strategy.variables_in.entry_of(weight).home)
    sgd.learning_rate = 0.25
    assert bed.done(tf.function(lambda: sgd.learning_rate * 1.0)) == 0.25
    bed.done(step, batch)
    assert weight.numpy() == -2.75 and sums.numpy().tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="shape"):
        sums.assign([1.0])
    assert f"restarted after step {told['checkpoint_step']}" in capfd.readouterr().err


def test_a_step_that_fails_after_every_restart_is_told(bed, monkeypatch, capfd):
    from threadtide.tensorflow import steps
    tf = bed.tf
    weight, sgd = bed.variable(), bed.sgd(1.0)
    apply = steps.SyncStep.apply

    def lost(self, weights, device, executor):
        if self.per_example == [False, False]:  # step() with two results
            raise tf.errors.UnavailableError(None, None, "failed to connect")
        return apply(self, weights, device, executor)

    monkeypatch.setattr(steps.SyncStep, "apply", lost)

    def step(batch, results):
        slope, = next(batch)
        loss = tf.reduce_mean(slope)
        sgd.apply([loss], [weight])
        return [loss] * results

    batch = bed.epochs(ones())
    bed.coordinator.schedule(step, args=(batch, 1))  # done again after each restart
    with pytest.raises(tf.errors.UnavailableError, match="failed to connect"):
        bed.coordinator.schedule(step, args=(batch, 2))
        bed.coordinator.join()
    assert weight.numpy() == -1.0
    assert 1 < capfd.readouterr().err.count("restarted after step") < 20


def test_addresses_with_colons_stand_in_brackets(bed):
    from threadtide.tensorflow import strategy
    assert strategy._own_address({"POD_IP": "fd00::7", "TIDE_PORT": "2222"}) == "[fd00::7]:2222"
    if socket.has_dualstack_ipv6():
        assert strategy._own_address({"POD_IP": "::1"}).startswith("[::1]:")


def test_a_training_without_servers_ends_with_its_reason(bed):
    tf, weight = bed.tf, bed.variable()
    bed.coordinator.checkpoint()  # without one it ends for that reason
    for node in bed.strategy.cluster.of("ps"):
        bed.nodes.kill("ps", node.index)
    wait_until(lambda: not bed.strategy.cluster.of("ps"), "they are lost", GUARD_S)
    result = bed.coordinator.schedule(lambda: 1)
    closing = threading.Thread(target=bed.coordinator.close, daemon=True)
    closing.start()
    closing.join(GUARD_S)
    assert not closing.is_alive()
    for ask in (result.fetch, bed.coordinator.join, bed.coordinator.checkpoint):
        with pytest.raises(RuntimeError, match="no parameter server is left"):
            ask()
    with pytest.raises(tf.errors.OpError):
        weight.assign(1.0)
