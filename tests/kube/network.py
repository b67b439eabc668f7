# SPDX-License-Identifier: Apache-2.0
"""A network for the runner's pods: a bridge in a network namespace of its own, to which every pod's
namespace, this machine and perhaps a virtual one are wired. It vanishes with the process that holds the
namespace, and that one with us. Addresses are of 198.18.0.0/15, which no real network uses. As root."""
import fcntl
import os
import pathlib
import signal
import struct
import subprocess
import threading

from daemon import GUARD_S, eventually

NETWORKS = 512
LAST_HOST = 191  # the virtual machine and its pods have the addresses from 192 on
TUN = "/dev/net/tun"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454ca, 0x2, 0x1000  # linux/if_tun.h


def run(*command, input=None):
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def hold_namespaces(name):
    """A process with namespaces of its own for network and host name, until it is killed."""
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "sh", "-c",
         'echo "$0" >/proc/sys/kernel/hostname && exec sleep infinity', name],
        stdin=subprocess.DEVNULL)
    eventually(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip() == "sleep")
    return process


def inside(process, *lines):
    """Has ip do this in the process's network namespace."""
    run("nsenter", f"--net=/proc/{process.pid}/ns/net", "ip", "-batch", "-", input="\n".join(lines))


class PodNetwork:
    """.gateway: this machine's address in it."""

    def __init__(self):
        self.lock, self.keeper = threading.Lock(), hold_namespaces("pods")
        self.next_host, self.taken = 2, set()
        for number in range(NETWORKS):
            self.name = f"tidepods{number}"
            # Its name is the claim to the addresses: the kernel gives it once.
            if subprocess.run(["ip", "link", "add", "name", self.name, "type", "veth", "peer", "name",
                               "host", "netns", str(self.keeper.pid)], capture_output=True).returncode == 0:
                break
        else:
            raise RuntimeError("no network for pods: is this root, and has the kernel veth?")
        self.prefix = f"198.{18 + number // 256}.{number % 256}"
        self.gateway = f"{self.prefix}.1"
        inside(self.keeper, "link add name pods type bridge", "link set pods up",
               "link set host up master pods")
        run("ip", "-batch", "-", input=f"address add {self.gateway}/24 dev {self.name}\n"
            f"link set {self.name} up\n")

    def attach(self, process):
        """Wires the process's network namespace; its address."""
        with self.lock:
            assert len(self.taken) < LAST_HOST - 1, "the network is full"
            while self.next_host in self.taken:
                self._advance()
            host = self.next_host
            self.taken.add(host)
            self._advance()  # the address of a pod that is gone is not the next one's
        ip = f"{self.prefix}.{host}"
        run("ip", "link", "add", "name", f"pod{host}", "netns", str(self.keeper.pid), "type", "veth",
            "peer", "name", "eth0", "netns", str(process.pid))
        inside(self.keeper, f"link set pod{host} up master pods")
        inside(process, "link set lo up", f"address add {ip}/24 dev eth0", "link set eth0 up",
               f"route add default via {self.gateway}")
        return ip

    def wire(self):
        """A descriptor for a virtual machine: what it writes there is on the bridge, and the reverse."""
        fd, name = os.open(TUN, os.O_RDWR | os.O_CLOEXEC), f"{self.name}vm"
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        run("ip", "link", "set", name, "netns", str(self.keeper.pid))
        inside(self.keeper, f"link set {name} up master pods")
        return fd

    def _advance(self):
        self.next_host = self.next_host + 1 if self.next_host < LAST_HOST else 2

    def release(self, ip):
        with self.lock:
            self.taken.discard(int(ip.rpartition(".")[2]))

    def end(self):
        os.kill(self.keeper.pid, signal.SIGKILL)
        self.keeper.wait()
        # Interfaces are removed a moment after their namespace.
        eventually(lambda: not os.path.exists(f"/sys/class/net/{self.name}"))
