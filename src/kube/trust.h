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

#include "kube/client.h"

#define TRUST_SECRET "tide-kube-ca"

struct trust;

struct trust_options {
    const char *cert_file, *key_file, *ca_file; /* NULL: our own authority */
    const char *name_space, *secret;            /* … kept here */
    const char *const *hosts;                   /* that its certificates are for */
    size_t n_hosts;
};

/* There is a certificate (another one), and trust_ca() is known; or, with @problem, there is none.
 */
typedef void trust_fn(void *arg, const char *problem);

/* @options is borrowed for as long as the object lives. Files are read at once. */
int trust_new(struct client *client, sd_event *event, const struct trust_options *options,
              trust_fn *fn, void *arg, struct trust **ret, struct error *err);
struct trust *trust_free(struct trust *t); /* takes NULL, returns NULL */

const char *trust_ca(const struct trust *t); /* PEM; NULL: not known yet */
