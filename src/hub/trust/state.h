/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub's directory on disk (mode 0700), one program at a time:
 *
 *     lock            held while a command changes something
 *     running         held by tide-hub serve; broker/running by the broker (base/hold.h)
 *     trust/          the authority (authority.h)
 *     broker/         all that the broker may read: mosquitto.conf, acl, broker.crt, broker.key,
 *                     copies of ca.crt and revoked.crl, pid
 *     hub.crt, .key   the hub's own certificate as a client of the broker
 *     tokens          hashes of tokens for enrolment (tokens.h)
 *
 * Beside these lie files of other rooms: policy.yaml (tree/in_force.h), leases, people.db, hub.db,
 * retention (store/retention.h).
 *
 * Used by the commands of tide-hub, src/hub/trust, src/hub/tree and src/hub/serve.
 */
#pragma once

#include "base/error.h"
#include "hub/trust/authority.h"

#include <sys/types.h>

#define STATE_DIR            "/var/lib/tide-hub"
#define STATE_BROKER_ADDRESS "broker/address" /* "HOST:PORT", as units reach it */

struct state {
    const char *dir; /* borrowed */
    int lock;
    struct authority *authority;
};

/* Waits for another command to end. Returns 0 or -errno with *err. */
int state_open(const char *dir, struct state *ret, struct error *err);
void state_close(struct state *s);

/* "DIR/NAME"; -ENAMETOOLONG. */
int state_path(const struct state *s, const char *name, char *ret, size_t size, struct error *err);

/* The pid in the file DIR/NAME, if a program of that name has it; 0: none. It may be another one's
 * by now. */
pid_t state_pid(const char *dir, const char *name, const char *program);

/* Replaces the file DIR/NAME, which nobody else may read. @text NULL: -ENOMEM. */
int state_put(const struct state *s, const char *name, const char *text, struct error *err);

/*
 * Makes again what ends: the hub's certificate as a client, if it is gone or has less than
 * STATE_RENEW_DAYS, or with @now. The list of revoked certificates is at most a day old in an open
 * state.
 */
#define STATE_RENEW_DAYS 30
int state_renew(const struct state *s, int64_t now_s, bool now, struct error *err);

/* Writes the files that a running broker reads again: its ACL, and copies of the authority's
 * certificate and list. */
int state_put_broker(const struct state *s, struct error *err);

/* The same if there is a broker, and has a running one read it. */
int state_tell_broker(const struct state *s, struct error *err);
