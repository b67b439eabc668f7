#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the parameters of a plant (plant.h) by a seed.

usage: plant_draw.py [--range desktop|server|old] [--cores N] SEED

Prints NAME=VALUE, a line for each parameter. The same seed gives the same plant on every machine. SEED is any
text; a benchmark takes seeds(COMMIT, COUNT), so that nobody can choose them. Without --range the seed
chooses the range as well.

Each range is a kind of machine: figures per machine in W, those of
each core apart. They follow what is published of such machines (idle and full power of SPECpower_ssj2008 results
of the time, boost clocks, supply losses of 80 PLUS classes, leakage of a tenth of the power at operating
temperature), not what any estimator does well with.
"""
import argparse
import hashlib

W = 1_000_000

# Name -> (least, most) of the machine, and for those that grow with its cores (least, most) of each core.
RANGES = {
    "desktop": {
        "idle_uw": ((12 * W, 30 * W), (W // 4, W)),
        "package_share_permille": ((200, 450),),
        "dram_share_permille": ((30, 80),),
        "core_uw": ((5 * W, 15 * W),),
        "core_bend_permille": ((0, 300),),
        "cubic_permille": ((500, 900),),
        "uncore_uw": ((2 * W, 6 * W), (W // 5, 4 * W // 5)),
        "uncore_bend_permille": ((500, 5000),),
        "dram_uw": ((W // 2, 2 * W), (W // 5, 3 * W // 5)),
        "leak_permille": ((20, 120),),
        "leak_bend_permille": ((200, 1500),),
        "heat_ms": ((5_000, 40_000),),
        "fan_heat_permille": ((400, 900),),
        "fan_uw": ((W // 2, 2 * W), (0, W // 10)),
        "supply_permille": ((60, 180),),
        "noise_permille": ((2, 10),),
        "wander_uw": ((W // 20, 2 * W // 5),),
        "wander_ms": ((8_000, 60_000),),
        "rapl_permille": ((930, 1070),),
        "turbo_permille": ((1050, 1350),),
    },
    "server": {
        "idle_uw": ((30 * W, 70 * W), (W // 2, 3 * W // 2)),
        "package_share_permille": ((250, 500),),
        "dram_share_permille": ((60, 150),),
        "core_uw": ((3 * W, 9 * W),),
        "core_bend_permille": ((0, 300),),
        "cubic_permille": ((400, 850),),
        "uncore_uw": ((5 * W, 15 * W), (W // 5, W)),
        "uncore_bend_permille": ((1000, 8000),),
        "dram_uw": ((2 * W, 6 * W), (W // 4, W)),
        "leak_permille": ((30, 150),),
        "leak_bend_permille": ((200, 1500),),
        "heat_ms": ((10_000, 60_000),),
        "fan_heat_permille": ((400, 900),),
        "fan_uw": ((2 * W, 6 * W), (0, W // 4)),
        "supply_permille": ((40, 120),),
        "noise_permille": ((2, 8),),
        "wander_uw": ((W // 10, W // 2),),
        "wander_ms": ((8_000, 60_000),),
        "rapl_permille": ((950, 1050),),
        "turbo_permille": ((1000, 1300),),
    },
    "old": {
        "idle_uw": ((60 * W, 120 * W), (2 * W, 4 * W)),
        "package_share_permille": ((250, 450),),
        "dram_share_permille": ((60, 150),),
        "core_uw": ((8 * W, 18 * W),),
        "core_bend_permille": ((0, 150),),
        "cubic_permille": ((700, 950),),
        "uncore_uw": ((W, 4 * W), (0, W // 2)),
        "uncore_bend_permille": ((0, 1500),),
        "dram_uw": ((2 * W, 5 * W), (W // 2, 3 * W // 2)),
        "leak_permille": ((20, 100),),
        "leak_bend_permille": ((0, 1000),),
        "heat_ms": ((10_000, 60_000),),
        "fan_heat_permille": ((500, 950),),
        "fan_uw": ((2 * W, 6 * W), (0, W // 5)),
        "supply_permille": ((120, 250),),
        "noise_permille": ((3, 12),),
        "wander_uw": ((W // 5, W),),
        "wander_ms": ((8_000, 60_000),),
        "rapl_permille": ((900, 1100),),
        "turbo_permille": ((1000, 1100),),
    },
}


def number(seed, name, least, most):
    """least … most, all equally likely (the remainder's bias is below 2^-30)."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return least + int.from_bytes(digest[:8], "big") % (most - least + 1)


def range_of(seed):
    return sorted(RANGES)[number(seed, "range", 0, len(RANGES) - 1)]


def draw(seed, cores, kind=None):
    """{name: value} in plant.h's order."""
    drawn = {}
    for name, (machine, *core) in RANGES[kind or range_of(seed)].items():
        drawn[name] = number(seed, name, *machine)
        if core:
            drawn[name] += cores * number(seed, f"{name} of a core", *core[0])
    params = {}
    for name, value in drawn.items():
        if name.endswith("_share_permille"):  # of idle
            part = name.removesuffix("_share_permille")
            params[f"{part}_idle_uw"] = drawn["idle_uw"] * value // 1000
        else:
            params[name] = value
    return params


def seeds(commit, count):
    """A seed for each repeat of a benchmark: they follow from the commit that is measured."""
    return [hashlib.sha256(f"{commit}{n}".encode()).hexdigest()[:16] for n in range(count)]


def noise_seed(seed):
    """The number that plant_init() takes for this seed."""
    return number(seed, "noise", 0, 2 ** 63 - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--range", choices=sorted(RANGES), dest="kind")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("seed")
    options = parser.parse_args()
    for name, value in draw(options.seed, options.cores, options.kind).items():
        print(f"{name}={value}")


if __name__ == "__main__":
    main()
