/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub's messages to one unit, sealed so that no broker between them can change them: 64 bytes of
 * an Ed25519 signature, then the text. The signature covers a context, a NUL, the unit's name, a
 * NUL and the text, so a command for one unit is none for another, and a policy is no command. It
 * says nothing of time: a policy carries a number that only grows, a command an end and an id. Any
 * thread, no state. Used by src/hub (seals) and src/unit (opens).
 */
#pragma once

#include <stddef.h>

#include "host/trust/seal.h"

#define SEALED_POLICY    "tide/1/policy"
#define SEALED_CMD       "tide/1/cmd"
#define SEALED_BYTES_MAX (256 * 1024) /* with the signature; a broker's bound on messages */

/*
 * Seals @text for the unit @name; the caller frees *ret. Returns 0, -EINVAL (the PEM text is no
 * Ed25519 key, or the name none of a unit), -E2BIG or -ENOMEM.
 */
int sealed_make(const char *key_pem, const char *context, const char *name, const char *text,
                char **ret, size_t *ret_len);

/*
 * Checks the seal. *ret_text points into @bytes and is not terminated. Returns 0; -EBADMSG: sealed
 * by another key, for another unit or use, or changed; -EINVAL: too short or too long to be sealed,
 * or the PEM text is no Ed25519 public key; or -ENOMEM.
 */
int sealed_open(const char *public_pem, const char *context, const char *name, const void *bytes,
                size_t len, const char **ret_text, size_t *ret_len);
