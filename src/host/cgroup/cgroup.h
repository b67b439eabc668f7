/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups, version 1, version 2 and mixed, seen as three controllers, `cpu`, `cpuset` and
 * `freezer` (which every group of v2 has), each behind one table of functions (v1 and v2 differ in
 * file names, units and rules).
 *
 * Reading works for any process and needs no privilege. Writing happens only in groups that we make
 * in the hierarchies' root, one per daemon, and one per job below it:
 *     tide-<uid>-<epoch>/<job>
 * A process is moved only out of a hierarchy's root group or a group of ours, never out of one of
 * systemd, Slurm, kubelet or Docker.
 *
 * Units: thousandths of a core (_mcpu); weights as in cgroup v2, 1 … 10000, 100 being the default
 * (v1: cpu.shares = weight * 1024 / 100). Each write is read back: 0 means that it is in force.
 * One owner at a time; a struct cgroup has no state that changes after cgroup_new, so that a forked
 * guardian may go on using its copy. Called by the daemon, its guardian, the CLI (reading).
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_NO_QUOTA   UINT32_MAX
#define CGROUP_QUOTA_MIN  10 /* mcpu: the kernel demands at least 1 ms of its 100 ms period */
#define CGROUP_WEIGHT_MIN 1
#define CGROUP_WEIGHT_MAX 10000
#define CGROUP_WEIGHT_STD 100
#define CGROUP_PATH_MAX   1024
#define CGROUP_NAME_MAX   96 /* of "tide-<uid>-<epoch>/<job>" */
#define CGROUP_PREFIX     "tide-"

struct cgroup;

enum cgroup_controllers { /* controllers that a group is made in; on v2 one group serves all of them
                           */
                          CGROUP_CPU = 1 << 0,
                          CGROUP_CPUSET = 1 << 1,
                          CGROUP_FREEZER = 1 << 2,
};

enum cgroup_version {
    CGROUP_NONE, /* the controller is mounted nowhere */
    CGROUP_V1,
    CGROUP_V2,
    CGROUP_VERSION_MAX
};

/*
 * Finds the hierarchies from @root/proc/self/mountinfo; keeps a duplicate of @root. Returns 0 (also
 * without any cgroup: every version is CGROUP_NONE then) or -errno.
 */
int cgroup_new(int root, struct cgroup **ret);
struct cgroup *cgroup_free(struct cgroup *cg); /* takes NULL, returns NULL */

enum cgroup_version cgroup_version_cpu(const struct cgroup *cg);
enum cgroup_version cgroup_version_cpuset(const struct cgroup *cg);
const char *cgroup_version_name(enum cgroup_version version); /* "v1", "v2", "none" */

/* ---- reading, any process ---- */

struct cgroup_limits {
    bool have_cpus;                   /* false: no cpuset hierarchy, cpus is empty */
    struct cpuset cpus;               /* effective CPUs: those that all groups on the path leave */
    uint32_t quota_mcpu;              /* tightest of the whole path, or CGROUP_NO_QUOTA */
    char quota_path[CGROUP_PATH_MAX]; /* group that sets the quota, "/" for the root; empty without
                                         quota */
};

/* @pid 0 means the caller. Returns 0, -ESRCH or -errno. */
int cgroup_read_limits(const struct cgroup *cg, pid_t pid, struct cgroup_limits *ret);

/* Reads the tightest memory limit of the path, or UINT64_MAX. Returns 0, -ESRCH or -errno. */
int cgroup_read_memory_limit(const struct cgroup *cg, pid_t pid, uint64_t *ret_bytes);

struct cgroup_throttle { /* counters since the groups were made, summed over the whole path */
    uint64_t periods;
    uint64_t throttled; /* periods in which the quota ran out */
    uint64_t throttled_ns;
};

int cgroup_read_throttle(const struct cgroup *cg, pid_t pid, struct cgroup_throttle *ret);

/* ---- any group, for comparing its weight with others ---- */

/*
 * A weight as the kernel holds it, in units of its own: v1's cpu.shares, v2's cpu.weight. Units are
 * finer than weights on v1. A group whose weight was never set has `std`.
 */
struct cgroup_units {
    uint32_t min, std, max;
};

struct cgroup_units cgroup_units(const struct cgroup *cg); /* zeros without cpu controller */

struct cgroup_load {
    uint32_t units;
    bool have_cpu;
    uint64_t cpu_ns; /* CPU time of its processes, and of all groups below it */
};

/* Reads group @path ("/docker"). Returns 0, -ENOENT or -errno. */
int cgroup_read_load(const struct cgroup *cg, const char *path, struct cgroup_load *ret);

