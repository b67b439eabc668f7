/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many threads more may a process make? A runtime that cannot make one ends the program, so a
 * backend that has it make some reads the limits before: RLIMIT_AS, RLIMIT_DATA, RLIMIT_NPROC,
 * pids.max, and the memory that the kernel promises (vm.overcommit_memory=2). Any thread; a
 * millisecond on a machine with a thousand processes. No allocation.
 */
#pragma once

#include <stdint.h>

/* The note of a backend that has fewer threads than its target for that reason. */
#define ROOM_SHORT_NOTE "limits of the process leave no room for more threads"

/*
 * Half of what is left, and never the last 16, so that others find some, too. A limit that cannot
 * be read does not count.
 * @root: "/" normally; tests give a recorded tree. @stack_bytes: of one thread.
 */
uint32_t room_for_threads(const char *root, uint64_t stack_bytes);

/* The stack of a thread that is made without a size of its own. */
uint64_t room_stack_bytes(void);

/* The largest stack that a runtime of OpenMP may give a thread, by limits and environment. */
uint64_t room_openmp_stack_bytes(void);
