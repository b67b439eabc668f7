/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tided's configuration: /etc/tide/tide.conf, then tide.conf.d/NAME.conf beside it in the order of
 * their names, then the command line. All set the same keys; a later value wins, and an empty one
 * restores the default. man/tide.conf.5.scd describes the keys. Daemon's one thread: main.c at the
 * start, daemon.c at a reload.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "policy/core/policy.h"
#include "proto/attribute.h"

#include <stdio.h>
#include <sys/types.h>

#define CONTAINERS_ENGINES_MAX 4 /* sockets that one daemon watches */
#define CONFIG_FILE            "/etc/tide/tide.conf"
#define CONFIG_BYTES_MAX       65536 /* of a file */
#define CONFIG_DROP_INS_MAX    64
#define CONFIG_SOCKET_MAX      108 /* sun_path */
#define CONFIG_GROUP_MAX       33  /* the longest name that groupadd takes, and NUL */
#define CONFIG_USERS_MAX       64  /* with a weight of their own */
#define CONFIG_SLOS_MAX        64  /* promises of latency */
#define CONFIG_JOB_MAX         64
#define CONFIG_USER_WEIGHT     100 /* of any other user */
#define CONFIG_MEMORY_MACHINE  UINT64_MAX
#define CONFIG_DEVICES_MACHINE (-1)
#define CONFIG_NOBODY          ((gid_t)-1)
#define CONFIG_CURRENCY_MAX    8
#define CONFIG_MODEL_MAX       128
#define CONFIG_POWER_MAX       256 /* of the list of sensors, and of the directory with their files */

/* Speed-up curves of earlier runs. */
enum curves_mode {
    CURVES_KEEP,  /* each user's for that user's next runs */
    CURVES_SHARE, /* for everybody's */
    CURVES_NONE,
};

/* A promise of latency that cannot be kept as far as is known. */
enum promises_mode {
    PROMISES_WARN,
    PROMISES_REFUSE, /* … unless an administrator gives it */
};

/* A promise of latency for jobs that ask for none. */
struct config_slo {
    char user[CONFIG_GROUP_MAX]; /* or number; empty: anybody's jobs */
    uid_t uid;
    char job[CONFIG_JOB_MAX]; /* a job's name; * and ? as in a shell */
    int64_t us;
};

/* A user with a weight of its own. */
struct config_user {
    char name[CONFIG_GROUP_MAX]; /* or number */
    uid_t uid;
    uint32_t weight;
};

struct config {
    struct policy_spec policy;       /* its policy NULL: not configured */
    char decider[CONFIG_SOCKET_MAX]; /* the socket of the policy `external`; empty: none */
    char
        decider_user[CONFIG_GROUP_MAX]; /* whose decider is taken besides root's; empty: nobody's */
    uid_t decider_uid;
    char gateway_user[CONFIG_GROUP_MAX]; /* who may name the user of a request; empty: nobody */
    uid_t gateway_uid;
    uint32_t decider_deadline_ms;
    struct cpuset cpus;    /* empty: all */
    uint64_t memory_bytes; /* for all jobs; 0: not counted; or CONFIG_MEMORY_MACHINE */
    int64_t devices;       /* counts of base/devices.h, or CONFIG_DEVICES_MACHINE */
    uint32_t device_cores; /* that a job keeps for each device that it holds */
    uint32_t heartbeat_ms;
    uint32_t history_mib; /* 0: no history */
    enum placement placement;
    bool lend_idle; /* idle cores, as extra threads */
    enum curves_mode curves;
    enum promises_mode promises;
    struct config_slo slos[CONFIG_SLOS_MAX];
    unsigned n_slos;
    bool engines_said;
    unsigned n_engines; /* sockets of container engines */
    char engines[CONTAINERS_ENGINES_MAX][CONFIG_SOCKET_MAX];
    struct config_user users[CONFIG_USERS_MAX];
    unsigned n_users;
    /* for each user but root and the daemon's own; 0: no limit */
    uint32_t user_cores, user_jobs, user_processes, user_priority, user_connections;
    char admin_group[CONFIG_GROUP_MAX]; /* empty: none */
    char power_group[CONFIG_GROUP_MAX]; /* empty: none */
    char power[CONFIG_POWER_MAX];       /* as sensors_find() takes it */
    char power_root[CONFIG_POWER_MAX];  /* below it are the sensors' files */
    uint64_t tariff, carbon; /* millionths of the currency, µg CO2: of a kWh; 0: not known */
    char currency[CONFIG_CURRENCY_MAX];
    char power_model[CONFIG_MODEL_MAX]; /* as model_parse() takes it; empty: none */
    uint64_t power_cap_uw;              /* 0: none */
};

/* A key on the command line. */
struct config_order {
    const char *key, *value; /* borrowed */
};

/* The sources of the configuration, also at a reload. */
struct config_source {
    const char *file; /* NULL: none */
    bool optional;    /* the file may be missing */
    unsigned n_orders;
    struct config_order orders[16]; /* of the command line; a key's last one counts */
};

void config_init(struct config *c);

/*
 * Sets @key to @value. Returns 0, -ENOENT (no such key) or -EINVAL; *err says what is wrong with
 * the value and which ones are valid, without the key.
 */
int config_set(struct config *c, const char *key, const char *value, struct error *err);

/*
 * Reads the text of a file; @name stands for it in messages. Returns 0, or -EINVAL with the first
 * mistake in *err, as NAME:LINE: KEY: mistake; *c is then incomplete.
 */
int config_parse(struct config *c, const char *name, const char *text, struct error *err);

/*
 * Reads all of @source. For root, a file must be root's and writable by no other user. Returns 0,
 * or -errno with *err for a person; *ret is then untouched.
 */
int config_load(const struct config_source *source, struct config *ret, struct error *err);

/* The promise of latency of @uid's job @name by the first entry that fits, in µs; 0: none. */
int64_t config_slo(const struct config *c, uid_t uid, const char *name);

/* Prints the configuration as a file that reads back as the same. */
void config_print(const struct config *c, FILE *out);

/*
 * The number of group @name in /etc/group, or CONFIG_NOBODY. Reads the file itself: name services
 * may ask the network, which would delay jobs.
 */
gid_t config_group(const char *name);
