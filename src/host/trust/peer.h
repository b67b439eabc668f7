/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificate that a client of our TLS server has shown. Any thread, no state. Used by
 * src/gate.
 */
#pragma once

#include "base/error.h"

#define PEER_SUBJECT_MAX 512

/*
 * Judges the certificate of the client of @session (of httpd_tls()) against the authorities of the
 * server, for the purpose of a client, now. Returns 0 with its subject as text (RFC 4514:
 * "CN=ana,O=Lab"); -ENOENT: it showed none; or -EACCES with *err.
 */
int peer_subject(void *session, char ret[PEER_SUBJECT_MAX], struct error *err);
