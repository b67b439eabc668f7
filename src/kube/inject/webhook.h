/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers the API server's questions about new pods (HTTPS), and probes and Prometheus (HTTP).
 * Whatever goes wrong, the pod is allowed: without a patch, or by no answer at all, which the API
 * server ignores. Nobody is asked who he is: the answers hold no secret, and the only thing that a
 * question can cause is the agent's ConfigMap in a namespace. Event loop's thread; called by
 * inject_main.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <systemd/sd-event.h>

#define WEBHOOK_PATH            "/pods"
#define WEBHOOK_CONNECTIONS_MAX 256
#define WEBHOOK_BODIES_MAX      (32u << 20)
#define WEBHOOK_IDLE_S          120 /* API servers keep their connections */

struct spread;
struct webhook;

struct webhook_options {
    const char *listen; /* HOST:PORT of questions */
    const char *health; /* … of /healthz, /readyz and /metrics */
    const char *own;    /* a namespace whose pods are left alone, beside kube-system */
    bool sizes;         /* set the variables that size runtimes, too */
};

/* @options is borrowed for as long as the object lives. Serves probes at once. */
int webhook_new(sd_event *event, const struct webhook_options *options, struct spread *spread,
                struct webhook **ret, struct error *err);

/* Serves questions: there is a certificate. 0 or -errno. */
int webhook_serve(struct webhook *w, struct error *err);

struct webhook *webhook_free(struct webhook *w); /* takes NULL, returns NULL */
