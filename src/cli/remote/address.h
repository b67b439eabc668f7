/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where another machine's daemon is reached, as a text of people:
 * ssh://[USER@]HOST[:PORT][/PROGRAM], through ssh, which runs `tide dial` there. Any thread, no
 * state.
 */
#pragma once

#include "base/error.h"

#define ADDRESS_TEXT_MAX 512
struct address {
    char user[64];     /* "": ssh decides */
    char host[256];    /* a name, or an address without brackets */
    char port[8];      /* "": ssh decides */
    char program[128]; /* `tide` there, an absolute path; "": as the shell there finds it */
};

/*
 * Returns 0 or -EINVAL with what is wrong. Users, hosts and programs that ssh or a shell could take
 * for something else (an option, a command) are refused.
 */
int address_parse(const char *text, struct address *ret, struct error *err);

/* Writes it back. */
void address_text(const struct address *a, char ret[ADDRESS_TEXT_MAX]);
