/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's stack, as the unwinder of C++ exceptions sees it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Finds the unwinder, which lies in libgcc_s: whoever throws exceptions has it. Control thread.
 * Returns false when it is not here.
 */
bool stack_prepare(void);

/*
 * True if no call of code in [@start, @end) is under way on this thread, and its stack could be
 * read up to the thread's beginning. After stack_prepare(); some ten microseconds. Stacks that the
 * program has made for itself (greenlets) are not seen.
 */
bool stack_is_free_of(uintptr_t start, uintptr_t end);

/*
 * The same for another thread, which sleeps in a system call; false when it does not. No word of
 * its stack is an address in the range, which is more than is needed. Control thread.
 */
bool stack_of_sleeper_is_free_of(int tid, uintptr_t start, uintptr_t end);