/*
 * Reads the CPU time of a group of ours, that of processes which have ended included. Returns 0,
 * -ENOTSUP where the kernel counts none in it (cpuacct of v1 is mounted apart), -ENOENT or -errno.
 */
int cgroup_read_time(const struct cgroup *cg, const char *path, uint64_t *ret_ns);

/* Calls @fn with the path of each group directly below @path until it returns other than 0. */
int cgroup_list(const struct cgroup *cg, const char *path, int (*fn)(void *arg, const char *path),
                void *arg);

/* How container runtimes convert "CPU shares" (2 … 262144, usually 1024) to units. */
enum cgroup_shares {
    CGROUP_SHARES_V1,     /* shares are units */
    CGROUP_SHARES_LINEAR, /* runc before 1.3.2, crun before 1.23: 1024 shares are weight 39 */
    CGROUP_SHARES_LOG,    /* since then: 1024 shares are weight 100, 2048 are 174 */
    CGROUP_SHARES_MAX
};

/* Both clamp to the possible range. The second returns the fewest shares that make @units. */
uint32_t cgroup_shares_to_units(enum cgroup_shares how, uint32_t shares);
uint32_t cgroup_units_to_shares(enum cgroup_shares how, uint32_t units);

/* ---- our own groups ---- */

/*
 * True if this process may make groups for cores (@ret_cpu, @ret_cpuset, each may be NULL);
 * otherwise *err says why not, for `tide ps` and `tide doctor`.
 */
bool cgroup_writable(const struct cgroup *cg, bool *ret_cpu, bool *ret_cpuset, struct error *err);

/* The same for the freezer. */
bool cgroup_freezable(const struct cgroup *cg, struct error *err);

/* Names one daemon's group, "tide-<uid>-<epoch>"; no other daemon touches its weight. */
void cgroup_daemon_name(uid_t uid, uint64_t epoch, char ret_name[CGROUP_NAME_MAX]);

/* True if @path ("/tide-0-7/j3", as the kernel has it) is a group of any of our daemons. */
bool cgroup_path_is_ours(const char *path);

/*
 * Makes group @name ("tide-0-7/j3") and its missing parents in each of @controllers that exists. A
 * new cpuset group starts with its parent's CPUs and memory nodes. A daemon's group starts with the
 * weight of one default group for each CPU. Otherwise its jobs would starve beside the root group's
 * own processes, each of which weighs as much as a whole default group. Returns 0, -ENOTSUP (none
 * of @controllers exists), -EPERM / -EROFS (*err says what is missing), -EINVAL (name), or -errno.
 */
int cgroup_create(const struct cgroup *cg, const char *name, unsigned controllers,
                  struct error *err);

/*
 * First thaws @name and all groups below it. Then moves every process of these groups back to the
 * root group and removes the groups. A guardian only has to call it with "tide-<uid>-<epoch>".
 * Returns 0 (also without such a group), -EBUSY (a process is still there: an exiting one takes
 * some 100 ms; call again) or -errno. Never waits.
 */
int cgroup_remove(const struct cgroup *cg, const char *name, struct error *err);

/*
 * Moves process @pid (all its threads) into @name in each of @controllers that has the group. On v1
 * a move between cpuset groups resets the threads' affinity to the group's CPUs (the kernel does,
 * before Linux 6.2): set affinities afterwards. Returns 0, -EPERM when another program manages the
 * process's group (the process then stays), -ESRCH, -ENOENT (no such group) or -errno.
 */
int cgroup_move(const struct cgroup *cg, const char *name, unsigned controllers, pid_t pid,
                struct error *err);

/* Moves @pid from our own group back to the root group of @controllers; else returns 0. */
int cgroup_move_home(const struct cgroup *cg, unsigned controllers, pid_t pid, struct error *err);

/* Each: 0, -ENOTSUP (no such controller), -ERANGE, -EIO (the kernel holds another value), … */
int cgroup_set_weight(const struct cgroup *cg, const char *name, uint32_t weight,
                      struct error *err);
/* Whether its processes run only where nobody else wants to, and are interrupted at once by who
 * does; -ENOTSUP before Linux 5.15. While they do, its weight cannot be set. */
int cgroup_set_idle(const struct cgroup *cg, const char *name, bool idle, struct error *err);
int cgroup_set_units(const struct cgroup *cg, const char *name, uint32_t units, struct error *err);
int cgroup_set_cpus(const struct cgroup *cg, const char *name, const struct cpuset *cpus,
                    struct error *err);
