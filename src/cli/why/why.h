/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of error messages' words (messages.h). Any thread; the texts are static. */
#pragma once

#include <stddef.h>

struct why {
    const char *word; /* NULL: the title of a group of words, in cause */
    const char *cause, *cure;
};

/* The entry at @index, in the order of messages.h; NULL: no more. */
const struct why *why_at(size_t index);

/* The cure of errors with @word (may be NULL); NULL: it has no entry. */
const char *why_cure(const char *word);
