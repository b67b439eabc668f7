/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `docker run` (and create), taken apart as docker itself does it, to find our
 * own options among docker's, the image, and what the container's LD_PRELOAD is to be. An option
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
    char *preload;        /* what the user wants LD_PRELOAD to be; NULL: nothing said */
    bool quiet, help, detach;
};

/*
 * Reads what follows `docker run`, ended by NULL. Returns CLI_OK, or another code after the
 * complaint; docker_words_done() either way.
 */
int docker_words_read(const struct command *cmd, char *const *argv, struct docker_words *ret);
void docker_words_done(struct docker_words *words);

/*
 * How many of @argv are options of `docker` itself, before the name of one of its commands
 * ("-H", "tcp://host", "--debug").
 */
int docker_words_global(char *const *argv);
