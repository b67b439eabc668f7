/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of jobs (proto/attribute.h) as options of commands, in their
 * help, and as members of a request. Single-threaded; used by the commands that take them.
 */
#pragma once

#include "cli/api.h"
#include "proto/attribute.h"

enum {
    TERM_FIRST = 512, /* the value of option_next() for the first attribute; the others follow */
    TERM_END = TERM_FIRST + ATTRIBUTE_COUNT,
    TERMS_OPTIONS_MAX = ATTRIBUTE_COUNT + 16,
};

/* Marks the place of the attributes' lines in a command's help. */
#define TERMS_HERE "\f"

/* Joins the options of @own, which ends with zeroes, and the attributes that @cmd takes. */
void terms_options(const struct command *cmd, const struct option *own,
                   struct option ret[TERMS_OPTIONS_MAX]);

/* Returns the attribute that `tide docker run` takes as an option, or NULL. */
const struct attribute *terms_of_docker(const char *name, size_t length);

/*
 * Reads the value of an attribute's option into *terms, which is made when first needed (the
 * caller's to free). Returns CLI_OK, or another code after the message.
 */
int terms_set(const struct command *cmd, const struct attribute *a, const char *value,
              json_t **terms);

/* The same for a value of option_next(); *ret_mine: whether it was an attribute. */
int terms_take(const struct command *cmd, int option, json_t **terms, bool *ret_mine);

/* Prints a message when the minimum is above the maximum. @terms may be NULL. */
int terms_check(const struct command *cmd, const json_t *terms);
