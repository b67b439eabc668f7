/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program and reads what it writes, within a time. Called in a task's process between
 * fork() and execve() of slurmstepd, as the task's user: one thread, no child of its own yet.
 */
#pragma once

#include <stddef.h>

/*
 * Runs argv[0] with @envp; its stderr is the task's. Reads its stdout into @buf. Returns the number
 * of bytes, -ETIMEDOUT after @timeout_ms (the program was killed), -EMSGSIZE (@size bytes or more),
 * -ECHILD (it ended with another status than 0, or could not be executed), or -errno.
 */
long helper_run(char *const argv[], char *const envp[], unsigned timeout_ms, char *buf,
                size_t size);
