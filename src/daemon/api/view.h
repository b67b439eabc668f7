/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's state as JSON, as docs/http-api.md has it. Event loop only; called by routes.c. */
#pragma once

#include <jansson.h>

struct job;
struct daemon;

/* Each is a new reference, or NULL without memory. */
json_t *view_job(const struct job *j);
json_t *view_changes(const struct job *j);
/*
 * Adds the states to what history_query() found. A job without an end that is none of ours has
 * ended while no daemon saw it: "lost", and left out when its last sign of life is older than
 * @since.
 */
void view_history(const struct daemon *d, double since, json_t *list);

json_t *view_machine(const struct daemon *d);
json_t *view_policy(const struct daemon *d);
