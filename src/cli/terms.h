/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of jobs (proto/attribute.h) as options of commands, in their
 * help, and as members of a request. Single-threaded; used by the commands that take them.
 */
#pragma once

#include "cli/api.h"
#include "proto/attribute.h"

enum {
    TERM_FIRST = 512, /* what option_next() returns for the first attribute; they count on */
    TERM_END = TERM_FIRST + ATTRIBUTE_COUNT,
    TERMS_OPTIONS_MAX = ATTRIBUTE_COUNT + 16,
};

/* Stands in a command's help for the lines about the attributes that it takes. */
#define TERMS_HERE "\f"

/* The options of @own, which ends with zeroes, and the attributes that @cmd takes. */
void terms_options(const struct command *cmd, const struct option *own,
                   struct option ret[TERMS_OPTIONS_MAX]);

/* The attribute that `tide docker run` takes as an option of its own, or NULL. */
const struct attribute *terms_of_docker(const char *name, size_t length);

/*
 * Reads the value of an attribute's option into *terms, which is made when first needed (the
 * caller's to free). Returns CLI_OK, or another code after the complaint.
 */
int terms_set(const struct command *cmd, const struct attribute *a, const char *value,
              json_t **terms);

/* The same with what option_next() returned; *ret_mine: whether it was one of these. */
int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine);

/* Complains when the minimum is above the maximum. @terms may be NULL. */
int terms_check(const struct command *cmd, const json_t *terms);
