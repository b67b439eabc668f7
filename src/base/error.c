/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * A text may quote a file or a message. The quotation must neither end the line nor steer a
 * terminal, so control characters become '?', in UTF-8 also U+0080 … U+009F.
 */
static void make_printable(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            *p = '?';
}

int error_set_as(struct error *err, int code, const char *word, const char *fmt, ...)
{
    if (err) {
        va_list ap;

        err->code = code;
        err->word = code == -ENOMEM ? "out-of-memory" : word;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        make_printable(err->text);
    }
    return code;
}

int error_word(struct error *err, int code, const char *word)
{
    if (err)
        err->word = word;
    return code;
}

const char *error_said(struct error *err)
{
    char why[48];
    size_t len, most;

    if (!err->word)
        return err->text;
    most =
        sizeof(err->text) - 1 - (size_t)snprintf(why, sizeof(why), " (tide why %.31s)", err->word);
    len = strnlen(err->text, most);
    strcpy(err->text + len, why);
    return err->text;
}

void error_print(const char *word, const char *fmt, ...)
{
    char text[2 * ERROR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s (tide why %s)\n", text, word);
}
