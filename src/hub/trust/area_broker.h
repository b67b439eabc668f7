/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which units have a broker of their own, at which address their machines reach it, and which
 * machines speak through it: a file "areas" in the authority's directory, a line each,
 *
 *     broker UNIT HOST:PORT
 *     machine NAME UNIT
 *
 * Data's way: a token that is used writes a line; the authority reads from it which host a unit's
 * certificate also serves, members.c which machine a unit may ask for, and who is told of revoked
 * machines. Called with the state locked, but for reading. Any thread. Used by src/hub/trust,
 * cmd_unit.c and src/hub/tree.
 */
#pragma once

#include "base/error.h"
#include "edge/topic.h"
#include "hub/trust/authority.h"

#include <stdbool.h>
#include <sys/stat.h>

#define AREA_BROKER_MAX  280 /* "HOST:PORT" with its NUL */
#define AREA_BROKER_PORT 8883

/* "HOST" or "HOST:PORT", as people write it; the port is added. Returns 0 or -EINVAL. */
int area_broker_read(const char *text, char ret[AREA_BROKER_MAX]);

/* The host alone, without brackets. */
void area_broker_host(const char *address, char ret[AREA_BROKER_MAX]);

/* @dir: the authority's. Each returns 0; -ENOENT: there is none; or what reading and writing say.
 */
int area_broker_of_unit(const char *dir, const char *unit, char ret[AREA_BROKER_MAX]);
int area_broker_of_machine(const char *dir, const char *machine, char ret_unit[EDGE_NAME_MAX]);
int area_broker_put(const char *dir, const char *unit, const char *address, struct error *err);

/* @unit "": the name is no machine's any more. */
int area_broker_put_machine(const char *dir, const char *machine, const char *unit,
                            struct error *err);

/* Calls @each for each unit with a broker, with the names of its revoked machines, blanks between.
 */
int area_broker_each(const char *dir, struct authority *records,
                     void (*each)(void *arg, const char *unit, const char *revoked), void *arg,
                     struct error *err);

/* The file's own, by which a change is noticed; all zero: there is none. */
void area_broker_looked(const char *dir, struct stat *ret);
