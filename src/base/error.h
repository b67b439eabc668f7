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
    const char *word;          /* its entry in `tide why`; NULL: not set */
    char text[ERROR_TEXT_MAX]; /* NUL-terminated, one line, no full stop needed */
};

/*
 * Sets *err (may be NULL) to @code (negative errno) and the formatted text, cut at ERROR_TEXT_MAX.
 * Returns @code, so that a caller writes `return error_set(err, -EINVAL, "…")`. Its word is the one
 * of the class of errors that the file makes: behind its includes the file says, for example,
 * #define ERROR_WORD "config-error". Without memory (-ENOMEM) it is "out-of-memory".
 */
#define error_set(err, code, ...) error_set_as(err, code, ERROR_WORD, __VA_ARGS__)
__attribute__((format(printf, 4, 5))) int error_set_as(struct error *err, int code,
                                                       const char *word, const char *fmt, ...);

/*
 * Gives an error that was set a more exact word of `tide why` (cli/why/messages.h), a literal:
 * `return error_word(err, error_set(err, …), "no-such-job")`. Returns @code.
 */
int error_word(struct error *err, int code, const char *word);

/* The end of a log's line about an error of the file's class. */
#define ERROR_WHY " (tide why " ERROR_WORD ")"

/* The word of *err, that of the file's class if it has none. */
#define error_why(err) ((err)->word ? (err)->word : ERROR_WORD)

/* Lets the text end with " (tide why WORD)", for a line that a person reads; returns the text. */
const char *error_said(struct error *err);

/* Prints a line on stderr: the formatted text, which names the program, and " (tide why @word)". */
__attribute__((format(printf, 2, 3))) void error_print(const char *word, const char *fmt, ...);
