# SPDX-License-Identifier: Apache-2.0
"""model.fit() on an elastic cluster, for test_elastic_fit.py.

elastic_fit.py WHAT DIRECTORY prints a line of JSON. Three of them do the same training, whose
checkpoints are in DIRECTORY: `fixed` with one worker and one server; `changed` while workers and servers
come, leave and die, until its own process does, in the middle of an epoch; `resumed` is that program
run again, on another cluster. `plain` compares with Keras without us, in each way that data may come,
and asks for all that is refused.
"""

import hashlib
import json
import os
import sys
import threading

os.environ.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2")

from elastic import GUARD_S, cluster
from peer import wait_until

EXAMPLES, BATCH, EPOCHS, SIZE, CLASSES = 200, 32, 4, 12, 5
DIES, READS = (2, 3), (3, 2)  # epoch, batch: the process dies, a callback reads the weights


def say(**what):
    print(json.dumps(what), flush=True)


class Bed:
    def __init__(self, nodes, **options):
        os.environ.update(nodes.env)
        import keras
        import numpy as np
        import tensorflow as tf

        import threadtide.tensorflow as tide
        self.nodes, self.keras, self.np, self.tf, self.tide = nodes, keras, np, tf, tide
        self.strategy = tide.ElasticParameterServerStrategy(**options)
        self.coordinator = tide.ElasticCoordinator(self.strategy)
        rng = np.random.default_rng(1)
        self.x = rng.standard_normal((EXAMPLES, SIZE), np.float32)
        self.y = self.x[:, :CLASSES].argmax(axis=1)

    def serve(self, **indices):
        """Waits until exactly these nodes serve: serve(worker=[0, 2])."""
        wait_until(lambda: all([n.index for n in self.strategy.cluster.of(role, "in")] == wanted
                               for role, wanted in indices.items()), f"nodes {indices}", GUARD_S)

    def digest(self):
        digest = hashlib.sha256()
        for entry in self.strategy.variables_in.entries:
            digest.update(entry.variable.numpy().tobytes())
        return digest.hexdigest()


# The training that is the same whatever happens.

def train(bed, changes):
    """Trains while changes[epoch, batch]() happen at the end of these batches."""
    keras = bed.keras
    keras.utils.set_random_seed(7)
    with bed.strategy.scope():
        model = keras.Sequential([
            keras.Input((SIZE,)), keras.layers.Dense(24, activation="relu"), keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3, seed=3), keras.layers.Dense(CLASSES)])
        model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")])
    now, read = [0], []

    def at_batch(batch, logs):
        assert set(logs) == {"loss", "accuracy", "top"}
        change = changes.get((now[0], batch))
        if change:
            change()
        if (now[0], batch) == READS:
            read.append(hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest())

    changing = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: now.__setitem__(0, epoch), on_train_batch_end=at_batch)
    history = model.fit(
        bed.x, bed.y, batch_size=BATCH, epochs=EPOCHS, verbose=0, class_weight={0: 2.0},
        validation_data=(bed.x[:50], bed.y[:50]),
        callbacks=[changing, keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)])
    said = {"digest": bed.digest(), "history": history.history, "epochs": history.epoch, "read": read,
            "steps": bed.coordinator.step}
    return model, said


def fixed(bed, directory):
    say(**train(bed, {})[1])
    bed.coordinator.close()


def changed(bed, directory):
    nodes = bed.nodes

    def end():
        bed.coordinator.checkpoint()
        say(died=bed.coordinator.step)
        os._exit(0)

    train(bed, {
        (0, 1): lambda: (nodes.start("worker", 2), bed.serve(worker=[0, 1, 2])),
        (0, 4): lambda: (nodes.leave("worker", 1), nodes.start("ps"), bed.serve(worker=[0, 2], ps=[0, 1])),
        (1, 1): lambda: (nodes.kill("worker", 0), bed.serve(worker=[2])),
        (1, 5): lambda: (nodes.leave("ps", 0), bed.serve(ps=[1])),
        DIES: end})


def resumed(bed, directory):
    nodes = bed.nodes
    model, said = train(bed, {
        (2, 5): lambda: (nodes.start("worker"), nodes.start("ps"), bed.serve(worker=[0, 1], ps=[0, 1])),
        READS: lambda: nodes.kill("ps", 0)})
    bed.serve(ps=[1])
    leaves = threading.Timer(0.05, nodes.kill, ("worker", 0))
    leaves.start()
    predicted = [model.predict(bed.x, batch_size=8, verbose=0) for _ in range(2)]
    evaluated = model.evaluate(bed.x, bed.y, batch_size=8, verbose=0, return_dict=True)
    leaves.join()
    bed.serve(worker=[1])
    assert bed.digest() == said["digest"]
    bed.coordinator.close()
    # Keras alone, with the variables in this process.
    alone = model.predict(bed.x, verbose=0)
    assert all(bed.np.allclose(p, alone, atol=1e-5) for p in predicted)
    again = model.evaluate(bed.x, bed.y, verbose=0, return_dict=True)
    assert all(bed.np.isclose(evaluated[name], again[name], rtol=1e-4) for name in again), (evaluated, again)
    say(**said)


