/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/config_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/moment.h"
#include "base/suggest.h"
#include "power/measure/amount.h"

#define ERROR_WORD "config-error"

#define MICRO        UINT64_C(1000000)
#define PERIOD_MAX_S 3600

int config_wrong(struct reader *r, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set(r->err, -EINVAL, "%.80s:%u: %.160s", r->file, r->line, text);
}

int config_take_text(struct reader *r, const char *value, char *ret, size_t size)
{
    if ((size_t)snprintf(ret, size, "%s", value) >= size)
        return config_wrong(r, "longer than %zu characters", size - 1);
    return 0;
}

int config_take_topic(struct reader *r, const char *value, char *ret, size_t size)
{
    if (strpbrk(value, "+#"))
        return config_wrong(r, "'%s' has a wildcard: name one topic", value);
    return config_take_text(r, value, ret, size);
}

int config_take_yes(struct reader *r, const char *value, bool *ret)
{
    *ret = strcmp(value, "yes") == 0;
    return *ret || strcmp(value, "no") == 0 ? 0
                                            : config_wrong(r, "'%s' is neither yes nor no", value);
}

int config_take_path(struct reader *r, const char *value, char *ret)
{
    if (value[0] != '/')
        return config_wrong(r, "'%s' is no path that begins with /", value);
    return config_take_text(r, value, ret, CONFIG_PATH_MAX);
}

int config_take_number(struct reader *r, const char *value, uint64_t least, uint64_t most,
                       uint64_t *ret)
{
    char *end;
    unsigned long long n;

    errno = 0;
    n = strtoull(value, &end, strncmp(value, "0x", 2) == 0 ? 16 : 10);
    if (errno || *end || !isdigit((unsigned char)*value) || n < least || n > most)
        return config_wrong(r, "'%s' is no number from %llu to %llu", value,
                            (unsigned long long)least, (unsigned long long)most);
    *ret = n;
    return 0;
}

/* HOST, HOST:PORT, [ADDRESS]:PORT */
int config_take_address(struct reader *r, const char *value, char *host, uint16_t *port)
{
    const char *end = value[0] == '[' ? strchr(value, ']') : NULL;
    const char *begin = end ? value + 1 : value, *colon = strchr(end ? end : value, ':');
    size_t len = (size_t)((end ? end : colon ? colon : value + strlen(value)) - begin);
    uint64_t n;

    if (len == 0 || len >= CONFIG_TEXT_MAX)
        return config_wrong(r, "'%s' is no HOST or HOST:PORT", value);
    if (colon) {
        if (config_take_number(r, colon + 1, 1, 65535, &n) < 0)
            return -EINVAL;
        *port = (uint16_t)n;
    }
    memcpy(host, begin, len);
    host[len] = '\0';
    return 0;
}

int config_take_duration(struct reader *r, const char *value, uint32_t *ret_s)
{
    uint64_t ms;

    if (moment_duration(value, &ms) < 0 || ms % 1000 || ms > PERIOD_MAX_S * 1000)
        return config_wrong(r, "'%s' is no duration like '10s', at most 1h", value);
    *ret_s = (uint32_t)(ms / 1000);
    return 0;
}

int config_take_watts(struct reader *r, const char *value, uint64_t *ret_uw)
{
    enum amount_kind kind;

    if (amount_parse(value, ret_uw, &kind) < 0 || kind != AMOUNT_POWER || !*ret_uw)
        return config_wrong(r, "'%s' is no power like '2.3 kW'", value);
    return 0;
}

/* "2 %" */
int config_take_percent(struct reader *r, const char *value, uint32_t *ret_permille)
{
    char number[32];
    size_t n = strcspn(value, " %");
    enum amount_kind kind;
    uint64_t micro;

    snprintf(number, sizeof(number), "%.*s", (int)(n < 31 ? n : 31), value);
    if (strcmp(value + n + strspn(value + n, " "), "%") != 0 ||
        amount_parse(number, &micro, &kind) < 0 || kind != AMOUNT_PLAIN || micro > 100 * MICRO)
        return config_wrong(r, "'%s' is no share like '2 %%'", value);
    *ret_permille = (uint32_t)(micro / (MICRO / 10));
    return 0;
}

/* "kWh", or "0.1 kWh" of a register that counts tenths. */
int config_take_scale(struct reader *r, const char *value, uint32_t wanted, uint64_t *ret)
{
    char one[32];
    enum amount_kind kind;

    snprintf(one, sizeof(one), "%s%.20s", isdigit((unsigned char)value[0]) ? "" : "1 ", value);
    if (amount_parse(one, ret, &kind) < 0 || (uint32_t)kind != wanted || *ret == 0)
        return config_wrong(r, "'%s' is no unit of %s like '%s'", value,
                            wanted == AMOUNT_POWER ? "power" : "energy",
                            wanted == AMOUNT_POWER ? "W" : "kWh");
    return 0;
}

int config_unknown_key(struct reader *r, const char *key, const char *const *known, size_t n)
{
    const char *near = suggest_nearest(key, known, n);

    return near ? config_wrong(r, "unknown key '%s'; did you mean '%s'?", key, near)
                : config_wrong(r, "unknown key '%s' in this section", key);
}
