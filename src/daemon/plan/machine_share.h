/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides one machine among several daemons through a directory with a file for each daemon that
 * has jobs. No daemon commands another: each reads all files and takes its part.
 *   file  <uid>-<pid>-<random>     text  "2 <pid> <jobs> <used> <cores>\n"
 * <used> counts the cores that its jobs have, <cores> lists those of its exclusive jobs. A file
 * counts while its writer holds a lock on it and its owner is the user of that process.
 *
 * Root's daemon comes first and ignores users' files. Users' daemons divide the cores that its jobs
 * leave: equally by user, however many files or jobs a user has; then by jobs among the daemons of
 * one user.
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
#define MACHINE_SHARE_MAX     64                     /* other daemons taken into account */
#define MACHINE_SHARE_UID_MAX 8                      /* of these, of one user */

struct share_claim {
    uid_t uid; /* owner of the file */
    pid_t pid;
    uint32_t jobs;
    uint32_t used;
    struct cpuset cores;
};

struct machine_share;
struct daemon;

/* Parses a file's text, all but the user. Returns 0 or -EINVAL. */
int machine_share_parse(const char *text, struct share_claim *ret);

/*
 * Number of cores of @cpus for the daemon @self of @all (in any order), at least 1: equal for all
 * users, then in proportion to jobs by largest remainder. Every daemon computes the same from the
 * same files.
 */
unsigned machine_share_divide(const struct share_claim *all, size_t n,
                              const struct share_claim *self, unsigned cpus);

/*
 * CPUs of @machine that @self of @all may give out: all but those that others hold, of each user at
 * most as many as that user's share. If two daemons took one core at the same moment, the later by
 * uid and pid gives it up. Never empty.
 */
void machine_share_usable(const struct share_claim *all, size_t n, const struct share_claim *self,
                          const struct cpuset *machine, struct cpuset *ret);

/* Opens (or makes) the directory. Returns 0, or -errno: this daemon then sees no other. */
int machine_share_new(struct daemon *d, struct machine_share **ret, struct error *err);
struct machine_share *
machine_share_free(struct machine_share *s); /* takes NULL, returns NULL; removes our file */

/* Writes our file, or removes it without jobs. A failure is logged once. */
void machine_share_publish(struct machine_share *s, uint32_t jobs, uint32_t used,
                           const struct cpuset *cores);

/*
 * Our part of @machine: how many cores, and which ones (without others' exclusive ones). @jobs: the
 * number of our jobs.
 */
unsigned machine_share_take(struct machine_share *s, uint32_t jobs, const struct cpuset *machine,
                            struct cpuset *ret_usable);

/* Other daemons have jobs: look again regularly, as nothing reports their deaths. */
bool machine_share_shared(const struct machine_share *s);

/* Reads the files again; returns true if something changed. */
bool machine_share_refresh(struct machine_share *s);
