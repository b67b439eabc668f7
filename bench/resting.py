# SPDX-License-Identifier: Apache-2.0
"""The rest of a program that a measurement stops and continues (harness.Side)."""

import time

PIECE_S = 0.25


def rest(seconds):
    """Sleeps. Time in which the program is stopped does not count, but for the piece of the rest that the stop met."""
    while seconds > 0:
        time.sleep(min(seconds, PIECE_S))
        seconds -= PIECE_S
