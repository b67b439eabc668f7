/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to reach the API server: its address, its authority, our credentials. They come from a pod's
 * service account or from kubeconfig files. Any thread (each caller owns its struct); blocks on
 * files. Used by client.c; the two programs' main functions load it.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define ACCESS_FILE_MAX      (1u << 20) /* bytes of a kubeconfig, a certificate, a token */
#define ACCESS_FILES_MAX     16         /* in KUBECONFIG */
#define ACCESS_SERVICE_FILES "/var/run/secrets/kubernetes.io/serviceaccount"

/* A text, or the file that holds it, which is read again by access_refresh. */
struct access_text {
    char *text, *file; /* NULL: there is none */
};

/* Owns all texts. */
struct access {
    char *server;                            /* "https://host:port", without a slash at the end */
    char *name_space;                        /* of the context or our pod; never NULL */
    struct access_text ca, cert, key, token; /* PEM; the token without white space around it */
    bool insecure;                           /* the user wants no verification */
};

/*
 * Reads @kubeconfig (files with colons between, as in the environment variable of kubectl; NULL or
 * "": that variable, else ~/.kube/config) and resolves @context (NULL: the current one). Returns 0
 * or -errno with file and line of what is wrong.
 */
int access_load(const char *kubeconfig, const char *context, struct access *ret, struct error *err);

/*
 * Loads the access of a pod: KUBERNETES_SERVICE_HOST and …_PORT, and the files in @dir (usually
 * ACCESS_SERVICE_FILES). -ENOENT: not in a cluster.
 */
int access_in_cluster(const char *dir, struct access *ret, struct error *err);

/* The access that the user names, else the pod's, else as access_load() without names. 0 or -errno.
 */
int access_find(const char *kubeconfig, const char *context, struct access *ret, struct error *err);

/*
 * Reads the files of the texts again, since tokens live for an hour. If a file cannot be read, its
 * text stays. Returns 1 when something changed, 0 or -errno.
 */
int access_refresh(struct access *a, struct error *err);

void access_done(struct access *a);

/* ---- kubeconfig.c: the pure half ---- */

struct kubeconfig_file {
    const char *path; /* for errors, and because relative paths in it begin at its folder */
    const char *text;
    size_t len;
};

/*
 * The first file that names a context, cluster or user wins, as with kubectl. Files that are
 * referred to are not read yet.
 */
int kubeconfig_resolve(const struct kubeconfig_file *files, size_t n, const char *context,
                       struct access *ret, struct error *err);
