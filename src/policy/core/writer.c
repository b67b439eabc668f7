/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/writer.h"

void put_char(struct writer *w, char c)
{
    if (w->length + 1 < w->size)
        w->buf[w->length++] = c;
}

void put_text(struct writer *w, const char *text)
{
    while (*text)
        put_char(w, *text++);
}

void put_number(struct writer *w, int64_t value)
{
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    char digit[20]; /* 2^64 has this many digits */
    int n = 0;

    do
        digit[n++] = (char)('0' + rest % 10);
    while ((rest /= 10));
    if (value < 0)
        put_char(w, '-');
    while (n > 0)
        put_char(w, digit[--n]);
}

size_t put_end(struct writer *w)
{
    if (w->size)
        w->buf[w->length] = '\0';
    return w->length;
}

bool text_same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}
