/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificate that a program serves, and its key, from two files that somebody else renews.
 * Event loop's thread. Used by src/hub/trust and src/gate.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <time.h>

/* Files that are served now. Begins as zeros. */
struct served {
    struct timespec cert_time, key_time; /* of the files */
    bool there;
};

/*
 * Looks at the files, and has new connections of this process's TLS server get what is new there.
 * Returns 1 after a change, 0, or -errno with *err: then it stays as it is.
 */
int served_look(struct served *s, const char *cert, const char *key, struct error *err);

/*
 * Reads a file of PEM texts. A link is followed: what renews certificates often has the newest one
 * behind a link. Returns 0 with its text, the caller's, and its time, or -errno with *err.
 */
int served_read(const char *path, char **ret, struct timespec *ret_time, struct error *err);
