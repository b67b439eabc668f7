/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's state: the machine, and a pointer to each module's private state. daemon.c, the
 * composition root, makes the modules and connects them. Everything runs in one single-threaded
 * sd-event loop: observe → snapshot → policy_decide() → plan → actuate.
 */
#pragma once

#include "base/cpuset.h"
#include "base/rundir.h"
#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/wake.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/topology.h"
#include "policy/core/policy.h"
#include "proto/attribute.h"

#include <systemd/sd-event.h>

#define DAEMON_LEASE_MS     1000
#define DAEMON_HEARTBEAT_MS 250
/* Bounds of the heartbeat that may be chosen: agents go no faster, and leases must last. */
#define DAEMON_HEARTBEAT_MIN_MS 100
#define DAEMON_HEARTBEAT_MAX_MS 500
#define DAEMON_WAIT_MS          5000  /* default deadline of a WAIT */
#define DAEMON_WAIT_MAX_MS      60000 /* its longest deadline */

struct adoption;
struct api;
struct chronicle;
struct agent_socket;
struct curves;
struct promised;
struct guardian;
struct balance;
struct idle;
struct job_groups;
struct machine_share;
struct meter;
struct power_caps;
struct backstop;
struct containers;
struct decision;
struct energy_history;
struct events;
struct external;
struct history;
struct job_table;
struct plan;
struct store;
struct waits;

struct daemon {
    sd_event *event;
    struct wake *wake;
    int root; /* "/" */
    int dir_fd;
    char dir[RUNDIR_PATH_MAX];
    int state_fd; /* of what outlives a reboot; `dir` again where there is no other place */
    char state_dir[RUNDIR_PATH_MAX];
    uid_t uid;
    gid_t admin_gid; /* CONFIG_NOBODY: none */
    gid_t power_gid;
    bool ending;
    bool cpus_made_up; /* not all are online: simulates a larger machine */
    uint32_t heartbeat_ms;
    uint64_t epoch, generation;
    struct topology topology;
    struct cpuset cpus;    /* CPUs of the machine that this daemon may give out */
    struct cpuset usable;  /* without those that other users' daemons hold */
    uint64_t memory_bytes; /* for all jobs together; 0: not counted */
    struct {
        int64_t machine;     /* counts of base/devices.h: as configured, else as found */
        uint64_t counted_ns; /* when they were found */
        uint32_t next;       /* number of the job to look at next */
    } devices;               /* written by job/devices.c */
    enum placement placement;
    struct config config;
    struct job_table *jobs;
    struct cgroup *cgroup;
    bool weights, cpusets; /* can be written */
    char group[CGROUP_NAME_MAX];
    char weights_note[ERROR_TEXT_MAX]; /* why weights cannot be written */
    struct decision *decision;         /* the policy and its state */
    struct plan *plan;
    struct external *external; /* NULL: a daemon of tests without a decider */
    struct idle *idle;
    struct guardian *guardian;
    struct job_groups *job_groups;
    struct balance *balance;
    struct meter *meter;
    struct power_caps *power_caps; /* NULL: a daemon of tests that knows no caps */
    struct backstop *backstop;
    struct energy_file *energy_file;
    struct machine_share *machine_share;
    struct agent_socket *agent_socket;
    struct containers *containers; /* of each watched engine */
    struct api *api;
    struct events *events;
    struct history *history;               /* NULL: no history */
    struct energy_history *energy_history; /* NULL: none */
    struct chronicle *chronicle;
    struct curves *curves;     /* of earlier runs; NULL: none */
    struct promised *promised; /* the same of promises */
    struct store *store;
    struct waits *waits;
    struct adoption *adoptions; /* waiting for an engine */
};

struct daemon_options {
    char dir[RUNDIR_PATH_MAX]; /* empty: rundir_user() */
    bool auto_exit;
    bool policy_ordered; /* set on the command line: overrides the policy set last */
    struct config config;
    const struct config_source *source; /* sources of config, for SIGHUP */
};

/*
 * Runs a daemon until SIGTERM or SIGINT; notifies systemd. SIGHUP reads the configuration again,
 * and ends a daemon without a configuration file. Returns 0, or -errno with *err for a person.
 */
int daemon_run(const struct daemon_options *options, struct error *err);
