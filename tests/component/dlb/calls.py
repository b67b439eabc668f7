# SPDX-License-Identifier: Apache-2.0
"""A program for DLB: calls the libdlb.so that its argument names, as stdin tells."""
import ctypes
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from statements import goes_on, listen, say  # noqa: E402

lib = ctypes.CDLL(sys.argv[1])


class Cpus(ctypes.Structure):
    _fields_ = [("bits", ctypes.c_ulong * 16)]

    def __init__(self, *cpus):
        super().__init__()
        for cpu in cpus:
            self.bits[cpu // 64] |= 1 << cpu % 64

    def count(self):
        return sum(bin(word).count("1") for word in self.bits)


known = []  # numbers and sizes of masks that polls have told


def poll():
    """The result of DLB_PollDROM."""
    n, mask = ctypes.c_int(0), Cpus()
    result = lib.DLB_PollDROM(ctypes.byref(n), ctypes.byref(mask))
    if result == 0:
        known.append((n.value, mask.count()))
    return result


def number():
    """The last number that a poll has told, after one more."""
    poll()
    return known[-1][0] if known else 0


def pids():
    found, n = (ctypes.c_int * 16)(), ctypes.c_int()
    result = lib.DLB_DROM_GetPidList(found, ctypes.byref(n), 16)
    return result, sorted(found[:n.value])


def clocked(n, call):
    """The results of so many calls, and the seconds of them all."""
    began = time.monotonic()
    results = {call() for _ in range(n)}
    return str(results).replace(" ", ""), time.monotonic() - began


listen()
say("begun")
while goes_on(globals()):
    time.sleep(0.005)
