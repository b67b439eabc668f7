/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the machine's tided. Its answers may take seconds, so a thread of this file's own
 * waits for them; the callback runs in the event loop's thread. Used by machine.c.
 */
#pragma once

#include <systemd/sd-event.h>

/* One request of each kind waits at most: a newer one takes the place of an older one. */
enum tided_kind {
    TIDED_LEASE,
    TIDED_READING,
    TIDED_DEMAND,
    TIDED_POWER,
    TIDED_CAP,
    TIDED_USERS,
    TIDED_SHRUNK,
    TIDED_KIND_MAX
};

/* @status: of HTTP, or -errno without an answer; @body: its text, or the reason. */
typedef void (*tided_news)(void *arg, enum tided_kind kind, int status, const char *body);

struct tided;

int tided_new(sd_event *event, const char *socket, tided_news news, void *arg, struct tided **ret);
struct tided *tided_free(struct tided *t); /* waits for the answer to a request that is under way */

/* Queues a request. @body is freed here (malloc); TIDED_LEASE and TIDED_READING have one, for the
 * others it is NULL. */
void tided_ask(struct tided *t, enum tided_kind kind, char *body);
