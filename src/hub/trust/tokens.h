/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-time tokens with which a unit is enrolled: the hub's directory holds their hashes alone, in a
 * file DIR/tokens of "HASH NAME AREA END [broker=HOST:PORT|unit=NAME]" a line. The text that an
 * administrator passes on also holds the fingerprint of the hub's authority, so that the unit's
 * side knows whom it talks to. Called with the state locked (state.h). Any thread. Used by
 * cmd_token.c, enrol.c and REST.
 */
#pragma once

#include "base/error.h"
#include "edge/enrol_token.h"
#include "edge/topic.h"
#include "hub/trust/area_broker.h"
#include "power/rules/rules.h"

#include <stdbool.h>
#include <stdint.h>

#define TOKENS_TEXT_MAX ENROL_TOKEN_TEXT_MAX
#define TOKENS_MAX      4096 /* that wait to be used; ended ones make room */
#define TOKENS_FOR_S    3600
#define TOKENS_FOR_MAX  (30 * 86400)

struct token {
    char name[EDGE_NAME_MAX];
    char area[AREA_PATH_MAX];     /* "": none */
    char broker[AREA_BROKER_MAX]; /* of the unit's own broker; "": none */
    char unit[EDGE_NAME_MAX];     /* through whose broker this machine speaks; "": the hub's */
    int64_t until_s;
};

/*
 * Makes one for a unit. @area NULL or "": none. Returns 0; -EINVAL (name, area, time),
 * -EKEYREVOKED, -ENOSPC, or what reading and writing say.
 */
int tokens_make(const char *dir, const char *name, const char *area, uint64_t for_s, int64_t now_s,
                char ret[TOKENS_TEXT_MAX], struct error *err);

/*
 * The same with all that a token may say; its time is from now on. -EINVAL also where a unit above
 * has no broker.
 */
int tokens_make_for(const char *dir, const struct token *wanted, int64_t now_s,
                    char ret[TOKENS_TEXT_MAX], struct error *err);

/* Whether tokens_take() would find it. */
bool tokens_has(const char *dir, const char secret[SECRET_LEN + 1], int64_t now_s);

/*
 * Finds the token of that secret and removes it. Returns 0, -EACCES (there is none, or it has
 * ended), or what reading and writing say: then it is still there.
 */
int tokens_take(const char *dir, const char secret[SECRET_LEN + 1], int64_t now_s,
                struct token *ret, struct error *err);

/* Puts a token back whose use failed without its fault. */
int tokens_restore(const char *dir, const char secret[SECRET_LEN + 1], const struct token *token,
                   struct error *err);
