/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an administrator tells tided: /etc/tide/tide.conf, then tide.conf.d/NAME.conf beside it in
 * the order of their names, then the command line. All of them set the same keys, the later word
 * wins, and an empty value stands for the default again. man/tide.conf.5.scd describes them.
 * Daemon's one thread: main.c at the start, daemon.c at a reload.
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
#define CONFIG_GROUP_MAX       33  /* a group's name as groupadd takes it, and NUL */
#define CONFIG_USERS_MAX       64  /* with a weight of their own */
#define CONFIG_USER_WEIGHT     100 /* anybody else's */
#define CONFIG_MEMORY_MACHINE  UINT64_MAX
#define CONFIG_NOBODY          ((gid_t)-1)

/* A user whose share of the machine is not the usual one. */
struct config_user {
    char name[CONFIG_GROUP_MAX]; /* or number */
    uid_t uid;
    uint32_t weight;
};

struct config {
    struct policy_spec policy; /* its policy NULL: not said */
    struct cpuset cpus;        /* empty: all */
    uint64_t memory_bytes;     /* of all jobs; 0: not counted; or CONFIG_MEMORY_MACHINE */
    uint32_t heartbeat_ms;
    uint32_t history_mib; /* 0: none is kept */
    enum placement placement;
    bool engines_said;
    unsigned n_engines; /* sockets of container engines */
    char engines[CONTAINERS_ENGINES_MAX][CONFIG_SOCKET_MAX];
    struct config_user users[CONFIG_USERS_MAX];
    unsigned n_users;
    /* of each user but root and the daemon's own; 0: no limit */
    uint32_t user_cores, user_jobs, user_processes, user_priority, user_connections;
    char admin_group[CONFIG_GROUP_MAX]; /* its name; empty: there is none */
};

/* One key as the command line sets it. */
struct config_order {
    const char *key, *value; /* borrowed */
};

/* Where the configuration comes from, also at a reload. */
struct config_source {
    const char *file; /* NULL: none is read */
    bool optional;    /* the file may be missing */
    unsigned n_orders;
    struct config_order orders[8]; /* the command line's; a key's last one counts */
};

void config_init(struct config *c);

/*
 * Sets @key to @value. Returns 0, -ENOENT (no such key) or -EINVAL; *err says what is wrong with
 * the value and what is possible, without naming the key.
 */
int config_set(struct config *c, const char *key, const char *value, struct error *err);

/*
 * Takes the text of a file; @name is what messages call it. Returns 0 or -EINVAL with the first
 * mistake in *err, as NAME:LINE: KEY: what; *c is then half done.
 */
int config_parse(struct config *c, const char *name, const char *text, struct error *err);

/*
 * Reads everything that @source names. As root a file must be root's and writable by nobody else.
 * Returns 0, or -errno with *err for a person; *ret is then untouched.
 */
int config_load(const struct config_source *source, struct config *ret, struct error *err);

/* Prints it as a file that reads back as the same. */
void config_print(const struct config *c, FILE *out);

/*
 * The number of group @name in /etc/group, or CONFIG_NOBODY. The file itself, not the name
 * services: they may ask the network, for which no job waits.
 */
gid_t config_group(const char *name);
