/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a mosquitto that units can trust: TLS 1.3 with certificates of our authority
 * in both directions, and the rights of each client (its ACL). Texts of two files; any thread, no
 * state. Used by cmd_broker.c and state.c.
 *
 * A client's name is its certificate's, and its client id is its name: nobody can take another's
 * place. A unit NAME writes below tide/1/NAME/up and reads below tide/1/NAME/down, nothing else.
 */
#pragma once

#include "hub/trust/authority.h"

struct broker_options {
    const char *address; /* NULL: every address */
    unsigned port;
    /* Paths, all in the one folder that the broker may read. */
    const char *cert, *key; /* of the broker's certificate and key */
    const char *ca, *list;  /* of the authority's certificate and its list of revoked ones */
    const char *acl;        /* of the file with the text of broker_acl() */
    const char *user; /* who it runs as, if it is started as root; NULL: mosquitto's default */
};

/* The text of mosquitto.conf; the caller frees it. NULL: out of memory. */
char *broker_config(const struct broker_options *options);

/* The text of the ACL. The broker reads it and the list of revoked certificates at SIGHUP. */
char *broker_acl(const struct authority *a);
