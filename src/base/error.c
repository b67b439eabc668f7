/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

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

int error_set(struct error *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;

        err->code = code;
        err->word = NULL;
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
