/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a configuration file with one section: KEY=VALUE lines below [SECTION], comments
 * behind #. Any thread, no state. Used by tided, tide-hub and tide-gate.
 */
#pragma once

#include "base/error.h"

struct inifile {
    const char *section; /* its name */
    const char *whose;   /* "tided's": for messages */
    const char *name;    /* of the file, for messages */
};

/* Takes a key. Returns 0, or -errno with the reason, without the key's name. */
typedef int inifile_set(void *arg, const char *key, const char *value, struct error *err);

/*
 * Hands each key of @text to @set with @arg, up to the first mistake. Returns 0; -EINVAL with
 * NAME:LINE and the reason; or -ENOMEM.
 */
int inifile_parse(const struct inifile *f, const char *text, inifile_set *set, void *arg,
                  struct error *err);
