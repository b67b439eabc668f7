# SPDX-License-Identifier: Apache-2.0
"""Python that calls OpenMP libraries: loads.py LIBRARY…; prints "teams N M …" when it has changed.

"lock SECONDS" on stdin: the main thread waits for a lock meanwhile. "close": forgets the last library.
"""
import ctypes
import select
import sys
import threading
import time

libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
had = None
while True:
    now = [library.team() for library in libraries]
    if now != had:
        had = now
        print("teams", *now, flush=True)
    time.sleep(0.002)
    if not select.select([sys.stdin], [], [], 0)[0]:
        continue
    line = sys.stdin.readline().split()
    if not line:
        break
    if line[0] == "lock":
        lock = threading.Lock()
        lock.acquire()
        threading.Timer(float(line[1]), lock.release).start()
        print("locked", flush=True)
        lock.acquire()
        print("unlocked", flush=True)
    elif line[0] == "close":
        import _ctypes
        _ctypes.dlclose(libraries.pop()._handle)
        print("closed", flush=True)
