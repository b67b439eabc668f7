/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the webhook's path that only the API server knows: random, and kept in the Secret
 * beside the authority, so that it outlives us and is that of each replica. Helm puts it there; if
 * nobody has, the first replica does. It is read again, since a Secret can be replaced. Event
 * loop's thread; called by inject_main.c.
 */
#pragma once

#include "kube/api/client.h"

#define TOKEN_KEY      "path" /* of the Secret */
#define TOKEN_MIN      32     /* characters: digits and small letters, as the API wants them */
#define TOKEN_MAX      128
#define TOKEN_BYTES    32    /* of ours, which has two characters a byte */
#define TOKEN_LOOK_MS  60000 /* between two looks … */
#define TOKEN_AGAIN_MS 5000  /* … after one that failed */

struct token;

/* A token (@text) is known, or is another one now; or, with @problem, it cannot be read. */
typedef void token_fn(void *arg, const char *text, const char *problem);

/* Looks at once. 0 or -errno. */
int token_new(struct client *client, sd_event *event, const char *name_space, const char *secret,
              token_fn *fn, void *arg, struct token **ret, struct error *err);
struct token *token_free(struct token *t); /* takes NULL, returns NULL */

bool token_is_good(const char *text); /* pure */
