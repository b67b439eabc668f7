#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is it true what a training says of how its steps divide into computing and communication?

The controller decides by it whether workers or parameter servers pay. The same training with two
workers, each in a network namespace of its own, four times in turn: as it is; with a quarter of a
core for each worker, so that computing takes longer and the link does not; with a link of 200 Mbit/s,
the other way round; and with both. As root.
"""

import argparse
import statistics
import subprocess
import sys

import cluster
import harness

sys.path[:0] = [str(harness.ROOT / "tests/component"), str(harness.ROOT / "tests/kube")]

from network import PodNetwork, hold_namespaces  # noqa: E402

SLOW_CORE, SLOW_LINK = 0.25, "200mbit"
SIDES = {"as it is": (1.0, None), "slow processors": (SLOW_CORE, None),
         "slow links": (1.0, SLOW_LINK), "both slow": (SLOW_CORE, SLOW_LINK)}
OPTIONS = ["--model", "mlp", "--width", 512, "--batch", 512, "--examples", 2048]


def slow(namespace, device, rate):
    subprocess.run(["nsenter", f"--net=/proc/{namespace.pid}/ns/net", "tc", "qdisc", "add", "dev",
                    device, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "400ms"],
                   check=True)


def start(c, network, groups, role, cores, rate):
    """A node on a machine of its own; the process that holds it."""
    machine = hold_namespaces(role)
    address = network.attach(machine)
    if rate:
        slow(machine, "eth0", rate)
        slow(network.keeper, f"pod{address.rpartition('.')[2]}", rate)
    enter = [*groups.limited(cores), "nsenter", f"--net=/proc/{machine.pid}/ns/net"]
    c.start(role, wrapper=enter, host=address)
    return machine


def run(folder, side, epochs):
    (cores, rate), groups, network, machines = SIDES[side], cluster.Groups(), PodNetwork(), []
    try:
        with cluster.local_cluster() as c:
            machines.append(start(c, network, groups, "ps", 2.0, None))
            for _ in range(2):
                machines.append(start(c, network, groups, "worker", cores, rate))
            training = cluster.Training(c, folder, side.replace(" ", "-"), "--epochs", epochs,
                                        *OPTIONS, POD_IP=network.gateway)
            try:
                return training.finish()
            finally:
                training.end()
    finally:
        groups.end()
        for machine in machines:
            machine.kill()
            machine.wait()
        network.end()


def rows(runs):
    result = []
    for side in SIDES:
        own = [r for r in runs if r["side"] == side]
        if own:
            shares = [r["computing"][-1] / 10 for r in own]
            result.append({
                "workers and links": side, "runs": len(own),
                "computing %": " ".join(f"{s:.0f}" for s in shares),
                "epoch s": " ".join(f"{statistics.median(r['epoch_s']):.2f}" for r in own)})
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--round", type=int, default=1, help="joined with those measured before")
    p.add_argument("--sides", help="these alone, separated by commas")
    p.add_argument("--epochs", type=int, default=16)
    args = p.parse_args()
    kept = harness.saved_runs("cluster-split") if args.round > 1 or args.sides else []
    with cluster.scratch() as folder:
        for side in args.sides.split(",") if args.sides else SIDES:
            result = run(folder, side, args.epochs)
            kept = [r for r in kept if (r["round"], r["side"]) != (args.round, side)]
            kept.append({"round": args.round, "side": side, **result})
            print(side, result["computing"][-1], result["total_s"], flush=True)
            harness.save("cluster-split", rows(kept), kept)


if __name__ == "__main__":
    main()