# Beside Keras without us.

def small(bed, elastic, weights=None, **compiled):
    keras = bed.keras
    model = keras.Sequential([
        keras.Input((SIZE,)), keras.layers.Dense(6, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01)),
        keras.layers.Dense(1, activation="sigmoid")])
    model.compile(**{"optimizer": keras.optimizers.SGD(0.5, momentum=0.9, use_ema=True), "loss": "binary_crossentropy",
                     "metrics": [keras.metrics.AUC(name="auc"), "mae"], "weighted_metrics": ["accuracy"], **compiled})
    if weights:
        model.set_weights(weights)
    return model


def compare(bed, elastic_data, plain_data, **more):
    """Fits two models that begin with the same weights; what differs."""
    fit = {"epochs": 3, "verbose": 0, "shuffle": False, **more}
    plain = small(bed, False)
    with bed.strategy.scope():
        elastic = small(bed, True, plain.get_weights())
    ours, theirs = ([], []), ([], [])
    for model, (data, options), (histories, batches) in (
            (plain, plain_data, theirs), (elastic, elastic_data, ours)):
        stops = bed.keras.callbacks.EarlyStopping("loss", min_delta=100.0, patience=1)
        notes = bed.keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: batches.append(dict(logs)))
        histories.append(model.fit(*data, **{**fit, **options}, callbacks=[stops, notes]).history)
    wrong = []
    if len(ours[1]) != len(theirs[1]):
        wrong.append(f"{len(ours[1])} batches, not {len(theirs[1])}")
    for a, b in [*zip(ours[0], theirs[0]), *zip(ours[1], theirs[1])]:
        wrong += [f"{name}: {a.get(name)}, not {b[name]}" for name in b
                  if not bed.np.allclose(a.get(name, bed.np.nan), b[name], rtol=2e-3, atol=1e-5)]
    wrong += ["weights" for a, b in zip(elastic.get_weights(), plain.get_weights())
              if not bed.np.allclose(a, b, rtol=1e-3, atol=1e-5)]
    return wrong[:5]


def sources(bed):
    np, tf, x = bed.np, bed.tf, bed.x
    y = (x[:, 0] > 0).astype(np.float32)[:, None]
    weight = np.linspace(0.5, 1.5, EXAMPLES).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    split = {"sample_weight": weight, "validation_split": 0.25, "batch_size": BATCH}

    def batches():
        while True:
            yield from dataset

    load = bed.tide.Examples(EXAMPLES, lambda numbers: (tf.gather(x, numbers), tf.gather(y, numbers)))
    steps = {"steps_per_epoch": 5}
    return {
        "arrays": compare(bed, ((x, y), split), ((x, y), split)),
        "data set": compare(bed, ((dataset,), {}), ((dataset,), {}), validation_data=dataset, class_weight={1: 2.0}),
        "callable": compare(bed, ((batches,), steps), ((batches(),), steps), initial_epoch=1),
        "examples": compare(bed, ((load,), {"batch_size": BATCH}), ((x, y), {"batch_size": BATCH})),
    }


def largest(keras):
    """A metric that is no sum."""
    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.most = self.add_variable((), "zeros", name="most")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.most.assign(keras.ops.maximum(self.most, keras.ops.max(y_pred)))

        def result(self):
            return self.most

    return Largest()


def any_metric(bed):
    """The values of a metric that is no sum: of two evaluations, one that meets three batches, and of the predictions."""
    with bed.strategy.scope():
        model = small(bed, True, metrics=[largest(bed.keras)])
    data = bed.x[:80], bed.np.ones((80, 1))
    found = [model.evaluate(*data, batch_size=size, verbose=0, return_dict=True)["largest"] for size in (32, 80)]
    return [*found, float(model.predict(bed.x[:80], verbose=0).max())]


def counter(keras, **aggregations):
    """A layer that counts its calls in a variable of each aggregation."""
    class Counts(keras.layers.Layer):
        def build(self, shape):
            self.counts = [self.add_weight(shape=(), initializer="zeros", trainable=False, name=name, aggregation=how)
                           for name, how in aggregations.items()]

        def call(self, inputs, training=False):
            for count in self.counts if training else ():
                count.assign_add(1.0)
            return inputs

    return Counts()


