/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures by Ed25519: what a hub sends to its units (policies, commands) carries one, so that a
 * broker between them cannot change it. Keys are PEM texts. Any thread, no state. Used by src/hub
 * (signs), src/edge and src/unit (check).
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define SEAL_BYTES 64

/* PEM texts, owned by the caller. */
int seal_make_key(char **ret_key_pem, char **ret_public_pem, struct error *err);

/* The public key of a private one. Returns 0 or -EINVAL: it is no Ed25519 key. */
int seal_public(const char *key_pem, char **ret_public_pem);

/* Returns 0, -EINVAL (no Ed25519 key) or -ENOMEM. */
int seal_sign(const char *key_pem, const void *bytes, size_t len, uint8_t ret[SEAL_BYTES]);

/* Returns 0; -EBADMSG: not signed by that key, or changed; -EINVAL: no Ed25519 public key. */
int seal_check(const char *public_pem, const void *bytes, size_t len,
               const uint8_t sig[SEAL_BYTES]);
