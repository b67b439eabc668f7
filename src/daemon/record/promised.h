/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Knowledge of servers with promises of latency: a table in memory of PROMISED_MAX rows, and
 * the file `promises` beside the record of jobs, which mirrors it. A row is of a user and a name of
 * jobs. It says how fast requests were, with how many cores, and whether a promise was kept; so a
 * promise can be judged when it is given. Without the file the table lasts as long as the daemon.
 *
 * Daemon's event loop only; called by daemon.c whenever the chronicle is, and by api/.
 */
#pragma once

#include "policy/core/promise_known.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROMISED_FILE "promises"
#define PROMISED_MAX  256
#define PROMISED_OWN  64 /* rows of one user */
#define PROMISED_WRITE_NS                                                                          \
    UINT64_C(60000000000) /* shortest time between two writes but for jobs that end */
#define PROMISED_TEXT_MAX 160

struct attributes;
struct daemon;
struct job;
struct promised;

/* Reads the file in the directory @fd, which stays the caller's. 0 or -ENOMEM. */
int promised_new(int fd, struct promised **ret);
struct promised *
promised_free(struct promised *p); /* writes what waits; takes NULL, returns NULL */

/* Takes over what jobs with a promise have shown in the last second; writes it when one has ended.
 */
void promised_look(struct daemon *d);

struct promised_verdict {
    enum promise_keepable keepable;
    char text[PROMISED_TEXT_MAX]; /* what it rests on: "the fastest of 310 requests took …" */
};

/*
 * Judges the promise in @asked for a new job of user @uid that process @pid begins under @name
 * (NULL: none), or for job @j, whose name and user count then.
 */
void promised_judge(const struct daemon *d, const struct job *j, uid_t uid, const char *name,
                    pid_t pid, const struct attributes *asked, struct promised_verdict *ret);

const char *promised_keepable_name(enum promise_keepable keepable); /* "yes", "no", "unknown" */

/* Length of the part of @name that runs share: without "-PID" behind it. */
unsigned promised_name_len(const char *name, pid_t pid);
