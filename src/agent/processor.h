/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor that the agent is compiled for, as far as it knows it. Code that depends on it asks
 * here: another processor is one more branch. A runtime that cannot be followed without one of
 * these is left alone, and the note of its backend says PROCESSOR_NOTE.
 *
 *   PROCESSOR_SLOT_CALL, _SLOT_DATA  relocations that fill an address into an object's slot
 *   PROCESSOR_FIRST_GLIBC            version of symbols that glibc has had from its beginning here
 *   PROCESSOR_CODE_MASK              the bits of a return address on the stack that are an address;
 *                                    the others may be a signature (pointer authentication)
 *   PROCESSOR_ORDERS_WRITES          others see a core's writes in their order, without a fence
 *   PROCESSOR_RESULT_IS_ARGUMENT     a class that is returned by value is written through a hidden
 *                                    first argument, so a function in C can stand for such a one
 *   PROCESSOR_CODE_IS_KNOWN          compilers' code can be read, and there are stubs in assembler
 */
#pragma once

#define PROCESSOR_NOTE "moldable: not supported on this processor"

#if defined(__x86_64__)
#define PROCESSOR_SLOT_CALL          R_X86_64_JUMP_SLOT
#define PROCESSOR_SLOT_DATA          R_X86_64_GLOB_DAT
#define PROCESSOR_FIRST_GLIBC        "GLIBC_2.2.5"
#define PROCESSOR_CODE_MASK          UINTPTR_MAX
#define PROCESSOR_ORDERS_WRITES      1
#define PROCESSOR_RESULT_IS_ARGUMENT 1
#define PROCESSOR_CODE_IS_KNOWN      1
#elif defined(__aarch64__)
#define PROCESSOR_SLOT_CALL          R_AARCH64_JUMP_SLOT
#define PROCESSOR_SLOT_DATA          R_AARCH64_GLOB_DAT
#define PROCESSOR_FIRST_GLIBC        "GLIBC_2.17"
#define PROCESSOR_CODE_MASK          ((UINT64_C(1) << 48) - 1)
#define PROCESSOR_ORDERS_WRITES      0
#define PROCESSOR_RESULT_IS_ARGUMENT 0 /* its address has a register of its own, x8 */
#define PROCESSOR_CODE_IS_KNOWN      0
#else
#error "The agent does not know this processor: describe it here."
#endif
