/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policy is told about a job: the options that `tide run` and `tide set` have in common,
 * as members of a request. Single-threaded; used by the two.
 */
#pragma once

#include "cli/api.h"

enum { TERM_PRIORITY = 512, TERM_DEADLINE, TERM_CLASS, TERM_REQUEST };

/* Entries of a table of long options. */
/* clang-format off */
#define TERM_OPTIONS                                                                               \
    {"priority", required_argument, NULL, TERM_PRIORITY},                                          \
    {"deadline", required_argument, NULL, TERM_DEADLINE},                                          \
    {"class", required_argument, NULL, TERM_CLASS},                                                \
    {"request", required_argument, NULL, TERM_REQUEST}
/* clang-format on */

/* Their part of a command's help. */
#define TERM_HELP                                                                                  \
    "      --priority N   larger goes first, -1000 to 1000 (default 0)\n"                          \
    "      --class N      smaller goes first, 0 to 1000 (default 0)\n"                             \
    "      --request K    cores that it should have, for policies that go by requests\n"           \
    "      --deadline T   when it should be done: 90s, 10min, 2h from now, or 18:30\n"

/*
 * Takes the option that option_next() returned into *terms, which is made when first needed (the
 * caller's to free). Returns CLI_OK, or CLI_USAGE after the complaint. True in *ret_mine if it was
 * one of these.
 */
int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine);
