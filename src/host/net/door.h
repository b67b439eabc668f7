/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of a page on loopback, for the user who started the program and nobody else: a link with
 * a token that works once gives the browser a cookie. Serves the page's files (embedded.h) itself
 * and hands on requests of a guest who is known. Event loop's thread; used by tide-dashboard and
 * `kubectl tide dashboard`.
 */
#pragma once

#include "base/error.h"
#include "host/net/httpd.h"

#include <systemd/sd-event.h>

struct door;

struct door_options {
    const char *command;    /* that gives a new link, for what a refused guest reads */
    long port;              /* 0: any free one */
    httpd_handler *handler; /* answers requests for /v1/… and /metrics, now or later */
    httpd_handler *over;    /* the end of any request; NULL: none */
    void *arg;              /* of both */
};

/* Borrows @options' command. Returns 0, -EADDRINUSE or another -errno with *err. */
int door_new(sd_event *event, const struct door_options *options, struct door **ret,
             struct error *err);
struct door *door_free(struct door *d); /* takes NULL, returns NULL */

const char *door_link(const struct door *d);

/* Starts a browser where there is a desktop. One that does not come up is no failure. */
void door_open_browser(const struct door *d);

/* Whether @r asks for a change. */
bool door_changes(const struct httpd_request *r);

/* Answers as all our servers do: {"error":{"message","hint"}}. Both are without quotes. */
void door_refuse(struct httpd_request *r, unsigned status, const char *message, const char *hint);
