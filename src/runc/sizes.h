/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables of base/startup.h in a container's config.json and process.json. The container's
 * requests stand in its annotations (io.threadtide.request, .min and .max; engines hand no labels
 * on), its variable TIDE_MAX and its limits (linux.resources.cpu). A value that cannot be read
 * counts as missing. Pure; called by spec.c.
 */
#pragma once

#include "base/jsontext.h"
#include "base/startup.h"

/* The sizes by @config's requests and by @env (process.env); @cores: the machine's. */
struct startup sizes_read(const struct jsontext *json, struct json_span config,
                          struct json_span env, unsigned cores);

/* Adds what @s sets to @env, unless it has been added. Returns 1, 0 or -ENOMEM. */
int sizes_add(struct jsontext *json, struct json_span env, struct startup *s);

/* Takes into @s what @env says itself: whether idle threads spin, and how many threads there may
 * be. */
void sizes_own(const struct jsontext *json, struct json_span env, struct startup *s);
