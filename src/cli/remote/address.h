/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where another machine's daemon is reached, as a text of people:
 *
 *     ssh://[USER@]HOST[:PORT][/PROGRAM]   through ssh, which runs `tide dial` there
 *     https://HOST[:PORT]                  through a tide-gate, which is shown a token or a
 *                                          certificate (gateway.h)
 *
 * Any thread, no state.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>

#define ADDRESS_TEXT_MAX     512
#define ADDRESS_GATEWAY_PORT "7443"

struct address {
    char user[64];     /* "": ssh decides */
    char host[256];    /* a name, or an address without brackets */
    char port[8];      /* "": ssh decides; of a gateway never "" */
    char program[128]; /* `tide` there, an absolute path; "": as the shell there finds it */
    bool gateway;      /* https:// */
    bool named; /* a person named this one machine, by --host: TIDE_GATEWAY_TOKEN is for it */
};

/*
 * Returns 0 or -EINVAL with what is wrong. Users, hosts and programs that ssh or a shell could take
 * for something else (an option, a command) are refused.
 */
int address_parse(const char *text, struct address *ret, struct error *err);

/* Whether both lead to the same daemon by the same way. */
bool address_equal(const struct address *a, const struct address *b);

/* Writes it back. */
void address_text(const struct address *a, char ret[ADDRESS_TEXT_MAX]);
