/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes requests of the page on to tided's api.sock, and its answers back, streams of events
 * included. tided sees this process as the peer, so the page has its user's rights and no others.
 * Requests for /v1/at/NAME/… go as /v1/… to the daemon of the machine NAME, through ssh or
 * a gateway. Event loop's thread; used by tide-dashboard.
 */
#pragma once

#include "cli/dashboard/machines.h"
#include "cli/dashboard/reach.h"
#include "host/net/httpd.h"

#include <systemd/sd-event.h>

#define PROXY_TIMEOUT_MS     65000 /* a change waits 60 s at most for its acknowledgement */
#define PROXY_FAR_TIMEOUT_MS 20000 /* for what only asks another machine; a login included */
#define PROXY_AT             "/v1/at/"

/* It works with these, which are the caller's. */
struct proxy {
    sd_event *event;
    struct machines *machines;
    struct reach *reach;
};

/*
 * Answers @r, now or later, with what tided says to it; 502 or 503 with the reason when tided does
 * not. Requests that the page has no use for are refused with 403.
 */
void proxy_pass(const struct proxy *p, struct httpd_request *r);

/* Refuses @r with what machines_find() returned. */
void proxy_refuse_machine(struct httpd_request *r, int found);

/* The end of any request, whether or not proxy_pass() has seen it. */
void proxy_over(struct httpd_request *r);
