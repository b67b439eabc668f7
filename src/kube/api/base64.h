/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in base64, as Secrets, ConfigMaps and kubeconfig files have them. Any thread. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* A text in base64; NULL: out of memory. */
json_t *base64_value(const void *bytes, size_t n);

/*
 * The bytes of a text in base64, with a NUL behind them; there may be others among them.
 * @ret: to be freed; @ret_n: without the NUL behind them. -EINVAL: it is no base64.
 */
int base64_decode(const char *text, char **ret, size_t *ret_n);
