# SPDX-License-Identifier: Apache-2.0
"""Ends this process's TCP connections to an address, whoever in it opened them.

A machine without power neither resets connections nor answers: what TensorFlow sent it would stay
unanswered for a quarter of an hour, and steps with it. gRPC sees the end of a socket at once.
"""

import contextlib
import ipaddress
import os
import socket
import sys

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_ALIVE = {"01", "02", "08"}  # established, being established, closed by the peer


def _hex(address, port):
    """How the kernel's tables write it: words of four bytes in the machine's order."""
    packed = ipaddress.ip_address(address).packed
    words = [packed[i:i + 4] for i in range(0, len(packed), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return f"{b''.join(words).hex().upper()}:{port:04X}"


def _forms(address, port):
    """An IPv6 socket may be connected to an IPv4 address."""
    return {_hex(form, port) for form in (
        [address] if ":" in address else [address, f"::ffff:{address}"])}


def _inodes(peers):
    found = set()
    for table in _TABLES:
        with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as lines:
            for line in lines:
                words = line.split()
                if words[2] in peers and words[3] in _ALIVE:
                    found.add(int(words[9]))
    return found


def disconnect(address, port):
    """Ends all connections to @address, @port, also those that are only begun; returns how many."""
    inodes, ended = _inodes(_forms(address, port)), 0
    for name in os.listdir("/proc/self/fd") if inodes else ():
        with contextlib.suppress(OSError):
            ended += _end(int(name), inodes)
    return ended


def _end(number, inodes):
    """Ends the connection behind descriptor @number if it is one of @inodes. Through a descriptor
    of our own, since TensorFlow may close this one and open another at any moment."""
    fd = os.dup(number)
    try:
        if os.fstat(fd).st_ino not in inodes:
            return 0
        with socket.socket(fileno=fd) as connection:
            fd = -1
            connection.shutdown(socket.SHUT_RDWR)
        return 1
    finally:
        if fd >= 0:
            os.close(fd)