int cgroup_set_quota(const struct cgroup *cg, const char *name, uint32_t quota_mcpu,
                     struct error *err); /* CGROUP_NO_QUOTA removes it */

enum cgroup_frost {
    CGROUP_THAWED,
    CGROUP_FREEZING, /* a process still runs, or sleeps where the kernel cannot stop it */
    CGROUP_FROZEN,
    CGROUP_FROST_MAX
};

/*
 * Freezes all processes of group @name and those that they fork meanwhile, or thaws them. The
 * processes do not notice, but frozen ones take no signal, on v1 not even SIGKILL. Returns 0,
 * -ENOTSUP or -errno; cgroup_read_frost() tells when they are frozen.
 */
int cgroup_freeze(const struct cgroup *cg, const char *name, bool frozen, struct error *err);
int cgroup_read_frost(const struct cgroup *cg, const char *name, enum cgroup_frost *ret);

/*
 * Calls @fn with each process that a freeze of group @name would stop, until it returns other than
 * 0. Returns that, 0, or -errno.
 */
int cgroup_each_freezable(const struct cgroup *cg, const char *name,
                          int (*fn)(void *arg, pid_t pid), void *arg);

struct cgroup_settings {
    uint32_t units;      /* the weight as the kernel holds it, see cgroup_units; */
    uint32_t weight;     /* 0: no cpu controller */
    uint32_t quota_mcpu; /* of this group alone; CGROUP_NO_QUOTA */
    struct cpuset cpus;  /* as configured; empty without cpuset controller (v2: also inherited) */
};

/* Reads back the settings of group @name. Returns 0, -ENOENT or -errno. */
int cgroup_read_settings(const struct cgroup *cg, const char *name, struct cgroup_settings *ret);

/*
 * The path of a group that is not ours, for each controller: "/a/b"; empty: no such group. crun
 * with systemd puts a container into a group below its scope, on which it sets what its release
 * does not have systemd set (cpuset and memory before 1.8.5, quota before 1.11): what holds is
 * both's.
 */
struct cgroup_place {
    char cpu[CGROUP_PATH_MAX], cpuset[CGROUP_PATH_MAX];
    bool inner; /* there is a group CGROUP_INNER below */
};

#define CGROUP_INNER "/container"

/*
 * Finds the group on process @pid's path whose name contains @part, such as a container's id;
 * processes may lie in groups below. -ENOENT: no such group.
 */
int cgroup_find(const struct cgroup *cg, pid_t pid, const char *part, struct cgroup_place *ret);

/* Works as cgroup_read_settings. */
int cgroup_read_place(const struct cgroup *cg, const struct cgroup_place *place,
                      struct cgroup_settings *ret);

/*
 * Reads how many processes of a group the kernel has killed because memory ran out; on v1 the
 * memory controller's group has the cpu controller's path. Returns 0, -ENOTSUP (no memory
 * controller, a kernel before 4.13), -ENOENT (no such group) or -errno.
 */
int cgroup_read_oom_kills(const struct cgroup *cg, const struct cgroup_place *place, uint64_t *ret);

/* A group's memory in bytes, that of groups below it included. */
struct cgroup_memory {
    uint64_t limit; /* its own; UINT64_MAX: none */
    uint64_t firm;  /* in use, without what the kernel may drop and read from a file again */
    uint64_t peak;  /* most in use so far, files included; 0: not counted (v2 before Linux 5.19) */
};

/* Reads what @place has; returns as cgroup_read_oom_kills. */
int cgroup_read_memory(const struct cgroup *cg, const struct cgroup_place *place,
                       struct cgroup_memory *ret);

/* ---- pure parsers ---- */

struct cgroup_mount {
    enum cgroup_version version;                /* CGROUP_NONE: the line is no cgroup mount */
    bool cpu, cpuset, freezer, cpuacct, memory; /* named in a v1 mount's options */
    char point[CGROUP_PATH_MAX];                /* where it is mounted */
    char root[CGROUP_PATH_MAX]; /* the group of the hierarchy that is mounted, "/" for its root */
};

/* Parses one line of mountinfo (with or without newline) and undoes octal escapes. 0 or -EINVAL. */
int cgroup_parse_mountinfo_line(const char *line, struct cgroup_mount *ret);

/* Parses v2's cpu.max ("max 100000", "150000 100000"). 0 or -EINVAL; at least 1 mcpu. */
int cgroup_parse_cpu_max(const char *text, uint32_t *ret_mcpu);

/* Parses cpu.stat of either version. 0 or -EINVAL. */
int cgroup_parse_cpu_stat(const char *text, struct cgroup_throttle *ret);
