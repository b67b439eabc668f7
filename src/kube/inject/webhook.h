/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers the API server's questions about new pods (HTTPS), and probes and Prometheus (HTTP).
 * Whatever goes wrong, the pod is allowed: without a patch, or by no answer at all, which the API
 * server ignores. Who asks shows that he is the API server by the path, of which a part is secret;
 * the only thing that a question can cause is the agent's ConfigMap in a namespace. Event loop's
 * thread; called by inject_main.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#define WEBHOOK_PATH "/pods/" /* and the token */

/*
 * An API server sends each question that waits on a connection of its own, and works on 600
 * requests at a time, of which fewer make pods. Its address may be that of all others, too (SNAT).
 */
#define WEBHOOK_CONNECTIONS_MAX 2048
#define WEBHOOK_ADDRESS_MAX     512 /* connections from one address */
#define WEBHOOK_BODIES_MAX      (32u << 20)
#define WEBHOOK_IDLE_S          120 /* API servers keep their connections */

struct spread;
struct webhook;

struct webhook_options {
    const char *listen;  /* HOST:PORT of questions */
    const char *health;  /* … of /healthz and /readyz, for probes */
    const char *metrics; /* … of /metrics, to everybody who asks */
    const char *own;     /* a namespace whose pods are left alone, beside kube-system */
    bool sizes;          /* set the variables that size runtimes, too */
};

/* @options must outlive the object. Serves probes, and no questions until webhook_serve(). */
int webhook_new(sd_event *event, const struct webhook_options *options, struct spread *spread,
                struct webhook **ret, struct error *err);

/*
 * Serves questions: there is a certificate, whose authority ends at @authority_s (seconds since
 * 1970; below 0: not known). May be called again. 0 or -errno.
 */
int webhook_serve(struct webhook *w, int64_t authority_s, struct error *err);

/* From now on the path ends with @token. Until then no path is right. */
void webhook_name(struct webhook *w, const char *token);

/* Says that it is not ready, so that it is asked no more, and goes on answering. */
void webhook_leave(struct webhook *w);

struct webhook *webhook_free(struct webhook *w); /* takes NULL, returns NULL */
