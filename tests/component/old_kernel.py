#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program as if the kernel were Linux 4.18: calls that it did not have yet fail with ENOSYS, and sockets know no
SO_PEERPIDFD. A seccomp filter does that; it stays with the program's children.

    old_kernel.py PROGRAM [ARGUMENT…]
"""
import ctypes
import errno
import os
import platform
import struct
import sys

LAST_CALL, GETSOCKOPT, ARCHITECTURE = {"x86_64": (334, 55, 0xC000003E), "aarch64": (293, 209, 0xC00000B7)}[platform.machine()]
SO_PEERPIDFD = 77
NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2
LOAD, EQUAL, GREATER, RETURN = 0x20, 0x15, 0x25, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
OF_CALL, OF_ARCHITECTURE, OF_THIRD = 0, 4, 32  # in struct seccomp_data


def install():
    """For the calling thread and all that it starts."""
    program = [
        (LOAD, 0, 0, OF_ARCHITECTURE),
        (EQUAL, 0, 5, ARCHITECTURE),       # 32-bit programs are left alone
        (LOAD, 0, 0, OF_CALL),
        (GREATER, 4, 0, LAST_CALL),
        (EQUAL, 0, 2, GETSOCKOPT),
        (LOAD, 0, 0, OF_THIRD),
        (EQUAL, 2, 0, SO_PEERPIDFD),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERROR | errno.ENOSYS),
        (RETURN, 0, 0, ERROR | errno.ENOPROTOOPT),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    libc = ctypes.CDLL(None, use_errno=True)
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    for words in ((NO_NEW_PRIVS, 1, 0, 0, 0), (SET_SECCOMP, FILTER, ctypes.addressof(fprog), 0, 0)):
        # The filter needs no privilege of a process that can gain none; root does without that, so that setuid programs work.
        if words[0] == NO_NEW_PRIVS and os.geteuid() == 0:
            continue
        if libc.prctl(*(ctypes.c_ulong(word) for word in words)) != 0:
            sys.exit(f"old_kernel: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    install()
    os.execvp(sys.argv[1], sys.argv[1:])
