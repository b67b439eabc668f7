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
 * True if no call of code in [@start, @end) is under way on this thread, and the whole stack could
 * be read. After stack_prepare(); some ten microseconds.
 */
bool stack_is_free_of(uintptr_t start, uintptr_t end);
