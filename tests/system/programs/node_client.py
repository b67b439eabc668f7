# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow client of one node: places an operation there for every line of its input.

    node_client.py JOB INDEX ADDRESS        in: how many products; out: device and the last one's trace
"""
import sys

import tensorflow as tf

job, index, address = sys.argv[1:]
# A sparse cluster: the node is the only one of its job, whatever its number.
spec = tf.train.ClusterSpec({job: {int(index): address}})
tf.config.experimental_connect_to_cluster(spec, job_name="chief", make_master_device_default=False)


@tf.function
def products(a, n):
    for _ in tf.range(n):
        a = tf.matmul(a, a) / tf.cast(tf.shape(a)[0], tf.float32)
    return tf.linalg.trace(a)


with tf.device(f"/job:{job}/task:{index}/device:CPU:0"):
    ones = tf.ones([512, 512])
    print("ready", flush=True)
    for line in sys.stdin:
        trace = products(ones, tf.constant(int(line)))
        print(trace.device, trace.numpy(), flush=True)
