# SPDX-License-Identifier: Apache-2.0
"""A training's parameter servers and workers as processes of this machine, without Kubernetes::

    with LocalCluster(ps=1, workers=2) as cluster:
        subprocess.run([sys.executable, "train.py"], env={**os.environ, **cluster.env})

It stands for the controller: it starts and ends nodes (tide-tfnode, the agent inside) and keeps the
list of members in the file that TIDE_CLUSTER names, which the training reads again when it changes.
TensorFlow is not imported here.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import Dict, List, Optional, Sequence, Tuple

_START_S = 120.0  # a cold disk reads 800 MB of TensorFlow
_CONTROL = re.compile(rb"^tide-tfnode: .*: control port (\d+)$", re.M)
_LISTENS = re.compile(rb"^tide-tfnode: .*: TensorFlow \S+ listens on port (\d+) ", re.M)


class Node:
    """One process. Its ports are the kernel's choice, so that nothing collides."""

    def __init__(
        self, role: str, index: int, threads: int, log: pathlib.Path, host: str = "127.0.0.1"
    ):
        self.role, self.index, self.threads, self.log = role, index, threads, log
        self.host = host
        self.leave = False
        self.port = self.control_port = 0
        self.process: subprocess.Popen

    def member(self) -> dict:
        return {
            "index": self.index,
            "host": self.host,
            "port": self.port,
            "control_port": self.control_port,
            "leave": self.leave,
            "threads": self.threads,
        }

    def wait_listening(self) -> None:
        """Until TensorFlow's port is known. RuntimeError with its last words if it ends before."""
        end = time.monotonic() + _START_S
        while True:
            ended = self.process.poll() is not None  # before its words, so that none is missed
            words = self.log.read_bytes()
            control, port = _CONTROL.search(words), _LISTENS.search(words)
            if control and port:
                self.control_port, self.port = int(control[1]), int(port[1])
                return
            if ended or time.monotonic() > end:
                tail = words[-2000:].decode(errors="replace")
                raise RuntimeError(f"{self.role} {self.index} did not start:\n{tail}")
            time.sleep(0.005)


def find_program() -> str:
    """tide-tfnode: $TIDE_TFNODE, that of $TIDE_BUILD_DIR, of the source tree's build/, of a wheel, of PATH."""
    tree = pathlib.Path(__file__).resolve().parents[3]
    build = os.environ.get("TIDE_BUILD_DIR") or tree / "build"
    found = (
        os.environ.get("TIDE_TFNODE")
        or shutil.which("tide-tfnode", path=str(build))
        or shutil.which("tide-tfnode", path=str(pathlib.Path(__file__).resolve().parents[1] / "bin"))
        or shutil.which("tide-tfnode")
    )
    if not found:
        raise FileNotFoundError(
            "tide-tfnode is not in PATH: install Threadtide, or set TIDE_TFNODE to its path"
        )
    return found


