# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch program: it trains, and each line of its stdin is a statement of Python that it runs in between.

    work.py                        says "begun"; `say(…)` in a statement answers
    work.py training STEPS [N]     with N threads all the time
    work.py compiled
"""
import ctypes
import hashlib
import os
import pathlib
import queue
import re
import sys
import threading
import time

import torch

own = torch.get_num_threads()
big = torch.ones(4_000_000)
lock = threading.Lock()


def say(*words):
    print(*words, flush=True)


def real():
    """The number that PyTorch itself has, whatever torch.get_num_threads() says."""
    return int(re.search(r"at::get_num_threads\(\) : (\d+)", torch.__config__.parallel_info())[1])


def openmp():
    maps = pathlib.Path("/proc/self/maps").read_text()
    return ctypes.CDLL(re.search(r"/\S*/torch/lib/libgomp\S*", maps)[0])


def lightgbm_path():
    import importlib.util
    return str(pathlib.Path(importlib.util.find_spec("lightgbm").origin).parent / "lib" / "lib_lightgbm.so")


def team():
    """Threads that take part in regions: those that use processor time meanwhile."""
    def times():
        return {t: pathlib.Path(f"/proc/self/task/{t}/schedstat").read_text().split()[0]
                for t in os.listdir("/proc/self/task")
                if pathlib.Path(f"/proc/self/task/{t}/comm").read_text() != "tide-agent\n"}
    before = times()
    for _ in range(20):
        torch.sin(big)
    return sum(before.get(t) != value for t, value in times().items())


def elsewhere(function):
    """What @function returns in a new thread."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def in_child():
    """What a child sees: PyTorch's number, and what the program is told."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, f"{real()} {torch.get_num_threads()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(ours, 100).decode().split()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return real()


def load():
    return [int(n) for n in torch.utils.data.DataLoader(Numbers(), batch_size=None, num_workers=2)]


def sleep_in_lock():
    """Until a statement releases it, which another thread has to read meanwhile."""
    lock.acquire()
    threading.Thread(target=lambda: exec(lines.get(), globals()), daemon=True).start()
    say("asleep")
    lock.acquire()
    time.sleep(0)
    say("awake", real())
    lock.release()


def model(width=128, rows=1024):
    """Its loss is a sum in parts, one for each thread, so that other numbers of threads give other bits."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width))
    return net, torch.optim.Adam(net.parameters(), 1e-3), torch.randn(rows, width), torch.randn(rows, width)


def train(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x).sigmoid(), y)
    loss.backward()
    optimizer.step()
    return loss


def training(steps):
    """The last loss, and a sum of the bits of all losses and weights."""
    parts = model()
    losses = [train(*parts).detach() for _ in range(steps)]
    bits = b"".join(p.detach().numpy().tobytes() for p in (*losses, *parts[0].parameters()))
    return losses[-1].item().hex(), hashlib.sha256(bits).hexdigest()


def compile_model(**options):
    """A function that runs a compiled model, and fails if that has to be compiled a second time."""
    import torch._dynamo
    torch._dynamo.config.error_on_recompile = True
    torch.manual_seed(2)
    x = torch.randn(1000, 3000)
    function = torch.compile(lambda x: (torch.tanh(x) * x + 1).sum(dim=1).softmax(0), **options)
    return lambda: [hashlib.sha256(function(x).numpy().tobytes()).hexdigest()]


def main():
    parts = model(64, 64)
    say("begun")
    while True:
        train(*parts)
        if not lines.empty():
            line = lines.get()
            if line is None:
                return
            exec(line, globals())


if __name__ == "__main__":
    if sys.argv[1:2] == ["training"]:
        if len(sys.argv) > 3:
            torch.set_num_threads(int(sys.argv[3]))
        say(*training(int(sys.argv[2])))
    elif sys.argv[1:2] == ["compiled"]:
        say(*compile_model()())
    else:
        lines = queue.SimpleQueue()
        stdin = os.fdopen(os.dup(0))  # children of a fork close sys.stdin, which a thread is not to hold then
        threading.Thread(target=lambda: ([lines.put(line) for line in stdin], lines.put(None)), daemon=True).start()
        main()
