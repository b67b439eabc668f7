# SPDX-License-Identifier: Apache-2.0
"""A small PyTorch program: it trains, and each line of its stdin is a statement of Python that it runs in between.

    work.py                        says "begun"; `say(…)` in a statement answers
    work.py training STEPS [N]     with N threads all the time
    work.py losses STEPS SEED      of trainings with 1, 2, 3 and 8 threads all the time, and of one that sets another number before each step
    work.py compiled
    work.py product [dynamic=yes] [mode=max-autotune] [backends=CPP]
"""
import ctypes
import hashlib
import pathlib
import random
import re
import sys
import threading
import time

import torch

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import elsewhere, goes_on, in_child, lines, listen, say, team  # noqa: E402, F401 (statements use them)

own = torch.get_num_threads()
big = torch.ones(4_000_000)
lock = threading.Lock()
steps = 0  # of all trainings


def number():
    """The number that PyTorch itself has, whatever torch.get_num_threads() says."""
    return int(re.search(r"at::get_num_threads\(\) : (\d+)", torch.__config__.parallel_info())[1])


def openmp():
    maps = pathlib.Path("/proc/self/maps").read_text()
    return ctypes.CDLL(re.search(r"/\S*/torch/lib/libgomp\S*", maps)[0])


def lightgbm_path():
    import importlib.util
    return str(pathlib.Path(importlib.util.find_spec("lightgbm").origin).parent / "lib" / "lib_lightgbm.so")


def numbers():
    """PyTorch's, and what the program is told."""
    return f"{number()} {torch.get_num_threads()}"


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return number()


def load():
    return [int(n) for n in torch.utils.data.DataLoader(Numbers(), batch_size=None, num_workers=2)]


def sleep_in_lock():
    """Until a statement releases it, which another thread has to read meanwhile."""
    lock.acquire()
    threading.Thread(target=lambda: exec(lines.get(), globals()), daemon=True).start()
    say("asleep")
    lock.acquire()
    time.sleep(0)
    say("awake", number())
    lock.release()


def model(width=128, rows=1024):
    """Its loss is a sum in parts, one for each thread, so that other numbers of threads give other bits."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width))
    return net, torch.optim.Adam(net.parameters(), 1e-3), torch.randn(rows, width), torch.randn(rows, width)


def train(net, optimizer, x, y):
    global steps
    steps += 1
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x).sigmoid(), y)
    loss.backward()
    optimizer.step()
    return loss


def bits_of(net):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()


def learned(parts, steps):
    """The last loss, and a sum of the bits of all losses and weights."""
    losses = [train(*parts).detach() for _ in range(steps)]
    bits = b"".join(p.detach().numpy().tobytes() for p in (*losses, *parts[0].parameters()))
    return losses[-1].item().hex(), hashlib.sha256(bits).hexdigest()


def training(steps):
    return learned(model(), steps)


def moved(parts, steps, seed):
    """A training that sets another number of threads itself before each step, as targets of test_pytorch.py do."""
    orders = random.Random(seed)
    for _ in range(steps):
        torch.set_num_threads(orders.randint(1, 8))
        loss = train(*parts)
    return loss.item().hex(), bits_of(parts[0])


def losses(steps, seed):
    found = []
    for n in (1, 2, 3, 8):
        torch.set_num_threads(n)
        found.append(training(steps)[0])
    return *found, *moved(model(), steps, seed)


def convolutions(steps):
    """OneDNN's, which keep what they have prepared for a shape."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3), torch.nn.Flatten(),
                              torch.nn.Linear(8 * 20 * 20, 8))
    return learned((net, torch.optim.Adam(net.parameters(), 1e-3), torch.randn(16, 3, 24, 24), torch.randn(16, 8)), steps)


def compile_model(**options):
    """A function that runs a compiled model, and fails if that has to be compiled a second time."""
    import torch._dynamo
    torch._dynamo.config.error_on_recompile = True
    torch.manual_seed(2)
    x = torch.randn(1000, 3000)
    function = torch.compile(lambda x: (torch.tanh(x) * x + 1).sum(dim=1).softmax(0), **options)
    return lambda: [hashlib.sha256(function(x).numpy().tobytes()).hexdigest()]


def compile_product(dynamic="no", backends="CPP,ATEN", **options):
    """The same for a layer; with threads chosen at each call, or in the code. Where its weights are constants, max-autotune writes
    code of its own for the product, if that is faster than the library's; with CPP alone, in any case.
    """
    import torch._dynamo
    import torch._inductor.config
    torch._dynamo.config.error_on_recompile = True
    torch._inductor.config.cpp.dynamic_threads = dynamic == "yes"
    torch._inductor.config.max_autotune_gemm_backends = backends
    torch._inductor.config.freezing = options.get("mode") == "max-autotune"
    torch.manual_seed(4)
    layer, x = torch.nn.Linear(256, 512), torch.randn(384, 256)
    function = torch.compile(lambda x: layer(x).relu().sum(dim=0), **options)

    def digest():
        with torch.no_grad():
            told, right = function(x), layer(x).relu().sum(dim=0)
        return hashlib.sha256(told.numpy().tobytes()).hexdigest(), torch.allclose(told, right, rtol=1e-3)
    return digest


def main():
    parts = model(64, 64)
    say("begun")
    while goes_on(globals()):
        train(*parts)


if __name__ == "__main__":
    if sys.argv[1:2] in (["training"], ["convolutions"]):
        if len(sys.argv) > 3:
            torch.set_num_threads(int(sys.argv[3]))
        say(*globals()[sys.argv[1]](int(sys.argv[2])))
    elif sys.argv[1:2] == ["losses"]:
        say(*losses(*map(int, sys.argv[2:])))
    elif sys.argv[1:2] == ["compiled"]:
        say(*compile_model()())
    elif sys.argv[1:2] == ["product"]:
        say(*compile_product(**dict(word.split("=") for word in sys.argv[2:]))())
    else:
        listen()
        main()
