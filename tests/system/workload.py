# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow program that does what the lines on its standard input say, for program.py.

It knows nothing of Threadtide but for the operations `state` and `progress`, which call the agent's
in-process table as libtide does. One JSON object a line in, one out; training goes on between the
lines after `run`.
"""

import ctypes
import hashlib
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

BATCH = 64
signals_seen = []


def tids():
    return sorted(int(t) for t in os.listdir("/proc/self/task"))


# ---- the agent's table, src/agent/program_api.h ----

class AgentState(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint32) for n in ("max", "target", "active", "allowed_mcpu", "source",
                                               "frozen")] + [("generation", ctypes.c_uint64)]


class AgentTable(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t),
                ("get", ctypes.CFUNCTYPE(None, ctypes.POINTER(AgentState))),
                ("set_local", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32)),
                ("freeze", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
                ("on_change", ctypes.c_void_p),
                ("progress", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64,
                                              ctypes.c_char_p))]


def agent_table():
    return AgentTable.in_dll(ctypes.CDLL(None), "tide_agent_program_api")


def op_state():
    state = AgentState()
    agent_table().get(ctypes.byref(state))
    return {n: getattr(state, n) for n, _ in AgentState._fields_}


def op_freeze(on):
    return agent_table().freeze(on)


# ---- models: SGD on random numbers from a fixed seed, without Keras (it doubles the start) ----

def mlp(tf, rng):
    x = rng.standard_normal((BATCH, 512), dtype="float32")
    shapes = [(512, 512), (512, 256), (256, 10)]

    def forward(x, w):
        return tf.nn.relu(tf.nn.relu(x @ w[0]) @ w[1]) @ w[2]
    return x, shapes, forward


def cnn(tf, rng):
    x = rng.standard_normal((BATCH, 16, 16, 3), dtype="float32")
    shapes = [(3, 3, 3, 16), (3, 3, 16, 32), (4 * 4 * 32, 10)]

    def forward(x, w):
        for kernel in w[:2]:
            x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")), 2, 2, "SAME")
        return tf.reshape(x, (BATCH, -1)) @ w[2]
    return x, shapes, forward


def lstm(tf, rng):
    x = rng.standard_normal((BATCH, 8, 32), dtype="float32")
    shapes = [(32 + 64, 4 * 64), (64, 10)]

    def forward(x, w):
        h = c = tf.zeros((BATCH, 64))
        for t in tf.range(8):
            i, f, g, o = tf.split(tf.concat([x[:, t], h], 1) @ w[0], 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
        return h @ w[1]
    return x, shapes, forward


def attention(tf, rng):
    x = rng.standard_normal((BATCH, 16, 64), dtype="float32")
    shapes = [(64, 64)] * 3 + [(64, 10)]

    def forward(x, w):
        q, k, v = (tf.einsum("btd,de->bte", x, m) for m in w[:3])
        a = tf.nn.softmax(tf.einsum("bte,bse->bts", q, k) / 8.0)
        return tf.reduce_mean(tf.einsum("bts,bse->bte", a, v), 1) @ w[3]
    return x, shapes, forward


def inference(tf, rng):
    x = rng.standard_normal((BATCH, 512), dtype="float32")

    def forward(x, w):
        for matrix in w:
            x = tf.nn.relu(x @ matrix)
        return x
    return x, [(512, 512)] * 6, forward


class Training:
    def __init__(self, tf, build, jit=False):
        import numpy as np
        rng = np.random.default_rng(7)
        x, shapes, forward = build(tf, rng)
        self.x = tf.constant(x)
        self.y = tf.constant(rng.integers(0, 10, BATCH))
        self.first = [rng.standard_normal(s, dtype="float32") / np.prod(s[:-1]).astype("float32") ** 0.5
                      for s in shapes]
        self.weights = [tf.Variable(w) for w in self.first]
        self.forward = forward
        trained = [] if build is inference else self.weights

        # jit_compile=None is the default; False would forbid XLA.
        @tf.function(jit_compile=True if jit else None)
        def step(x, y):
            with tf.GradientTape() as tape:
                logits = forward(x, self.weights)
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            for w, g in zip(trained, tape.gradient(loss, trained)):
                w.assign_sub(0.02 * g)
            return loss
        self._step = step

    def reset(self):
        for variable, value in zip(self.weights, self.first):
            variable.assign(value)

    def step(self):
        return float(self._step(self.x, self.y))

    def digest(self):
        """Hashes every bit that was computed: the weights, and what the model makes of its input."""
        made = [*self.weights, self.forward(self.x, self.weights)]
        return hashlib.sha256(b"".join(m.numpy().tobytes() for m in made)).hexdigest()


# ---- operations: the answer is their return value ----

class Program:
    def __init__(self):
        self.tf = None
        self.trainings = {}
        self.training = None
        self.losses = None  # of `run`, while it goes on

    def op_import(self, intra=0, inter=0, own_signal=0):
        if own_signal:
            signal.signal(own_signal, lambda number, frame: signals_seen.append(number))
        import tensorflow as tf
        if intra:
            tf.config.threading.set_intra_op_parallelism_threads(intra)
        if inter:
            tf.config.threading.set_inter_op_parallelism_threads(inter)
        before = tids()
        tf.constant(1.0) + 1.0
        self.tf = tf
        return {"version": tf.__version__, "tids": [t for t in tids() if t not in before]}

    def op_model(self, name, jit=False):
        """Selects a model with its weights as at first."""
        key = name, jit
        if key not in self.trainings:
            self.trainings[key] = Training(self.tf, globals()[name], jit)
        self.training = self.trainings[key]
        self.training.reset()

    def op_steps(self, n):
        return [self.training.step().hex() for _ in range(n)]

    def op_digest(self):
        return self.training.digest()

    def op_run(self):
        self.losses = []

    def op_stop(self):
        losses, self.losses = self.losses, None
        return losses

    def op_branches(self, n):
        """@n rounds of eight branches that the inter-op pool may run side by side."""
        tf = self.tf

        @tf.function
        def wide(x):
            ys = [x + float(i) for i in range(8)]
            for _ in range(6):
                ys = [tf.linalg.matmul(y, y) * 1e-3 for y in ys]
            return tf.add_n(ys)
        x = tf.ones((48, 48))
        for _ in range(n):
            y = wide(x)
        return float(y[0, 0])

    def op_dataset(self, private=0):
        """A parallel tf.data pipeline: the sum of what came out."""
        tf = self.tf
        ds = tf.data.Dataset.range(400).map(lambda i: tf.reduce_sum(tf.ones((64, 64))) + tf.cast(
            i, tf.float32), num_parallel_calls=4).shuffle(64, seed=1).batch(10).prefetch(4)
        if private:
            options = tf.data.Options()
            options.threading.private_threadpool_size = private
            ds = ds.with_options(options)
        return sum(float(tf.reduce_sum(b)) for b in ds)

    def op_session(self, n, own_threads=0):
        """The Session API, with a pool of its own when @own_threads is given."""
        tf = self.tf
        v1 = tf.compat.v1
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, (256, 256))
            y = tf.reduce_sum(tf.linalg.matmul(x, x))
            config = v1.ConfigProto(intra_op_parallelism_threads=own_threads,
                                    inter_op_parallelism_threads=own_threads,
                                    use_per_session_threads=own_threads > 0)
            with v1.Session(config=config) as session:
                import numpy as np
                return [float(session.run(y, {x: np.ones((256, 256), "float32")}))
                        for _ in range(n)][-1]

    def op_nested(self):
        """Two operations that wait for each other: each needs a worker of its own."""
        tf = self.tf
        import numpy as np
        meeting = threading.Barrier(2)

        def meet(i):  # the argument keeps TensorFlow from merging or folding the two
            meeting.wait()
            return np.int64(i)

        @tf.function
        def both(x):
            return sum(tf.numpy_function(meet, [x + i], tf.int64, stateful=False) for i in (1, 2))
        return int(both(tf.constant(0, tf.int64)))

    def op_export(self, path):
        tf = self.tf

        class Model(tf.Module):
            def __init__(self):
                super().__init__()
                self.w = tf.Variable(tf.ones((512, 512)) / 512.0)

            @tf.function(input_signature=[tf.TensorSpec((64, 512), tf.float32)])
            def serve(self, x):
                for _ in range(6):
                    x = tf.nn.relu(x @ self.w)
                return x
        model = Model()
        tf.saved_model.save(model, path, signatures=model.serve.get_concrete_function())
        from tensorflow.core.protobuf import saved_model_pb2
        saved = saved_model_pb2.SavedModel()
        with open(os.path.join(path, "saved_model.pb"), "rb") as f:
            saved.ParseFromString(f.read())
        signature = saved.meta_graphs[0].signature_def["serving_default"]
        (source,), (result,) = signature.inputs.values(), signature.outputs.values()
        return [source.name.split(":")[0], result.name.split(":")[0]]

    def op_closerange(self):
        """Closes everything, then opens files until the agent's old numbers are taken."""
        os.closerange(3, 65536)
        files = [tempfile.TemporaryFile() for _ in range(600)]
        self.files = files
        return max(f.fileno() for f in files)

    def op_files_untouched(self):
        return all(os.fstat(f.fileno()).st_size == 0 for f in self.files)

    def op_children(self):
        """A child of each kind, and a forked one that talks to the daemon itself."""
        results = {}
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            with context.Pool(2) as pool:
                results[method] = pool.map(abs, range(-3, 0))
        results["subprocess"] = subprocess.run(["/bin/echo", "hello"], capture_output=True,
                                               text=True, check=True).stdout
        results["system"] = os.system("exit 3") >> 8
        return results

    def op_fork_speaks(self):
        """A forked child that reports progress, and so starts the agent anew; waits for `reap`."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            agent_table().progress(3, 4, b"children")
            os.read(read, 1)
            os._exit(7)
        os.close(read)
        self.child = pid, write
        return pid

    def op_reap(self):
        pid, write = self.child
        os.write(write, b"x")
        os.close(write)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def op_sleep(self, seconds):
        begin = time.monotonic()
        time.sleep(seconds)
        return time.monotonic() - begin

    def op_signals_seen(self):
        return signals_seen

    def op_parallelism(self):
        """TensorFlow's own code is told this number: GetPerThreadMaxParallelism()."""
        return ctypes.CDLL(None)._ZN10tensorflow26GetPerThreadMaxParallelismEv()

    def op_exit(self, how):
        if how == "sys":
            sys.exit(5)
        if how == "os":
            os._exit(5)
        os.execv("/bin/sh", ["sh", "-c", "exit 5"])

    def handle(self, line):
        request = json.loads(line)
        op = request.pop("op")
        function = getattr(self, "op_" + op, None) or globals()["op_" + op]
        print(json.dumps({"answer": function(**request)}), flush=True)

    def loop(self):
        stdin = sys.stdin.buffer.raw
        pending = b""
        while True:
            if self.losses is not None and not select.select([stdin], [], [], 0)[0]:
                self.losses.append(self.training.step())
                continue
            data = stdin.read(65536)
            if not data:
                return
            pending += data
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                self.handle(line)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    program = Program()
    print(json.dumps({"answer": "ready"}), flush=True)
    program.loop()
