/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of tide-slurm to the plugin: changes of the task's environment. A record is
 * "NAME=VALUE" (set it) or "NAME" (remove it), each with a NUL behind it; an empty record ends the
 * answer, so that half an answer is none. Pure.
 */
#pragma once

#include <stddef.h>

#define RECORD_BYTES_MAX (256u << 10)

/* True if @text is a whole answer. Ask before the first record_next(). */
int record_whole(const char *text, size_t size);

/*
 * Takes the next record from *at, which it moves on, and cuts it at its "=". Returns 1 with the
 * name and the value (NULL: remove it), 0 at the end. A record without a name is left out.
 */
int record_next(char **at, char **ret_name, char **ret_value);
