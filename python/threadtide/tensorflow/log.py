# SPDX-License-Identifier: Apache-2.0
"""What a training says to its person: lines on standard error, the pod's log."""

import sys
import time


def log(text):
    print(f"threadtide: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
