/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as rows of a table on stdout. Single-threaded; used by `tide ps` and `tide queue`. */
#pragma once

#include "cli/views/job_text.h"

/* Prints @jobs, the daemon's array, with the columns @fields. 0 or -ENOMEM. */
int job_table_print(const json_t *jobs, const enum job_field *fields, size_t n);

/* Prints one member of each job, one a line; returns CLI_OK. */
int job_table_members(const json_t *jobs, const char *key);
