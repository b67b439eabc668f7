# SPDX-License-Identifier: Apache-2.0
"""Python that calls OpenMP libraries: loads.py [+]LIBRARY…; prints "teams N M …" when it has changed.
+: others see its names.

"lock SECONDS" on stdin: the main thread waits for a lock meanwhile. "close": forgets the last library.
"global PATH": loads a library whose names others see, as `import torch` does behind `import sklearn`.
"again N PATH…": loads these in turn N times, calls and closes each. "fork N BIG SMALL": loads BIG, and forks
N children that load SMALL; prints "children FAILED". A result that threads cannot have come
to in one copy of the runtime ends it.
"""
import _ctypes
import ctypes
import os
import select
import sys
import threading
import time

ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG


def check(library):
    library.region_at_the_end()
    got = library.whole(), library.ends()
    if got != (1000, 3):
        print("broken", *got, flush=True)
        sys.exit(1)
    return library.team()


libraries = [ctypes.CDLL(path.lstrip("+"), mode=ctypes.RTLD_GLOBAL if path[0] == "+" else ctypes.RTLD_LOCAL)
             for path in sys.argv[1:]]
kept, had = [], None
while True:
    now = [check(library) for library in libraries]
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
        time.sleep(0.3)  # its own runtime's threads must sleep
        _ctypes.dlclose(libraries.pop()._handle)
        print("closed", flush=True)
    elif line[0] == "global":
        kept.append(ctypes.CDLL(line[1], mode=ctypes.RTLD_GLOBAL))
        print("loaded", flush=True)
    elif line[0] == "again":
        for i in range(int(line[1])):
            library = ctypes.CDLL(line[2 + i % len(line[2:])])
            until = time.monotonic() + i % 3 * 0.06
            check(library)
            while time.monotonic() < until:
                check(library)
                time.sleep(0.001)
            _ctypes.dlclose(library._handle)
        print("done", flush=True)
    elif line[0] == "fork":
        kept.append(ctypes.CDLL(line[2]))
        failed = 0
        for i in range(int(line[1])):
            child = os.fork()
            if child == 0:
                ctypes.CDLL(line[3])
                os._exit(0)
            for _ in range(1000):
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    break
                time.sleep(0.005)
            else:
                os.kill(child, 9)
                pid, status = os.waitpid(child, 0)
            failed += status != 0
        print("children", failed, flush=True)
