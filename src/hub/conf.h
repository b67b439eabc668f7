/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub's configuration, tide-hub.conf(5): a file of INI, whose every key is an option of the
 * command line, too. Any thread, no state. Used by cmd_serve.c, cmd_user.c, cmd_audit.c
 * and src/hub/serve.
 */
#pragma once

#include "base/error.h"

#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define CONF_FILE      "/etc/tide/tide-hub.conf"
#define CONF_SECTION   "hub"
#define CONF_BYTES_MAX 65536
#define CONF_HOSTS_MAX 8
#define CONF_HOST_MAX  254
#define CONF_KEYS_MAX  32

#define CONF_PER_ADDRESS     64  /* connections to the page … */
#define CONF_PER_ADDRESS_MAX 256 /* … a quarter of all (WEB_CONNECTIONS) */

struct conf {
    char state[PATH_MAX - 64];
    char store[PATH_MAX]; /* "": hub.db in the state */
    char policy[PATH_MAX];
    char parent[CONF_HOST_MAX + 8]; /* of the broker of the hub above; "": none */
    char parent_name[64], parent_files[PATH_MAX];
    char carbon[PATH_MAX]; /* "": the grid's carbon intensity is not known */
    char broker[CONF_HOST_MAX];
    uint16_t broker_port;
    char listen[CONF_HOST_MAX + 8];            /* "HOST:PORT"; "none": no pages */
    char host[CONF_HOSTS_MAX][CONF_HOST_MAX];  /* of the page's certificate */
    unsigned hosts;                            /* 0: the machine's name, localhost, 127.0.0.1 */
    char certificate[PATH_MAX], key[PATH_MAX]; /* PEM files; "": the hub's own authority signs */
    uint64_t keep_second_ms, keep_minute_ms, keep_quarter_ms, keep_users_ms, keep_audit_ms;
    uint64_t session_idle_ms, session_end_ms;
    unsigned per_address; /* connections to the page from one address */
};

void conf_init(struct conf *c); /* the defaults */

/* Sets one key. Returns 0, -ENOENT (no such key) or -EINVAL, with *err: what to write instead. */
int conf_set(struct conf *c, const char *key, const char *value, struct error *err);

/* @name: of the file, for messages, which say "NAME:LINE: what is wrong". */
int conf_parse(struct conf *c, const char *name, const char *text, struct error *err);

/* Reads the file; @path NULL: CONF_FILE, which may be absent. Then looks whether keys fit. */
int conf_read(struct conf *c, const char *path, struct error *err);
int conf_check(const struct conf *c, struct error *err);

/* The path of NAME in the state's directory. Returns 0 or -ENAMETOOLONG. */
int conf_path(const struct conf *c, const char *name, char *ret, size_t size, struct error *err);

/*
 * Fills in @c: the defaults, then the command line: options that are keys, and --config FILE, which
 * is read before the options count. More than @operands are wrong use. Other options of the command
 * stand in @more, with val > 0 and below 256, and go to @take (whose result other than 0 ends the
 * reading and is returned). Returns 0, or an exit status with the message on stderr, or -1: --help,
 * which @usage has answered on stdout.
 */
struct conf_command {
    const char *usage;
    const struct option *more; /* NULL, or ends with a zeroed one; at most 8 */
    int (*take)(void *arg, int option);
    void *arg;
    int operands;
    int wrong; /* the exit status for wrong use */
};
int conf_options(struct conf *c, int argc, char **argv, const struct conf_command *command);
