/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/printed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "power/measure/amount.h"

#define LINE_MAX_ 96
#define W_UW      UINT64_C(1000000)

/* Copies the next line, cut; returns what follows, or NULL at the end. */
static const char *next_line(const char *text, char ret[LINE_MAX_])
{
    size_t n = strcspn(text, "\n");

    if (*text == '\0')
        return NULL;
    snprintf(ret, LINE_MAX_, "%.*s", (int)(n < LINE_MAX_ ? n : LINE_MAX_), text);
    ret[strcspn(ret, "\r")] = '\0';
    return text + n + (text[n] != '\0');
}

int printed_amount(const char *text, uint64_t *ret)
{
    char line[LINE_MAX_];
    enum amount_kind kind;
    uint64_t amount;

    while ((text = next_line(text, line))) {
        if (strlen(line) == LINE_MAX_ - 1 || amount_parse(line, &amount, &kind) < 0 ||
            amount > INT64_MAX)
            continue;
        *ret = amount; /* a plain number's millionths are µW */
        return kind == AMOUNT_ENERGY ? 2 : 1;
    }
    return -ENOENT;
}

/* "  220 Watts", "180 (+/- 0) Watts", "No Reading". */
static int watts_of(const char *value, uint64_t *ret_uw)
{
    char number[24];
    const char *unit;
    size_t n;
    enum amount_kind kind;
    uint64_t uw;

    value += strspn(value, " \t");
    n = strcspn(value, " \t");
    snprintf(number, sizeof(number), "%.*s", (int)(n < sizeof(number) ? n : sizeof(number)), value);
    if (strncmp(value, "No Reading", 10) == 0 || strncmp(value, "Not Available", 13) == 0)
        return -ENODATA;
    unit = value + n + strspn(value + n, " \t");
    if (*unit == '(') {
        unit = strchr(unit, ')');
        unit = unit ? unit + 1 + strspn(unit + 1, " \t") : "";
    }
    if (strncmp(unit, "Watts", 5) != 0 || amount_parse(number, &uw, &kind) < 0 ||
        kind != AMOUNT_PLAIN || uw > INT64_MAX)
        return -ENOENT;
    *ret_uw = uw;
    return 0;
}

int printed_ipmi(const char *text, uint64_t *ret_uw)
{
    static const char *const labels[] = {"Instantaneous power reading", "Sensor Reading"};
    char line[LINE_MAX_];
    int r = -ENOENT;

    while (r == -ENOENT && (text = next_line(text, line))) {
        const char *label = line + strspn(line, " \t"), *colon = strchr(label, ':');

        for (size_t i = 0; colon && r == -ENOENT && i < ARRAY_LEN(labels); i++)
            if (strncmp(label, labels[i], strlen(labels[i])) == 0)
                r = watts_of(colon + 1, ret_uw);
    }
    return r;
}

void printed_reason(const char *text, char *ret, unsigned size)
{
    char line[LINE_MAX_], last[LINE_MAX_] = "";

    while ((text = next_line(text, line)))
        if (line[strspn(line, " \t")])
            memcpy(last, line, sizeof(last));
    for (char *c = last; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    snprintf(ret, size, "%s", last);
}
