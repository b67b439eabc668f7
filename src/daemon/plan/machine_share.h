/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How several daemons divide one machine: a directory for all of them, a file per daemon that has
 * jobs. Nobody commands anybody: each reads the others' files and takes its part.
 *   file  <uid>-<pid>-<random>     text  "2 <pid> <jobs> <used> <cores>\n"
 * <used> are the cores that its jobs have, <cores> those that its exclusive jobs hold. A file
 * counts while its writer holds a lock on it, and if its owner is the user of that process.
 *
 * Root's daemon comes first: it looks at no user's file, and users' daemons divide the cores that
 * its jobs leave. They divide them by user, however many files or jobs a user has; then by jobs
 * among the daemons of one user.
 *
 * Daemon's event loop only; parse, divide and usable are pure.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define MACHINE_SHARE_DIR     "/dev/shm/tide-claims" /* $TIDE_CLAIMS_DIR in tests */
#define MACHINE_SHARE_MAX     64                     /* other daemons looked at */
#define MACHINE_SHARE_UID_MAX 8                      /* of one user */

struct share_claim {
    uid_t uid; /* the file's owner */
    pid_t pid;
    uint32_t jobs;
    uint32_t used;
    struct cpuset cores;
};

struct machine_share;
struct daemon;

/* Parses a file's text: everything but the user. Returns 0 or -EINVAL. */
int machine_share_parse(const char *text, struct share_claim *ret);

/*
 * Cores of @cpus for the daemon @self of @all (in any order), at least 1 each: equal for all users,
 * then in proportion to jobs by largest remainder. Every daemon computes the same from the same
 * files.
 */
unsigned machine_share_divide(const struct share_claim *all, size_t n,
                              const struct share_claim *self, unsigned cpus);

/*
 * CPUs of @machine that @self of @all may give out: not those that others hold, as many of each
 * user as that user's share. Of two that took the same core at the same moment, the later in the
 * order of uid and pid gives it up. Never empty.
 */
void machine_share_usable(const struct share_claim *all, size_t n, const struct share_claim *self,
                          const struct cpuset *machine, struct cpuset *ret);

/* Opens (and makes) the directory and watches it. Returns 0 or -errno: this daemon then sees
 * nobody, and says so. */
int machine_share_new(struct daemon *d, struct machine_share **ret, struct error *err);
struct machine_share *
machine_share_free(struct machine_share *s); /* takes NULL, returns NULL; removes our file */

/* Writes our claim; without jobs its file goes. A failure is logged once. */
void machine_share_publish(struct machine_share *s, uint32_t jobs, uint32_t used,
                           const struct cpuset *cores);

/*
 * What is ours of @machine: how many cores, and which may be given out (others' exclusive ones are
 * not). @jobs is the number we have now.
 */
unsigned machine_share_take(struct machine_share *s, uint32_t jobs, const struct cpuset *machine,
                            struct cpuset *ret_usable);

/* Others have jobs: their deaths are seen by looking again. */
bool machine_share_shared(const struct machine_share *s);

/* Reads the files again; true if something changed. */
bool machine_share_refresh(struct machine_share *s);
