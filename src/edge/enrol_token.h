/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of an enrolment's token, "tide-SECRET-FINGERPRINT": a secret that only the hub knows
 * (its hash), and the hash of its authority's certificate (PEM, as it stands in ca.crt). Any
 * thread, no state; used by tide-hub (makes) and tide-power (reads).
 */
#pragma once

#include "host/trust/secret.h"

#define ENROL_TOKEN_TEXT_MAX (2 * SECRET_LEN + 8) /* with the NUL */

struct enrol_token {
    char secret[SECRET_LEN + 1], fingerprint[SECRET_LEN + 1];
};

/* Returns 0 or -EINVAL: no token. */
int enrol_token_read(const char *text, struct enrol_token *ret);
void enrol_token_text(const struct enrol_token *token, char ret[ENROL_TOKEN_TEXT_MAX]);
