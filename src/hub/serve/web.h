/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub for people: an HTTPS server with the page, the REST interface (docs/openapi-hub.yaml), a
 * stream of events, and metrics. Event loop's thread; serve.c makes it and passes on what changes.
 *
 * A request is somebody's by the cookie of a session or by a bearer token. A browser sends the
 * cookie with any page's requests, so with it a change is only made when the page is our own; a
 * token no other page has.
 */
#pragma once

#include "hub/conf.h"
#include "hub/people/audit.h"
#include "hub/store/retention.h"
#include "hub/store/store.h"
#include "hub/tree/tree.h"

#include <systemd/sd-event.h>

#define WEB_BODY_SMALL   16384 /* bytes of a body, but for a policy's … */
#define WEB_BODY_MAX     (2 << 20)
#define WEB_BODIES_MAX   (16 << 20) /* … of all that are longer than WEB_BODY_SMALL */
#define WEB_IGNORE_MAX   (64 << 20) /* of a longer one, which is read to its end, then refused */
#define WEB_CONNECTIONS  (4 * CONF_PER_ADDRESS_MAX)
#define WEB_IDLE_S       120
#define WEB_STREAMS_MAX  256 /* of events; of one user at most … */
#define WEB_STREAMS_USER 16
#define WEB_RATE         50 /* requests of a user a second … */
#define WEB_BURST        200

struct web;

struct web_options {
    sd_event *event; /* all borrowed */
    const struct conf *conf;
    struct people *people;
    struct store *store;
    const struct retention *retention;
    struct tree *tree;
    void (*say)(void *arg, const char *who, const char *text);
    void *arg;
};

/*
 * Begins to listen. A port that is taken is tried again, since units' energy is worth more than
 * the page; the certificate has to be there. Returns 0 or -errno.
 */
int web_new(const struct web_options *options, struct web **ret, struct error *err);
struct web *web_free(struct web *w); /* takes NULL, returns NULL */

/* News of the tree, for the streams; @w may be NULL. */
void web_changed(struct web *w, const struct unit *u, enum tree_what what,
                 const struct payload_event *event);
void web_ordered(struct web *w, const struct tree_order *order);
void web_ruled(struct web *w, const struct in_force *policy);
