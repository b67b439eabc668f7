/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admits the page's own user: guards against other users of the machine, other sites and other
 * servers on it. Pure but for guest_uid(); event loop's thread; used by door.c.
 *
 * A cookie goes to each port of a host, and a link stands in the command line of a browser: both
 * can be seen by another user. So the kernel is asked whose socket is at the other end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define GUEST_SECRET_LEN 32 /* hexadecimal digits: 128 bits */

/* Fills in random digits. Returns 0 or -errno. */
int guest_secret(char ret[GUEST_SECRET_LEN + 1]);

/* Compares in a time that does not tell how much was right. @text may be NULL. */
bool guest_knows(const char *text, const char *secret);

/* Finds the value of the cookie @name in the header @cookies (may be NULL). */
bool guest_cookie(const char *cookies, const char *name, char *ret, size_t size);

/*
 * Whether @host (of the Host header; may be NULL) names this machine's loopback. Another name that
 * leads here is a page of elsewhere that had its name point to us (DNS rebinding).
 */
bool guest_host(const char *host);

/*
 * Whether a request may change something: @origin (may be NULL) is the page's own, which @host
 * served. A page of another port of this host has the same "site", and would send the cookie.
 */
bool guest_origin(const char *origin, const char *host);

/*
 * The user whose established socket is at the other end of the loopback connection @fd, from the
 * files net/tcp and net/tcp6 below @proc (a descriptor of /proc/self). Returns 0, -ENOENT (it is
 * gone, or not of this network namespace) or another -errno.
 */
int guest_uid(int proc, int fd, uid_t *ret);
