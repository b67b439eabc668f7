/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the daemons of several users divide one machine: a directory for all of them, a file per
 * daemon that has jobs. Nobody commands anybody: each reads the others' files and takes its part.
 *   file  <uid>-<pid>     text  "1 <uid> <pid> <start> <jobs> <cores>\n"
 * A file counts when it is regular, belongs to the uid it names, and its process lives. Cores are
 * those that its exclusive jobs hold.
 * Daemon's event loop only; machine_share_parse and machine_share_divide are pure.
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
#define MACHINE_SHARE_UID_MAX 8 /* of one user: nobody gets more by many files */

struct share_claim {
    uid_t uid;
    pid_t pid;
    uint64_t start;
    uint32_t jobs;
    struct cpuset cores;
};

struct machine_share;
struct daemon;

/* Parses a file's text. Returns 0 or -EINVAL. */
int machine_share_parse(const char *text, struct share_claim *ret);

/*
 * Cores of @cpus for the daemon @self of @all (in any order): in proportion to the jobs, by largest
 * remainder, at least 1 each. Every daemon computes the same from the same files.
 */
unsigned machine_share_divide(const struct share_claim *all, size_t d,
                              const struct share_claim *self, unsigned cpus);

/*
 * CPUs of @machine that @self may give out: not those that @others hold. Of two that took the same
 * core at the same moment, the later in the order of uid and pid gives it up. Never empty.
 */
void machine_share_usable(const struct share_claim *others, size_t d,
                          const struct share_claim *self, const struct cpuset *machine,
                          struct cpuset *ret);

/* Opens (and makes) the directory and watches it. Returns 0 or -errno: this daemon then sees
 * nobody, and says so. */
int machine_share_new(struct daemon *d, struct machine_share **ret, struct error *err);
struct machine_share *
machine_share_free(struct machine_share *c); /* takes NULL, returns NULL; removes our file */

/* Writes our claim; without jobs its file goes. A failure is logged once. */
void machine_share_publish(struct machine_share *c, uint32_t jobs, const struct cpuset *cores);

/*
 * What is ours of @machine: how many cores, and which may be given out (others' exclusive ones are
 * not). @jobs is the number we have now.
 */
unsigned machine_share_share(struct machine_share *c, uint32_t jobs, const struct cpuset *machine,
                             struct cpuset *ret_usable);

/* Others have jobs: their deaths are seen by looking again. */
bool machine_share_shared(const struct machine_share *c);

/* Reads the files again; true if something changed. */
bool machine_share_refresh(struct machine_share *c);
