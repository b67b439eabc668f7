/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to another machine's daemon: a child process, ssh or for a gateway tide-tls, whose
 * standard input and output are the other end of it. What the child says of a failure is kept. Any
 * thread.
 */
#pragma once

#include "base/clock.h"
#include "cli/remote/address.h"

#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct dial {
    int fd;    /* -1: none; does not block */
    pid_t pid; /* 0: none */
    int said;  /* file with the child's standard error; -1: none */
};

#define DIAL_NONE                                                                                  \
    {                                                                                              \
        .fd = -1, .said = -1                                                                       \
    }

#define DIAL_WORDS_MAX 32

struct dial_words {
    const char *word[DIAL_WORDS_MAX]; /* ended by NULL */
    size_t n;
};

/*
 * Adds the words of the ssh that runs @command there. Nothing of this machine goes along: no agent
 * of keys, no display, no forwarded port. The words are borrowed.
 */
void dial_words(const struct address *a, bool alone, const char *command, struct dial_words *w);

/*
 * Makes attributes for a child that gets signals, whichever its caller has blocked for an event
 * loop. Returns 0 or an errno.
 */
int dial_signals(posix_spawnattr_t *attributes);

/*
 * Starts the child. @alone: nobody is there whom it could ask for a password, or whether a host is
 * known. Returns 0, also when the machine cannot be reached: that shows at the first exchange.
 */
int dial_open(const struct address *a, bool alone, struct dial *ret, struct error *err);

#define DIAL_KEPT_NS (5 * NS_PER_S) /* tided closes a connection that is silent for ten seconds */

/*
 * Whether a kept connection that was last answered on at @used_ns serves no more: the other end has
 * closed it, or is about to; or bytes came that nobody asked for.
 */
bool dial_is_stale(const struct dial *d, uint64_t used_ns);

/* Ends the child, which takes milliseconds. The descriptor may have been taken over by then. */
void dial_close(struct dial *d);

#define DIAL_WAIT_MS 2000 /* for the child to end by itself after it closed the connection */

/*
 * Says why an exchange on it failed with @r (-errno of http_exchange()): what the child said, how
 * it ended, for which it waits at most @wait_ms. Closes it. Returns -EHOSTUNREACH, -ETIMEDOUT or
 * another -errno with *err.
 */
int dial_failed(struct dial *d, const struct address *a, int r, unsigned timeout_ms,
                unsigned wait_ms, struct error *err);
