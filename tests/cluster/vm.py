#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command of the project in a virtual machine with pure cgroup v2 that image.py has made.

usage: vm.py [OPTION…] OUT COMMAND

The machine is emulated (qemu's TCG), so that it needs no /dev/kvm; ten to twenty times slower than
this one. COMMAND is for bash, in the project's directory. What it prints appears as it comes; what
it leaves in results/ is in --results afterwards; its exit status is ours. A machine that panics,
hangs, says nothing for --silence seconds or ends otherwise fails with the end of its console.
"""
import argparse
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

RESULTS_BYTES = 64 << 20
CONSOLE_LINES = 40
# So many emulated CPUs at most run side by side; more take turns. qemu (seen: 7.2) may translate code while another
# CPU rewrites it, and keep the old: Linux rewrites functions that all idle CPUs call, and these met its breakpoint
# there for ever, though the memory had none any more, in three of six starts with 64 CPUs on a busy machine.
SIDE_BY_SIDE_MAX = 16
CPU = "max,vendor=GenuineIntel"  # of AMD's, as which qemu would pose, none has threads
# No waiting for grace periods, no tests of ciphers, no profiles that Docker would have to load.
KERNEL = ("console=ttyS0 quiet panic=-1 mitigations=off rcupdate.rcu_expedited=1 cryptomgr.notests "
          "apparmor=0 systemd.unit=check.target systemd.unified_cgroup_hierarchy=1 "
          "systemd.show_status=0")
# On the console: nothing good comes after these.
FATAL = (b"Kernel panic", b"Attempted to kill init")


def topology(options):
    """-smp and, with several NUMA nodes, which CPUs and how much memory each has."""
    per_node = options.cpus // options.nodes
    words = ["-smp", f"{options.cpus},sockets={options.nodes},threads={options.threads},"
             f"cores={per_node // options.threads}"]
    if options.nodes > 1:
        for node in range(options.nodes):
            words += ["-object", f"memory-backend-ram,id=m{node},size={options.memory // options.nodes}M",
                      "-numa", f"node,nodeid={node},memdev=m{node},"
                      f"cpus={node * per_node}-{(node + 1) * per_node - 1}"]
    return words


def qemu(options, folder):
    out = options.out
    init = "/lib/systemd/systemd" if options.systemd else "/vm/init"
    network = f"tap,fd={options.wire},model=virtio-net-pci" if options.wire else "none"
    thread = "multi" if options.cpus <= SIDE_BY_SIDE_MAX else "single"
    return ["qemu-system-x86_64", "-accel", f"tcg,thread={thread}", "-cpu", CPU,
            *topology(options), "-m", str(options.memory), "-display", "none", "-no-reboot",
            "-nodefaults", "-nic", network, "-kernel", str(out / "vmlinuz"),
            "-initrd", str(out / "initrd"), "-append", f"{KERNEL} tide.init={init}",
            "-drive", f"file={out}/disk.img,format=raw,if=virtio,snapshot=on",
            "-drive", f"file={folder}/project.tar,format=raw,if=virtio,readonly=on",
            "-drive", f"file={folder}/results,format=raw,if=virtio",
            *(["-drive", f"file={options.drive},format=raw,if=virtio,readonly=on"] * bool(options.drive)),
            "-serial", f"file:{options.console}", "-serial", "stdio"]


def add_command(path, command):
    """Appends project/command to the archive, which the machine unpacks in order."""
    with tempfile.NamedTemporaryFile("w") as file, tarfile.open(path, "a") as tar:
        file.write(command + "\n")
        file.flush()
        tar.add(file.name, "project/command")


def fatal(console):
    text = console.read_bytes() if console.exists() else b""
    return any(word in text for word in FATAL)


def watch(process, options):
    """Passes on what the machine says until it is off. Returns None, or what went wrong."""
    end, death, parent = time.monotonic() + options.limit, None, os.getppid()
    said = time.monotonic()
    while True:
        if os.getppid() != parent:
            return "the program that started it has ended"
        if select.select([process.stdout], [], [], 0.5)[0]:
            data = process.stdout.read1()
            if not data:
                return None
            sys.stdout.buffer.write(data.replace(b"\r\n", b"\n"))
            sys.stdout.flush()
            said = time.monotonic()
        elif fatal(options.console):
            # A panic's last words take a moment.
            death = death or time.monotonic() + 3
            if time.monotonic() > death:
                return "its kernel panicked"
        if time.monotonic() > end:
            return f"it did not end within {options.limit} s"
        if time.monotonic() - said > options.silence:
            return f"it said nothing for {options.silence} s"


def run(options, folder):
    shutil.copy(options.out / "project.tar", folder)
    add_command(folder / "project.tar", options.command)
    with open(folder / "results", "wb") as file:
        file.truncate(RESULTS_BYTES)
    options.console.unlink(missing_ok=True)
    with subprocess.Popen(qemu(options, folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          pass_fds=[options.wire] if options.wire else []) as process:
        try:
            trouble = watch(process, options)
        finally:
            process.kill()
    if trouble is None and process.returncode not in (0, -signal.SIGKILL):
        trouble = f"qemu ended with {process.returncode}"
    options.results.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(folder / "results") as tar:
            for entry in tar:
                if entry.isfile():
                    target = options.results / pathlib.Path(entry.name).name
                    target.write_bytes(tar.extractfile(entry).read())
        return trouble, int((options.results / "status").read_text())
    except (tarfile.ReadError, FileNotFoundError):
        return trouble or "it left no results", 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cpus", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="of a core")
    parser.add_argument("--nodes", type=int, default=1, help="sockets, each a NUMA node")
    parser.add_argument("--memory", type=int, default=3072, help="MiB")
    parser.add_argument("--systemd", action="store_true", help="as process 1")
    parser.add_argument("--wire", type=int, help="its network: the descriptor of a tap device")
    parser.add_argument("--drive", type=pathlib.Path, help="one more, read-only: /dev/vdd")
    parser.add_argument("--limit", type=int, default=600, help="seconds")
    parser.add_argument("--silence", type=int, default=600, help="seconds without a word that it may take")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--console", type=pathlib.Path, help="what its kernel says (RESULTS/console)")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("command")
    options = parser.parse_args()
    options.console = options.console or options.results / "console"
    return options


def main():
    options = arguments()
    shutil.rmtree(options.results, ignore_errors=True)
    options.results.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no machine is left behind
    with tempfile.TemporaryDirectory(dir=options.results) as folder:
        trouble, status = run(options, pathlib.Path(folder))
    if trouble:
        print(f"vm: {trouble}; its console ended:")
        lines = options.console.read_text(errors="replace").splitlines()
        print(*(f"    {line}" for line in lines[-CONSOLE_LINES:]), sep="\n")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
