# SPDX-License-Identifier: Apache-2.0
"""Iterators of tf.data that end: prints how long the program slept for each, in seconds.

    data_ends.py one COUNT        one after the other, on one CPU, each when it is AGE_S old
    data_ends.py many COUNT       in four threads, of any age; checks what they gave

SCHED_IDLE: whoever is woken by the thread goes first, so the tuning thread, which the end of an iterator wakes, always asks
too early whether it is over.
"""
import os
import random
import sys
import threading
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf  # noqa: E402

AGE_S = 0.35  # tuning periods end after 0.01, 0.03, 0.07, 0.15, 0.31, 0.63 s


def numbers():
    return iter(tf.data.Dataset.range(10**9).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE))


def awake_s():
    """At work or waiting for a CPU."""
    with open("/proc/thread-self/schedstat") as file:
        ran, waited, _ = file.read().split()
    return (int(ran) + int(waited)) / 1e9


def one():
    iterator, begin = numbers(), time.monotonic()
    while time.monotonic() < begin + AGE_S:
        next(iterator)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    begin, awake = time.monotonic(), awake_s()
    del iterator
    slept = time.monotonic() - begin - (awake_s() - awake)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return slept


def many(count, seed, found):
    chance = random.Random(seed)
    for _ in range(count):
        iterator = numbers()
        for i in range(1, chance.randrange(2, 40)):
            assert int(next(iterator)) == i
        time.sleep(chance.uniform(0, 0.02))
        begin = time.monotonic()
        del iterator
        found.append(time.monotonic() - begin)


def in_threads(count):
    found = []
    threads = [threading.Thread(target=many, args=(count, seed, found)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


mode, count = sys.argv[1], int(sys.argv[2])
if mode == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(*([one() for _ in range(count)] if mode == "one" else in_threads(count)))
