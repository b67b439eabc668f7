/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char units[] = "KMGT";

/* Reads the unit: nothing or B, or a letter, with or without B or iB. */
static int read_unit(const char *text, double *ret)
{
    const char *unit = *text ? strchr(units, toupper((unsigned char)*text)) : NULL;

    *ret = 1;
    for (const char *u = units; unit && u <= unit; u++)
        *ret *= 1024;
    if (unit)
        text++;
    if (unit && *text == 'i' && toupper((unsigned char)text[1]) == 'B')
        text++;
    if (toupper((unsigned char)*text) == 'B')
        text++;
    return *text ? -EINVAL : 0;
}

int size_parse(const char *text, uint64_t *ret_bytes)
{
    size_t digits = strspn(text, "0123456789."); /* strtod() would also take "inf" or "1e3" */
    char number[SIZE_TEXT_MAX], *end;
    double value, unit;

    if (!isdigit((unsigned char)*text) || digits >= sizeof(number) ||
        read_unit(text + digits, &unit) < 0)
        return -EINVAL;
    memcpy(number, text, digits);
    number[digits] = '\0';
    value = strtod(number, &end) * unit;
    if (*end || value > (double)SIZE_MAX_BYTES)
        return -EINVAL;
    *ret_bytes = (uint64_t)value;
    return 0;
}

void size_text(uint64_t bytes, char ret[SIZE_TEXT_MAX])
{
    double value = (double)bytes;
    int unit = -1;

    while (value >= 999.5 && unit < 3) { /* "1000K" would have four digits */
        value /= 1024;
        unit++;
    }
    snprintf(ret, SIZE_TEXT_MAX, "%.3g%.*s", value, unit >= 0, unit >= 0 ? units + unit : "");
}
