/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway: an HTTPS server before tided's api.sock. Event loop's thread; made by main.c.
 *
 *     client ═ TLS ═▶ httpd ─ who asks: token or certificate ─▶ a local user of gate.conf ─▶
 *     forward.c ─ Tide-User: UID ─▶ api.sock ─▶ tided, which believes the gateway's uid alone
 *
 * Whoever is not known is refused here. What a user may do is tided's to say; what goes through is
 * what asks, and changes of jobs. A request has its own connection to tided, of which there are
 * GATE_SHORT_MAX and GATE_STREAMS_MAX, so that no user takes all and tided's limit is not met.
 */
#pragma once

#include "base/error.h"

#include <systemd/sd-event.h>

#define GATE_USER         "tide-gate" /* as which it usually runs */
#define GATE_BODY_MAX     65536
#define GATE_BODIES_MAX   (4 << 20) /* of all that are under way */
#define GATE_CONNECTIONS  256
#define GATE_PER_ADDRESS  32
#define GATE_IDLE_S       120
#define GATE_SHORT_MAX    28 /* requests at tided at the same time; and of one user … */
#define GATE_SHORT_USER   8
#define GATE_STREAMS_MAX  16 /* … and streams of events */
#define GATE_STREAMS_USER 4
#define GATE_TIMEOUT_MS   65000 /* a change waits 60 s at most for its acknowledgement */
#define GATE_WRONG_RATE   1     /* log-ins of one address that fail, in a second … */
#define GATE_WRONG_BURST  10    /* … and at once */
#define GATE_LOOK_S       2     /* between two looks at the tokens, and at who has a stream */

struct gate;

/* Begins to listen, with the configuration in @path. Returns 0 or -errno with *err. */
int gate_new(sd_event *event, const char *path, struct gate **ret, struct error *err);

/* Reads the configuration again. A mistake in it leaves everything as it is. */
int gate_reload(struct gate *g, struct error *err);

struct gate *gate_free(struct gate *g); /* takes NULL, returns NULL */
