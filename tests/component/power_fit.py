# SPDX-License-Identifier: Apache-2.0
"""tided's file of what readings taught it (cap_file.c), as after an hour beside a meter: what takes an hour is no test."""
import struct

KNOTS, ERRORS, RECENT, VERSION = 16, 512, 32, 3
MODELLED, CALIBRATED = 2, 3


def write(path, root, weights, *, power="auto", beside, error=0.05, most_mcpu=256_000):
    """@weights: W of (1, the packages' W, busy cores, load); @beside: the packages' sensors were there."""
    covariance = [float(i == k) for i in range(4) for k in range(4)]
    knots = [n for load in (0, most_mcpu / 2, most_mcpu)
             for n in (load, 1e6 * (weights[0] + weights[2] * load / 1000), 64.0)]
    numbers = [*weights, *weights, *covariance, *knots, *[0.0] * (3 * KNOTS - len(knots)), *weights, *weights, 1.0,
               *[error] * ERRORS, *[error] * RECENT]
    assert len(numbers) == 4 * 8 + 3 * KNOTS + 1 + ERRORS + RECENT
    fit = struct.pack(f"<{len(numbers)}d", *numbers) + struct.pack("<8I", ERRORS, 1, RECENT, 0, 3600, 3, VERSION, 0)
    record = struct.pack("<256s256s6I", power.encode(), str(root).encode(), VERSION, CALIBRATED, 10, 10, int(beside), 0)
    path.write_bytes(record + fit)


def samples(path):
    """How many readings taught it."""
    if not path.exists():
        return 0
    return struct.unpack_from("<8I", path.read_bytes(), 2 * 256 + 6 * 4 + 8 * (4 * 8 + 3 * KNOTS + 1 + ERRORS + RECENT))[4]
