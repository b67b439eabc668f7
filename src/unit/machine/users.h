/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The energy of each user's jobs as points `user:NAME` of the outbox, a record a minute. Personal
 * data: only where the configuration says users=yes. The event loop's thread; part of machine.c.
 */
#pragma once

#include "base/error.h"
#include "edge/outbox.h"

#define USERS_MAX 256

struct users;

int users_new(struct outbox *outbox, struct users **ret); /* borrows it; 0 or -ENOMEM */
struct users *users_free(struct users *u);                /* takes NULL, returns NULL */

/*
 * Takes tided's answer to GET /v1/energy?by=user from a fixed time on. The first answer is what
 * later ones are compared with. Returns 0 or -EBADMSG.
 */
int users_take(struct users *u, const char *body, struct error *err);
