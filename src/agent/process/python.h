/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Safe points of a Python program: the main thread is between two bytecodes, in no call of a
 * library. The backends of runtimes that may change there only (OpenMP, PyTorch) ask for one.
 */
#pragma once

#include <stdbool.h>

/* Is CPython in this process, initialized, and with a GIL? Any thread. */
bool python_is_here(void);

/*
 * Runs @fn once, on Python's main thread and with the GIL, as soon as that thread comes to a safe
 * point. Control thread. Returns false when it cannot be asked for now: try again later. @fn may
 * run in the child of a fork too, whose queue of calls is a copy.
 */
bool python_call_soon(int (*fn)(void *));

/* The process's main thread sleeps in a system call. It comes to a safe point before it calls a
 * library again, because the interpreter looks at the end of each call. Control thread. */
bool python_sleeps(void);
