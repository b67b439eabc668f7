/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes requests of the page on to tided's api.sock, and its answers back, streams of events
 * included. tided sees this process as the peer, so the page has its user's rights and no others.
 * Event loop's thread; used by tide-dashboard.
 */
#pragma once

#include "host/net/httpd.h"

#include <systemd/sd-event.h>

#define PROXY_TIMEOUT_MS 65000 /* a change waits 60 s at most for its acknowledgement */
#define PROXY_STREAM_MAX 65536 /* bytes of a stream that wait for a slow browser */

/*
 * Answers @r, now or later, with what tided says to it; 502 or 503 with the reason when tided does
 * not. Requests that the page has no use for are refused with 403.
 */
void proxy_pass(sd_event *event, struct httpd_request *r);

/* The end of any request, whether or not proxy_pass() has seen it. */
void proxy_over(struct httpd_request *r);
