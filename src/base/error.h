/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reason of a failure, for a person: a code (negative errno) and one sentence that says what
 * was wrong, where, and what to do. The function that fails fills it in; the one that handles the
 * failure prints it. Any thread (each caller owns its struct); libc only.
 */
#pragma once

#include <stddef.h>

#define ERROR_TEXT_MAX 256

struct error {
    int code;                  /* 0 or -errno */
    const char *word;          /* its entry in `tide why`, or NULL */
    char text[ERROR_TEXT_MAX]; /* NUL-terminated, one line, no full stop needed */
};

/*
 * Sets *err (may be NULL) to @code (negative errno) and the formatted text, cut at ERROR_TEXT_MAX.
 * Returns @code, so that a caller writes `return error_set(err, -EINVAL, "…")`. There is no word
 * then.
 */
__attribute__((format(printf, 3, 4))) int error_set(struct error *err, int code, const char *fmt,
                                                    ...);

/*
 * Gives an error that was set the word of its entry in `tide why` (cli/why/messages.h), a literal:
 * `return error_word(err, error_set(err, …), "no-such-job")`. Returns @code.
 */
int error_word(struct error *err, int code, const char *word);
