/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts an entry into the list `areas` of a policy's text, and leaves everything else as a person
 * wrote it. Pure but for memory; any thread. Used by sender.c.
 */
#pragma once

/*
 * Returns 0 and the new text, which the caller compiles; -EINVAL: there is neither `areas:` nor
 * `rules:` at the beginning of a line; or -ENOMEM.
 */
int place_in_text(const char *text, const char *area, const char *unit, char **ret);