def find_tensorflow() -> str:
    """The package of this interpreter, without importing it."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("this Python has no TensorFlow")
    return spec.submodule_search_locations[0]


class LocalCluster:
    """Nodes as local processes, and the file that tells a training of them. Any thread may call.

    `ps`, `workers`: how many are started at once. `threads`: active threads of each (0: its own
    limit's). `mode`, `slots`: what the training is told. `env`: more of it for the nodes.
    `wrapper`: a command in front of the node's own, `taskset -c 0` for example. Indices are never
    used again.
    """

    def __init__(
        self,
        ps: int = 0,
        workers: int = 0,
        *,
        threads: int = 0,
        mode: str = "sync",
        slots: int = 8,
        directory: Optional[str] = None,
        program: Optional[str] = None,
        tensorflow: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        wrapper: Sequence[str] = (),
    ):
        self._program = str(program or find_program())
        self._tensorflow = str(tensorflow or find_tensorflow())
        self._own = None if directory else tempfile.mkdtemp(prefix="tide-cluster-")
        self.directory = pathlib.Path(directory or self._own)
        self.path = self.directory / "cluster.json"
        self.nodes: Dict[Tuple[str, int], Node] = {}  # that have not ended
        self._settings = {"mode": mode, "slots": slots, "suspend": False}
        self._env, self._wrapper, self._threads = env or {}, list(wrapper), threads
        self._lock = threading.RLock()
        self._next = {"ps": 0, "worker": 0}
        self._generation = 0
        self._stamp_ns = 0
        self._write()
        try:
            self._start([("ps", threads)] * ps + [("worker", threads)] * workers, self._wrapper)
        except BaseException:
            self.close()
            raise

    @property
    def env(self) -> Dict[str, str]:
        """Environment variables that tell a training of this cluster."""
        return {"TIDE_CLUSTER": str(self.path)}

    def start(
        self,
        role: str,
        count: int = 1,
        threads: Optional[int] = None,
        wrapper: Optional[Sequence[str]] = None,
        host: str = "127.0.0.1",
    ) -> List[Node]:
        """Starts nodes side by side, waits until they listen, and makes them members. `host`: the
        address that they listen at, and are reached by, if the wrapper takes them elsewhere.
        """
        threads = self._threads if threads is None else threads
        wrapper = self._wrapper if wrapper is None else list(wrapper)
        return self._start([(role, threads)] * count, wrapper, host)

    def leave(self, role: str, index: int) -> None:
        """Asks the training to give the node back; it ends when it has been released."""
        self._change(role, index, leave=True)

    def set_threads(self, role: str, index: int, threads: int) -> None:
        """Has the training tell the node how many threads shall be active (0: its own limit's)."""
        self._change(role, index, threads=threads)

    def suspend(self, on: bool = True) -> None:
        """Asks the training to pause, or to go on."""
        with self._lock:
            self._settings["suspend"] = on
            self._write()

    def terminate(self, role: str, index: int) -> None:
        """SIGTERM, as to a pod that is deleted: it drains, and goes on until it is released."""
        self._signal(role, index, signal.SIGTERM)

    def kill(self, role: str, index: int) -> None:
        """SIGKILL. The node is no member any more when this returns."""
        node = self._signal(role, index, signal.SIGKILL)
        node.process.wait()
        self._forget(node)

    def stop(self, role: str, index: int, timeout: float = 30.0) -> int:
        """Gives the node back the polite way and waits for its end; returns its status. After
        `timeout` seconds it is killed.
        """
        self.leave(role, index)
        node = self._signal(role, index, signal.SIGTERM)
        return self.wait(node, timeout)

    def wait(self, node: Node, timeout: float = 30.0) -> int:
        """Waits for a node's end and returns its status; kills it after `timeout` seconds."""
        try:
            node.process.wait(timeout)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
        self._forget(node)
        return node.process.returncode

    def close(self) -> None:
        """Ends every node, and removes the directory unless it was given."""
        with self._lock:
            nodes = list(self.nodes.values())
        for node in nodes:
            node.process.kill()
        for node in nodes:
            node.process.wait()
            self._forget(node)
        if self._own:
            shutil.rmtree(self._own, ignore_errors=True)

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # -- inside --

    def _start(
        self, wanted: List[Tuple[str, int]], wrapper: List[str], host: str = "127.0.0.1"
    ) -> List[Node]:
        nodes = [self._spawn(role, threads, wrapper, host) for role, threads in wanted]
        for node in nodes:
            node.wait_listening()
        with self._lock:
            self._write()
        return nodes

    def _spawn(self, role: str, threads: int, wrapper: List[str], host: str) -> Node:
        with self._lock:
            index = self._next[role]
            self._next[role] += 1
        node = Node(role, index, threads, self.directory / f"{role}-{index}.log", host)
        command = [*wrapper, self._program, "--job", "local", "--role", role, "--index", index]
        command += ["--port", 0, "--control-port", 0, "--bind", host, "--threads", threads]
        command += ["--tensorflow", self._tensorflow, "--lifeline"]
        with open(node.log, "wb") as log:
            # The other end of its standard input is ours alone: it does not outlive us.
            node.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._env},
            )
        with self._lock:
            self.nodes[role, index] = node
        threading.Thread(target=self._watch, args=(node,), daemon=True).start()
        return node

    def _watch(self, node: Node) -> None:
        node.process.wait()
        self._forget(node)

    def _forget(self, node: Node) -> None:
        with self._lock:
            if self.nodes.pop((node.role, node.index), None):
                node.process.stdin.close()
                self._write()

    def _signal(self, role: str, index: int, number: int) -> Node:
        node = self.nodes[role, index]
        node.process.send_signal(number)
        return node

    def _change(self, role: str, index: int, **values) -> None:
        with self._lock:
            for name, value in values.items():
                setattr(self.nodes[role, index], name, value)
            self._write()

    def _write(self) -> None:
        """Replaces the file in one step, with a later time than before whatever the clock says."""
        if not self.directory.is_dir():  # closed
            return
        self._generation += 1
        members: dict = {"generation": self._generation, **self._settings, "ps": [], "worker": []}
        for node in self.nodes.values():
            if node.port:
                members[node.role].append(node.member())
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(members, indent=1) + "\n")
        self._stamp_ns = max(self._stamp_ns + 1, time.time_ns())
        os.utime(new, ns=(self._stamp_ns, self._stamp_ns))
        new.replace(self.path)
