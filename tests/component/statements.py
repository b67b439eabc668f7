# SPDX-License-Identifier: Apache-2.0
"""For programs of Python under test: between two pieces of work they run the statements that stdin tells them.

Each line is one; say() answers. program.py is the other end.
"""
import os
import pathlib
import queue
import threading
import time

lines = queue.SimpleQueue()


def say(*words):
    print(*words, flush=True)


def listen():
    stdin = os.fdopen(os.dup(0))  # children of a fork close sys.stdin, which a thread is not to hold then
    threading.Thread(target=lambda: ([lines.put(line) for line in stdin], lines.put(None)), daemon=True).start()


def goes_on(names):
    """Runs what has been told meanwhile with these names. False at the end of stdin."""
    if lines.empty():
        return True
    line = lines.get()
    if line is not None:
        exec(line, names)
    return line is not None


def serve(names):
    """Does nothing but what it is told."""
    listen()
    say("begun")
    while goes_on(names):
        time.sleep(0.002)


def timed(count, call):
    """The shortest and the longest of so many calls, in microseconds."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        took.append((time.perf_counter() - began) * 1e6)
    return f"{min(took):.0f} {max(took):.0f}"


def elsewhere(function):
    """Returns the result of @function in a new thread."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def in_child(function):
    """The words of what @function returns in the child of a fork."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, str(function()).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        words = answer.read().split()
    os.waitpid(pid, 0)
    return words


def team(work):
    """How many threads take part in @work: those that use processor time meanwhile, and are not Python's own."""
    def times():
        time.sleep(0.01)  # a running thread's time is added up at a tick or a switch
        found = {}
        others = {t.native_id for t in threading.enumerate() if t is not threading.main_thread()}
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                if int(task.name) not in others and (task / "comm").read_text() != "tide-agent\n":
                    found[task.name] = (task / "schedstat").read_text().split()[0]
            except OSError:
                pass  # it has ended
        return found
    before = times()
    work()
    return sum(before.get(t) != value for t, value in times().items())
