/* SPDX-License-Identifier: Apache-2.0 */
#include "base/visible.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first code point that so many bytes are for, and the last one of all. */
static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
#define LAST UINT32_C(0x10ffff)

static const struct {
    uint32_t from, to;
} unseen[] = {
    {0, 0x1f},        {0x7f, 0x9f},     {0x200b, 0x200f}, {0x2028, 0x202e},
    {0x2060, 0x2069}, {0xd800, 0xdfff}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f},
};

/* The code point, with its bytes; *ret_len 0: it is none. */
static uint32_t read_point(const unsigned char *at, size_t *ret_len)
{
    size_t len = at[0] < 0x80             ? 1
                 : (at[0] & 0xe0) == 0xc0 ? 2
                 : (at[0] & 0xf0) == 0xe0 ? 3
                 : (at[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    uint32_t point = len <= 1 ? at[0] : at[0] & (0x7fu >> len);

    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            len = 0;
            break;
        }
        point = point << 6 | (at[i] & 0x3f);
    }
    *ret_len = len && point >= least[len] && point <= LAST ? len : 0;
    return point;
}

static bool is_seen(uint32_t point)
{
    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++)
        if (point >= unseen[i].from && point <= unseen[i].to)
            return false;
    return true;
}

void visible(char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    char *to = text;

    while (*at) {
        size_t len;
        uint32_t point = read_point(at, &len);

        if (len == 0 || !is_seen(point)) {
            *to++ = '?';
            at += len ? len : 1;
            continue;
        }
        while (len--)
            *to++ = (char)*at++;
    }
    *to = '\0';
}