def kept(bed, directory):
    """Returns what callbacks and variables of a layer's own keep of a fit() of two epochs of three batches."""
    keras, np = bed.keras, bed.np
    x, y, best = bed.x[:90], bed.y[:90, None] * 1.0, f"{directory}/best.weights.h5"
    counts = counter(keras, first="only_first_replica", mean="mean")
    with bed.strategy.scope():
        model = keras.Sequential([keras.Input((SIZE,)), counts, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1.0), "mse", metrics=["mae"])
    history = model.fit(x, y, epochs=4, verbose=0, validation_data=(x, y), callbacks=[
        keras.callbacks.ModelCheckpoint(best, save_weights_only=True, save_best_only=True),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=1e9, factor=0.5),
        keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)]).history["val_loss"]  # it diverges
    restored, rate = model.get_weights(), float(model.optimizer.learning_rate)
    model.load_weights(best)  # the rate of that epoch, too
    return {"epochs": len(history), "diverged": history[1] > history[0], "rate": rate,
            "best": [bool((a == b).all()) for a, b in zip(restored, model.get_weights())],
            "counts": [float(count) for count in counts.counts],
            "on batch": len(model.test_on_batch(x, y)), "predicted": list(model.predict_on_batch(x[:8]).shape),
            "finite": bool(np.isfinite(restored[-1]).all())}


# Refusals.

def refusals(bed):
    """{what: its error}, and what was done anyway."""
    from threadtide.tensorflow import fit as elastic_fit
    keras, tf, np, x = bed.keras, bed.tf, bed.np, bed.x
    y = (x[:, :1] > 0).astype(np.float32)

    def compiled(layers=(), **options):
        with bed.strategy.scope():
            model = keras.Sequential([keras.Input((SIZE,)), *layers, keras.layers.Dense(1)])
            model.compile(**{"optimizer": "sgd", "loss": "mse", **options})
        return model

    def masked():
        with bed.strategy.scope():
            model = keras.Sequential([keras.Input((SIZE,)), keras.layers.Embedding(9, 2, mask_zero=True),
                                      keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(np.ones((8, SIZE)), np.ones((8, SIZE, 1)), verbose=0)

    def wrapped():
        with bed.strategy.scope():
            optimizer = bed.strategy.optimizer(keras.optimizers.SGD())
        compiled(optimizer=optimizer)

    def outside():
        with bed.strategy.scope():
            model = keras.Sequential([keras.Input((SIZE,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(x, y, verbose=0)

    def fit(layers=(), data=(x, y), options=None, **compile_options):
        return lambda: compiled(layers, **compile_options).fit(*data, **{"verbose": 0, **(options or {})})

    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    unknown = dataset.filter(lambda *_: True)
    asked = {
        "run_eagerly": fit(run_eagerly=True),
        "jit_compile": fit(jit_compile=True),
        "steps_per_execution": fit(steps_per_execution=2),
        "loss": fit(loss=keras.losses.MeanSquaredError(reduction="sum")),
        "loss of a batch": fit(loss="dice"),
        "no optimizer": fit(optimizer=None),
        "wrapped optimizer": wrapped,
        "activity_regularizer": fit([keras.layers.Dense(2, activity_regularizer="l2")]),
        "synchronized": fit([keras.layers.BatchNormalization(synchronized=True)]),
        "shuffle": fit(options={"shuffle": "batch"}),
        "backup": fit(options={"callbacks": [keras.callbacks.BackupAndRestore("backup")]}),
        "unknown size": fit(data=(unknown,)),
        "endless": fit(data=(dataset.repeat(),)),
        "not batched": lambda: elastic_fit._arrays((np.ones(3), np.ones(2))),
        "sparse": fit(data=(dataset.map(lambda a, b: (tf.sparse.from_dense(a), b)),)),
        "metric": fit(metrics=[largest(keras)]),
        "assigns": fit([counter(keras, count="none")]),
        "mask": masked,
        "outside": outside,
        "train_on_batch": lambda: compiled().train_on_batch(x, y),
    }
    said, before = {}, bed.coordinator.step
    for name, ask in asked.items():
        try:
            ask()
            said[name] = "done"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said, bed.coordinator.step - before


def plain(bed, directory):
    compared = sources(bed)
    said, steps = refusals(bed)
    bed.strategy.mode = "async"
    said["async"] = said["reduction"] = "done"
    try:
        with bed.strategy.scope():
            model = small(bed, True)
        model.fit(bed.x, bed.y[:, None], verbose=0)
    except ValueError as error:
        said["async"] = f"ValueError: {error}"
    bed.strategy.mode, bed.strategy.reduction = "sync", "sum"
    try:
        model.fit(bed.x, bed.y[:, None], verbose=0)
    except ValueError as error:
        said["reduction"] = f"ValueError: {error}"
    bed.strategy.reduction = "mean"
    largest_of, keeps = any_metric(bed), kept(bed, directory)
    bed.coordinator.close()
    try:
        model.fit(bed.x, bed.y[:, None], verbose=0)
    except RuntimeError as error:
        said["closed"] = f"RuntimeError: {error}"
    say(compared=compared, refused=said, steps=steps, largest=largest_of, kept=keeps)


def main(what, directory):
    with cluster(sys.executable) as nodes:
        options = {"checkpoint_dir": directory, "checkpoint_interval_s": 3600} if directory else {}
        globals()[what](Bed(nodes, **options), directory)


main(sys.argv[1], sys.argv[2])
