# SPDX-License-Identifier: Apache-2.0
"""The training's log for people: lines on standard error, which is the pod's log."""

import sys
import time


def log(text):
    print(f"threadtide: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def first_line(error):
    """The first line of what an error says; its kind if it says nothing."""
    return (str(getattr(error, "message", "") or error) or type(error).__name__).splitlines()[0]
