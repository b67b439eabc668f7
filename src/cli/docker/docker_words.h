/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the command line of `docker run` (and create) apart as docker itself does. Finds our own
 * options among docker's, the image, and the variables and limits of the container. An option
 * that no Docker up to 28 has may or may not take a value: from there on every word is docker's.
 * Single-threaded (it reads the environment); called by `tide docker` and its unit test.
 */
#pragma once

#include "cli/terms.h"

struct words {
    char **word; /* ended by NULL */
    size_t n;
};

/* Adds a copy of @word; false when there is no memory. */
bool words_add(struct words *words, const char *word);
bool words_addf(struct words *words, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void words_done(struct words *words);

struct docker_words {
    json_t *terms;        /* of our options; NULL: none */
    struct words theirs;  /* docker's options, the image and its command */
    const char *image;    /* NULL: not found. Borrowed, as are the next four */
    const char *platform; /* NULL: not given */
    const char *pull;     /* NULL: not given */
    struct words files;   /* "NAME=value": of --env-file … */
    struct words env;     /* … and of --env, which counts more; the last one of a name counts */
    double cpus;          /* of --cpus, or of --cpu-quota and --cpu-period; 0: no limit */
    double quota_us, period_us;
    const char *cpuset; /* of --cpuset-cpus; NULL: not given */
    bool quiet, help, detach;
};

/*
 * Reads the arguments of `docker run`, ended by NULL. Returns CLI_OK, or another code after the
 * message; docker_words_done() either way.
 */
int docker_words_read(const struct command *cmd, char *const *argv, struct docker_words *ret);
void docker_words_done(struct docker_words *words);

/* The value that the last variable @name has in @list, or NULL. */
const char *words_variable(const struct words *list, const char *name);

/* The user's own @name for the container: "" when he takes it away, NULL when he does not say. */
const char *docker_words_variable(const struct docker_words *words, const char *name);

/*
 * Counts the words of @argv that are options of `docker` itself, before the name of one of its
 * commands ("-H", "tcp://host", "--debug").
 */
int docker_words_global(char *const *argv);
