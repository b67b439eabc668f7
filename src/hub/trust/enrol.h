/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit that has a token gets its certificate. The token goes before the certificate is signed, so
 * it is good for one. Guessing is slowed down, though nobody guesses 256 bits: each try reads a
 * file. Event loop's thread; called by the handler of POST /v1/enrol.
 */
#pragma once

#include "hub/trust/tokens.h"

#define ENROL_REQUEST_MAX 16384
#define ENROL_WRONG_MAX   10  /* wrong tokens of one address in ENROL_WINDOW_S … */
#define ENROL_WRONG_ALL   200 /* … and of all */
#define ENROL_WINDOW_S    60

/* Texts are owned; PEM but the names. */
struct enrol_answer {
    char name[EDGE_NAME_MAX], area[AREA_PATH_MAX]; /* area "": none */
    char
        broker[AREA_BROKER_MAX]; /* "HOST:PORT", of the hub or of the unit above; "": nobody told */
    char local[AREA_BROKER_MAX]; /* of the unit's own broker; "": none */
    char unit[EDGE_NAME_MAX];    /* the unit above a machine; "": the hub */
    char *certificate, *ca, *seal;
    char *revoked; /* the list of revoked certificates for its own broker; NULL: it has none */
};

/*
 * @address: of who asks, 16 bytes as in6_addr. Returns 0; -EACCES: no such token; -EAGAIN: too many
 * wrong ones, and this is one; -EINVAL: no request; -EKEYREVOKED: the name was revoked since; or
 * what reading and writing say. Where the token is not at fault, it stays good.
 */
int enrol_take(const char *dir, const char *token, const char *request,
               const unsigned char address[16], struct enrol_answer *ret, struct error *err);
void enrol_answer_done(struct enrol_answer *a);
