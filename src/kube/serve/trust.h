/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's certificate, and whom pods have to trust for it. Either files that somebody else
 * renews (cert-manager's, mounted from a Secret), read again when they change; or, which needs no
 * other software, an authority of our own: the first replica makes it and keeps it in a Secret that
 * the manifests create empty, so that reading and writing that one object is all it may do. Every
 * replica signs a certificate for itself with it, which never leaves its memory. Event loop's
 * thread; called by main.c.
 */
#pragma once

#include "kube/api/client.h"

#define TRUST_SECRET  "tide-kube-ca"
#define TRUST_LOOK_MS 10000 /* how often files are looked at, and a Secret that is no good */
#define TRUST_SPREAD  15    /* looks, until every pod sees a ConfigMap that has changed */

struct trust;

struct trust_options {
    const char *cert_file, *key_file, *ca_file; /* NULL: our own authority */
    const char *name_space, *secret;            /* … kept here */
    const char *const *hosts;                   /* that its certificates are for */
    size_t n_hosts;
    unsigned look_ms; /* 0: TRUST_LOOK_MS */
};

/* There is a certificate (another one), and trust_ca() is known; or, with @problem, there is none.
 */
typedef void trust_fn(void *arg, const char *problem);

/* @options is borrowed for as long as the object lives. Files are read at once. */
int trust_new(struct client *client, sd_event *event, const struct trust_options *options,
              trust_fn *fn, void *arg, struct trust **ret, struct error *err);
struct trust *trust_free(struct trust *t); /* takes NULL, returns NULL */

/*
 * PEM; NULL: not known yet. When files bring another authority it is this one and the one before:
 * first pods learn of it, then what it has signed is served, then the old one goes.
 */
const char *trust_ca(const struct trust *t);
