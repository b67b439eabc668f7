/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include "base/devices.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
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

/* ---- devices ---- */

static int find_kind(const char *name, size_t length)
{
    for (int kind = 0; kind < DEVICE_KINDS; kind++)
        if (strlen(device_kind_name(kind)) == length &&
            strncmp(device_kind_name(kind), name, length) == 0)
            return kind;
    return -1;
}

int devices_parse(const char *text, int64_t *ret_counts)
{
    int64_t counts = 0;

    for (bool more = true; more; text++) {
        size_t length = strcspn(text, "="),
               digits = strspn(text + length + !!text[length], "0123456789");
        int kind = find_kind(text, length);
        unsigned long number;

        if (kind < 0 || digits < 1 || digits > 3 || devices_of(counts, kind))
            return -EINVAL;
        number = strtoul(text + length + 1, NULL, 10);
        if (number < 1 || number > DEVICES_OF_KIND_MAX)
            return -EINVAL;
        counts = devices_with(counts, kind, (unsigned)number);
        text += length + 1 + digits;
        more = *text == ',';
        if (!more && *text)
            return -EINVAL;
    }
    *ret_counts = counts;
    return 0;
}

const char *devices_text(int64_t counts, char buf[DEVICES_TEXT_MAX])
{
    size_t n = 0;

    *buf = '\0';
    for (int kind = 0; kind < DEVICE_KINDS; kind++)
        if (devices_of(counts, kind))
            n += (size_t)snprintf(buf + n, DEVICES_TEXT_MAX - n, "%s%s=%u", n ? "," : "",
                                  device_kind_name(kind), devices_of(counts, kind));
    return buf;
}
