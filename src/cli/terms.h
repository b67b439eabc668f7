/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked for a job: the options that `tide run`, `tide docker run` and `tide set` have in
 * common, as members of a request. Single-threaded; used by the three.
 */
#pragma once

#include "cli/api.h"

enum {
    TERM_MIN = 512,
    TERM_MAX,
    TERM_WEIGHT,
    TERM_PRIORITY,
    TERM_DEADLINE,
    TERM_CLASS,
    TERM_REQUEST,
    TERM_PLACEMENT,
    TERM_MEMORY,
    TERM_END
};

/* Entries of a table of long options. */
/* clang-format off */
#define TERM_OPTIONS                                                                               \
    {"min", required_argument, NULL, TERM_MIN},                                                    \
    {"max", required_argument, NULL, TERM_MAX},                                                    \
    {"weight", required_argument, NULL, TERM_WEIGHT},                                              \
    {"priority", required_argument, NULL, TERM_PRIORITY},                                          \
    {"deadline", required_argument, NULL, TERM_DEADLINE},                                          \
    {"class", required_argument, NULL, TERM_CLASS},                                                \
    {"request", required_argument, NULL, TERM_REQUEST},                                            \
    {"memory", required_argument, NULL, TERM_MEMORY}
/* clang-format on */

/* The last four's part of a command's help. */
#define TERM_HELP                                                                                  \
    "      --priority N   larger goes first, -1000 to 1000 (default 0)\n"                          \
    "      --class N      smaller goes first, 0 to 1000 (default 0)\n"                             \
    "      --request K    cores that it should have, for policies that go by requests\n"           \
    "      --deadline T   when it should be done: 90s, 10min, 2h from now, or 18:30\n"

/* Not of containers: these have a --memory of their own, which counts as their request. */
#define TERM_MEMORY_HELP                                                                           \
    "      --memory SIZE  what it needs (512M, 2G): jobs that wait are not given that\n"

/* The placements' part of the help of commands that start jobs. */
#define TERM_PLACEMENT_HELP                                                                        \
    "      --placement P  shared     cores overlap, threads match the share (default)\n"           \
    "                     exclusive  cores of its own\n"                                           \
    "                     quota      a hard limit of processor time\n"

/* The TERM_… of an option of containers by its name (@length bytes, without dashes), or 0. */
int terms_find(const char *name, size_t length);

/*
 * Checks the value of the option TERM_… and puts it into *terms, which is made when first needed
 * (the caller's to free). Returns CLI_OK, or another code after the complaint.
 */
int terms_set(const struct command *cmd, int option, const char *value, json_t **terms);

/* The same with what option_next() returned; *ret_mine: whether it was one of these. */
int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine);

/* Complains when the minimum is above the maximum. @terms may be NULL. */
int terms_check(const struct command *cmd, const json_t *terms);
