# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow program that computes what it is told: each line of its stdin is a statement of Python.

    serve.py                  says "begun"; `say(…)` in a statement answers
    serve.py train            trains by itself in several ways, and says "trained"
    serve.py say EXPRESSION   says what it comes to
"""
import hashlib
import os
import pathlib
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import elsewhere, say, serve, timed  # noqa: E402, F401 (statements use them)

x = numpy.random.default_rng(1).standard_normal((32, 64), dtype="float32")


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal((64, 64), (1, 2)))
        self.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec((None, 64))])
    def answer(self, x):
        return self.inner(x)

    @tf.function
    def inner(self, x):
        return tf.cond(tf.reduce_sum(x) > 1e9, lambda: x, lambda: tf.nn.softmax(x @ self.w))

    @tf.function
    def counting(self, x):
        self.count.assign_add(1)
        return self.inner(x)

    @tf.function
    def counts_in_loop(self, x):
        return tf.while_loop(lambda i: i < 2, lambda i: (self.count.assign_add(1) * 0 + i + 1,), (0,))

    @tf.function
    def counts_in_branch(self, x):
        return tf.cond(tf.reduce_sum(x) < 1e9, lambda: self.count.assign_add(1) * 1, lambda: 0)

    @tf.function
    def counts_in_map(self, x):
        return tf.map_fn(lambda row: tf.cast(self.count.assign_add(1), tf.float32) + row[0], x)

    @tf.function
    def counts_in_reduce(self, x):
        return tf.data.Dataset.range(2).reduce(tf.constant(0), lambda n, _: n + self.count.assign_add(1))

    @tf.function
    def failing(self, x):
        return tf.ensure_shape(tf.boolean_mask(x, self.inner(x)[:, 0] > 2), (1, 64))

    @tf.function
    def step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.inner(x) ** 2)
        self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
        return loss

    def step_outside(self, x):
        """The tape, and what changes the weights, are in no function."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.inner(x) ** 2)
        gradient = tape.gradient(loss, self.w)
        self.w.assign_sub(0.1 * gradient)
        return loss


model, spare = Model(), Model()


def answer():
    return model.answer(x)


def loaded():
    """A signature of the model, as servers load it."""
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder, signatures=model.answer)
        one = tf.saved_model.load(folder)
    signature = one.signatures["serving_default"]
    signature.model = one
    return signature


def session(trains=False):
    """A session of TensorFlow 1, and what it is asked for."""
    with tf.Graph().as_default():
        inputs = tf.compat.v1.placeholder("float32", (None, 64))
        w = tf.compat.v1.get_variable("w", initializer=x[:1].T @ x[:1], use_resource=trains)
        outputs = tf.nn.softmax(inputs @ w)
        asked = outputs
        if trains:
            loss = tf.reduce_mean(outputs ** 2)
            with tf.control_dependencies([tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss)]):
                asked = tf.identity(loss)
        one = tf.compat.v1.Session()
        one.run(tf.compat.v1.global_variables_initializer())
    return lambda: one.run(asked, {inputs: x})


def keras_model():
    made = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64), tf.keras.layers.Dropout(0.1)])
    made.compile("adam", "mse")
    return made


def fails():
    try:
        model.failing(x)
    except tf.errors.InvalidArgumentError:
        return True


def digest(call):
    return hashlib.sha256(numpy.asarray(call()).tobytes()).hexdigest()[:16]


if sys.argv[1:2] == ["say"]:
    say("answer", eval(sys.argv[2]))
elif sys.argv[1:2] == ["train"]:
    time.sleep(1)  # the daemon's wish has arrived, or comes in the middle
    trained, run = keras_model(), session(trains=True)
    for _ in range(4):
        model.step_outside(x)
        trained.fit(x, x, epochs=2, verbose=0, validation_data=(x, x))
        trained.predict(x, verbose=0)
        [(model.step(x), run(), answer()) for _ in range(20)]
    say("trained")
    serve(globals())
else:
    serve(globals())
