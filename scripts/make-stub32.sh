#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/make-stub32.sh OUTPUT
# An empty 32-bit shared library: what ld.so preloads into a 32-bit program in place of the agent,
# so that it does not complain about a missing or 64-bit one. Plain binutils, no 32-bit compiler.
set -eu
object=$1.o
trap 'rm -f "$object"' EXIT
echo '.section .note.GNU-stack,"",@progbits' | as --32 -o "$object" -
ld -m elf_i386 -shared -s --hash-style=both -z noexecstack -soname libtide-agent.so -o "$1" "$object"
