# SPDX-License-Identifier: Apache-2.0
# A 32-bit program without a C library: exit(42).
    .globl _start
_start:
    movl $1, %eax
    movl $42, %ebx
    int $0x80
    .section .note.GNU-stack, "", @progbits
