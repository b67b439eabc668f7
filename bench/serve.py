#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An inference server in one process, and its clients: for bench/promise.py.

    serve.py --rate 20 [--burst 8:60] --seconds 30 --out FILE     requests arrive at random, 20 a second
    serve.py --calibrate                                          prints the seconds of one request on one thread

A request is a batch through four layers of PyTorch, some 20 ms on one core. Requests wait in one queue, and one after the
other is served with as many threads as PyTorch has. Arrivals are a Poisson process of a fixed seed, drawn before the
run, whether or not the server keeps up; --burst P:R makes every second half of P seconds one of R requests a second. A line of FILE is
the arrival (CLOCK_MONOTONIC) and the seconds until the answer, waiting included. The only thing that it knows of Threadtide is
`threadtide.request()`, where that package is there.
"""

import argparse
import contextlib
import queue
import random
import statistics
import threading
import time

SEED, LAYERS, WIDTH, BATCH = 11, 4, 1024, 128

try:
    from threadtide import request
except ImportError:
    request = contextlib.nullcontext


def model():
    import torch
    torch.manual_seed(SEED)
    net = torch.nn.Sequential(*(layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())))
    question = torch.randn(BATCH, WIDTH)

    def answer():
        with torch.inference_mode():
            return float(net(question)[0, 0])
    for _ in range(10):
        answer()
    return answer


def arrivals(rate, burst, seconds):
    """Seconds after the begin; of each period the second half is the burst."""
    chance, at, times = random.Random(SEED), 0.0, []
    while True:
        busy = burst and at % burst[0] >= burst[0] / 2
        at += chance.expovariate(burst[1] if busy else rate)
        if at >= seconds:
            return times
        times.append(at)


def serve(answer, times, out):
    waiting = queue.SimpleQueue()

    def clients():
        begin = time.monotonic()
        for at in times:
            time.sleep(max(0.0, begin + at - time.monotonic()))
            open_request = request()
            open_request.__enter__()
            waiting.put((time.monotonic(), open_request))
        waiting.put(None)
    threading.Thread(target=clients, daemon=True).start()
    with open(out, "w", encoding="ascii", buffering=1) as file:
        while (one := waiting.get()) is not None:
            answer()
            one[1].__exit__(None, None, None)
            print(f"{one[0]:.6f} {time.monotonic() - one[0]:.6f}", file=file)


def calibrate(answer):
    took = []
    for _ in range(40):
        begin = time.monotonic()
        answer()
        took.append(time.monotonic() - begin)
    print(f"{statistics.median(took):.6f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rate", type=float, default=10)
    p.add_argument("--burst", metavar="P:R", type=lambda text: tuple(map(float, text.split(":"))))
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--out")
    p.add_argument("--calibrate", action="store_true")
    args = p.parse_args()
    if not (args.calibrate or args.out):
        p.error("--out FILE is missing")
    answer = model()
    if args.calibrate:
        calibrate(answer)
    else:
        serve(answer, arrivals(args.rate, args.burst, args.seconds), args.out)


main()
