/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's state as JSON, as docs/http-api.md has it. Event loop only; called by routes.c. */
#pragma once

#include <jansson.h>

struct caller;
struct job;
struct daemon;
struct promised_verdict;

#define VIEW_NOTE_MAX 384

/* Each is a new reference, or NULL without memory. @who asks: a job's energy is not for everybody.
 */
json_t *view_job(const struct job *j, const struct caller *who);
json_t *view_changes(const struct job *j);
/*
 * Adds states to what a search of the history has found (history_search_go()). A job without an end
 * that this daemon does not have ended while no daemon ran: "lost". It is left out if its last
 * event is before @since.
 */
void view_history(const struct daemon *d, double since, json_t *list);

/* Tells also whether @who may change everybody's jobs, the policy and power caps. */
json_t *view_machine(const struct daemon *d, const struct caller *who);
json_t *view_policy(const struct daemon *d);

/*
 * In view_promise.c: whether its promise can be kept, null without one; a line that warns where it
 * cannot, else ""; and the same for a job that has just begun, with what else is to be said of it.
 */
json_t *view_promise(const struct job *j);
const char *view_promise_note(const struct job *j, char ret[VIEW_NOTE_MAX]);
const char *view_begun(const struct job *j, const struct promised_verdict *v,
                       char ret[VIEW_NOTE_MAX]);

/* In view_power.c: the machine's power and its parts, and the jobs whose energy @who may see. */
json_t *view_power(const struct daemon *d, const struct caller *who);
json_t *view_power_sources(const struct daemon *d, const struct caller *who);
/* Members of a job; each null where its energy is unknown or none of @who's business. */
json_t *view_job_energy(const struct job *j, const struct caller *who);
