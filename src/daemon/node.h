/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's one state, and the ways its modules wake each other. Everything runs in one
 * single-threaded sd-event loop: observe → snapshot → policy_decide() → plan → actuate.
 */
#pragma once

#include "base/cpuset.h"
#include "base/rundir.h"
#include "daemon/api/metrics.h"
#include "daemon/config.h"
#include "daemon/containers/container.h"
#include "daemon/job/job.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/topology.h"
#include "policy/core/policy.h"

#include <systemd/sd-event.h>

#define NODE_LEASE_MS         1000
#define NODE_HEARTBEAT_MS     250 /* and what may be chosen: agents go no faster, leases must last */
#define NODE_HEARTBEAT_MIN_MS 100
#define NODE_HEARTBEAT_MAX_MS 500
#define NODE_WAIT_MS          5000  /* a WAIT's deadline when none is given */
#define NODE_WAIT_MAX_MS      60000 /* and the longest */

struct link;
struct api;
struct guardian;
struct groups;
struct claims;
struct containers;
struct decision;
struct events;
struct history;
struct wait;

struct node {
    sd_event *event;
    sd_event_source *replan_source, *store_source, *deadline_source, *tick_source, *exit_source;
    int root; /* "/" */
    int dir_fd, lock_fd;
    char dir[RUNDIR_PATH_MAX];
    uid_t uid;
    gid_t admin_gid; /* CONFIG_NOBODY: none */
    bool auto_exit, ending, had_jobs;
    bool policy_ordered; /* on the command line */
    bool cpus_made_up;   /* not all are online: a larger machine is played */
    uint32_t heartbeat_ms;
    uint64_t epoch, generation;
    struct topology topology;
    struct cpuset cpus;    /* the machine's CPUs that this daemon may give out */
    struct cpuset usable;  /* those that other users' daemons leave to it */
    uint64_t memory_bytes; /* that jobs may have together; 0: not counted */
    uint64_t usage_ns;     /* when the next look at all processes is due */
    enum placement placement;
    struct config config;
    const struct config_source *source; /* of @config; borrowed */
    struct job_table jobs;
    struct cgroup *cgroup;
    bool weights, cpusets; /* may be written */
    char group[CGROUP_NAME_MAX];
    char weights_note[ERROR_TEXT_MAX]; /* why not */
    struct decision *decision;         /* the policy and its state */
    struct guardian *guardian;
    struct groups *groups;
    struct claims *claims;
    struct link *link;
    struct containers *containers; /* of each engine that is watched */
    struct api *api;
    struct events *events;
    struct history *history; /* NULL: none is kept */
    struct {
        uint64_t at_ns, ns;
        bool scarce;
    } busy; /* the machine's processors, parts.c's */
    struct metrics metrics;
    char told_policy[POLICY_SPEC_TEXT_MAX]; /* chronicle.c's */
    struct epilogue *epilogues;             /* chronicle.c's, oldest first */
    struct wait *waits;
    struct adoption *adoptions; /* that wait for an engine */
    uint64_t wait_ids;
    uint32_t ended[PROTO_JOBS_MAX]; /* numbers of jobs whose files are to be removed */
    unsigned n_ended;
    int store_error; /* the last one: logged once */
};

struct node_options {
    char dir[RUNDIR_PATH_MAX]; /* empty: rundir_user() */
    bool auto_exit;
    bool policy_ordered; /* on the command line: goes before the one set last */
    struct config config;
    const struct config_source *source; /* what it was made from, for SIGHUP */
};

/*
 * Runs a daemon until SIGTERM or SIGINT; tells systemd, if that is what started it. SIGHUP reads
 * the configuration again, and ends a daemon that has no file of it. Returns 0, or -errno with *err
 * for a person.
 */
int node_run(const struct node_options *options, struct error *err);

/* ---- wake-ups ---- */

/* Something that a decision rests on changed: decide again before the loop sleeps. */
void node_changed(struct node *n);

/* Decide and act now, for orders that are waiting. */
void node_replan(struct node *n);

/* A job joined, changed or left: write it down when there is time. */
void node_store_later(struct node *n);

/* One line on stderr, the daemon's log; at most NODE_LOG_BURST lines in ten seconds. */
#define NODE_LOG_BURST 40
__attribute__((format(printf, 1, 2))) void node_log(const char *fmt, ...);
