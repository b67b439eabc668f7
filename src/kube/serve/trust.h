/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's certificate, and the authority that pods have to trust for it. Either somebody
 * else renews files (cert-manager, mounted from a Secret), and we read them again on a change. Or,
 * without other software, we have an authority of our own: the first replica creates it and keeps
 * it in a Secret that the manifests create empty, so that it needs no right but to read and write
 * that object. Each replica signs a certificate for itself, which never leaves its memory. Event
 * loop's thread; called by main.c.
 */
#pragma once

#include "kube/api/client.h"

#define TRUST_SECRET  "tide-kube-ca"
#define TRUST_LOOK_MS 10000 /* how often we read the files, or a Secret that is no good */
#define TRUST_SPREAD  15    /* looks until every pod sees a changed ConfigMap */

struct trust;

struct trust_options {
    const char *cert_file, *key_file, *ca_file; /* NULL: our own authority */
    const char *name_space, *secret;            /* … kept here */
    const char *const *hosts;                   /* that its certificates are for */
    size_t n_hosts;
    unsigned look_ms; /* 0: TRUST_LOOK_MS */
    bool told;        /* people tell of our authority: it stays until it ends, not two years less */
};

/* A new certificate is served, and trust_ca() is known; or, with @problem, there is none. */
typedef void trust_fn(void *arg, const char *problem);

/* @options is borrowed for as long as the object lives. Files are read at once. */
int trust_new(struct client *client, sd_event *event, const struct trust_options *options,
              trust_fn *fn, void *arg, struct trust **ret, struct error *err);
struct trust *trust_free(struct trust *t); /* takes NULL, returns NULL */

/*
 * PEM; NULL: not known yet. After the files bring a new authority, this is the new and the old one:
 * first pods learn of the new one, then its certificate is served, then the old one goes.
 */
const char *trust_ca(const struct trust *t);
