# SPDX-License-Identifier: Apache-2.0
"""A real TensorFlow whose process may not have as many threads as the agent would build its pools with."""
import os
import resource
import subprocess
import sys

from program import LONG_S

PYTHON = (os.environ.get("TIDE_TF_PYTHONS") or os.environ.get("TIDE_PYTHON_TF221") or sys.executable).split(":")[0]
MOST_BYTES = 24 << 30  # of addresses: enough for TensorFlow and some hundred stacks
STACK_BYTES = 8 << 20
WORK = """
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)
a = tf.ones((64, 64))
print("sum", int(tf.reduce_sum(tf.matmul(a, a))), len(__import__("os").listdir("/proc/self/task")))
"""


def limited():
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def test_pools_grow_no_further_than_limits_of_the_process_allow(build_dir):
    env = {**os.environ, "LD_PRELOAD": str(build_dir / "libtide-agent.so"), "TIDE_MAX": "4000", "TF_CPP_MIN_LOG_LEVEL": "1"}
    done = subprocess.run([PYTHON, "-c", WORK], env=env, preexec_fn=limited, capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 0, done.stderr[-2000:]
    said, number, threads = done.stdout.split()
    assert (said, number) == ("sum", str(64 ** 3))
    assert 4 < int(threads) < 2000, "pools have grown, and not without a bound"
