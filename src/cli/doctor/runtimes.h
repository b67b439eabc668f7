/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtimes of a process for people: their names, versions, and whether their threads can be
 * changed. One place for `tide doctor` and `tide explain`; both read with the caller's own rights.
 * Single-threaded.
 */
#pragma once

#include "cli/doctor/diagnose.h"

#include <jansson.h>

/* Finds the runtimes that @pid has mapped or contains. 0, -ESRCH, -EACCES (another's) or -errno. */
int runtimes_read(int root, pid_t pid, struct proc_runtimes *ret);

/*
 * A list of {name, version, copies, malleable, kind, why, reported, max, active, inter, variable,
 * except}. @backends is what the agent has reported about runtimes of the process, in the daemon's
 * form, and goes before what is known of a runtime in general; NULL: nothing. Only the agent knows
 * the size of a pool: max, active and inter (TensorFlow's second pool) are null without its report,
 * and `except` then names the programs whose threads it would leave alone. `variable` is what the
 * process was started with ("OMP_NUM_THREADS=8").
 */
json_t *runtimes_json(int root, const struct proc_runtimes *found, const json_t *backends,
                      pid_t pid);

/* Prints a line for each: "@label  openblas 0.3.31, 2 copies: malleable (why), pool of 8, 3
 * active". */
void runtimes_print(const json_t *list, const char *label);

/* The variables with which tide sized @pid at its start, {"OMP_NUM_THREADS": "2"}; NULL: none. */
json_t *runtimes_started(int root, pid_t pid);
