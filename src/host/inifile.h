/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a configuration file with one section: KEY=VALUE lines below [SECTION], comments
 * behind #. Any thread, no state. Used by tided and tide-hub.
 */
#pragma once

#include "base/error.h"

struct inifile {
    const char *section; /* its name */
    const char *whose;   /* "tided's": for messages */
    /* Takes a key. Returns 0, or -errno with the reason, without the key's name. */
    int (*set)(void *arg, const char *key, const char *value, struct error *err);
    void *arg;
};

/*
 * Hands each key of @text to @f->set(), up to the first mistake. @name: of the file, for messages.
 * Returns 0; -EINVAL with NAME:LINE and the reason; or -ENOMEM.
 */
int inifile_parse(const struct inifile *f, const char *name, const char *text, struct error *err);
