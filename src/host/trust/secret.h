/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets that a program gives out: random ones, and the hash under which it keeps them. They have
 * 256 random bits, so a plain SHA-256 is enough: nobody guesses them, as they would a password. Any
 * thread, no state. Used by src/hub.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SECRET_LEN 64 /* hexadecimal digits of a secret, and of its hash */

/* Fills in a random secret. Returns 0 or -errno. */
int secret_make(char ret[SECRET_LEN + 1]);

/* The hash of @len bytes. Returns 0 or -EIO. */
int secret_hash(const void *bytes, size_t len, char ret[SECRET_LEN + 1]);
