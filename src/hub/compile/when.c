/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/when.h"

#include "base/moment.h"
#include "hub/compile/amount.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-policy-file"

#define DAYS      7
#define EVERY_DAY 127

static const char *const days[DAYS] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

static void skip_blanks(const char **text)
{
    while (**text == ' ')
        ++*text;
}

static int read_window(const char *text, const struct when_context *c, struct window *ret,
                       struct error *err)
{
    const char *all = text;
    struct window w;
    size_t read;

    if (window_parse(text, &read, &w) < 0 || (text[read] && text[read - 1] != ' '))
        return error_set(err, -EINVAL,
                         "'%.60s' is no condition: use one as 'Mon-Fri 18:00-23:00 Europe/Berlin', "
                         "'carbon > 400 g/kWh', 'price > 0.25 EUR/kWh' or 'absent 15 min'",
                         all);
    text += read;
    if (!*text && !c->zone)
        return error_set(err, -EINVAL, "'%.60s' names no time zone, and the policy has no 'zone:'",
                         all);
    if (zones_find(c->zones, *text ? text : c->zone, &w.zone, err) < 0)
        return -EINVAL;
    *ret = w;
    return 0;
}

/* Behind "word" and blanks, or NULL. */
static const char *behind(const char *text, const char *word)
{
    size_t len = strlen(word);

    if (strncmp(text, word, len) != 0 || text[len] != ' ')
        return NULL;
    text += len;
    skip_blanks(&text);
    return text;
}

static const char *behind_more(const char *text, const char *word)
{
    text = behind(text, word);
    return text ? behind(text, ">") : NULL;
}

/* "15 min": moment_duration() wants no blanks. */
static int read_absence(const char *text, uint64_t *ret_s)
{
    char plain[32];
    size_t n = 0;
    uint64_t ms;

    for (; *text && n < sizeof(plain) - 1; text++)
        if (*text != ' ')
            plain[n++] = *text;
    plain[n] = '\0';
    if (*text || moment_duration(plain, &ms) < 0 || ms % 1000)
        return -EINVAL;
    *ret_s = ms / 1000;
    return 0;
}

int when_parse(const char *text, const struct when_context *c, struct power_rule *rule,
               struct error *err)
{
    const char *rest;

    if ((rest = behind_more(text, "carbon"))) {
        rule->condition = IF_CARBON;
        if (amount_carbon(rest, &rule->above) < 0)
            return error_set(err, -EINVAL, "'%.60s' is no carbon intensity: use one as 400 g/kWh",
                             rest);
        return 0;
    }
    if ((rest = behind_more(text, "price"))) {
        rule->condition = IF_PRICE;
        if (!c->currency)
            return error_set(err, -EINVAL, "a price needs 'tariff: {unit: EUR, …}' in the policy");
        if (amount_price(rest, c->currency, &rule->above) < 0)
            return error_set(err, -EINVAL, "'%.60s' is no price: use one as 0.25 %s/kWh", rest,
                             c->currency);
        return 0;
    }
    if ((rest = behind(text, "absent"))) {
        rule->condition = IF_ABSENT;
        if (read_absence(rest, &rule->absent_s) < 0)
            return error_set(err, -EINVAL, "'%.60s' is no time: use one as 15 min", rest);
        return 0;
    }
    rule->condition = IF_WINDOW;
    return read_window(text, c, &rule->window, err);
}

/* ---- written again ---- */

static size_t write_days(uint8_t set, char *to, size_t size)
{
    size_t n = 0;

    if (set == EVERY_DAY)
        return 0;
    for (int d = 0; d < DAYS; d++) {
        int last = d;

        if (!(set >> d & 1))
            continue;
        while (last + 1 < DAYS && set >> (last + 1) & 1)
            last++;
        n += (size_t)snprintf(to + n, size - n, "%s%s", n ? "," : "", days[d]);
        if (last > d)
            n += (size_t)snprintf(to + n, size - n, "%s%s", last > d + 1 ? "-" : ",", days[last]);
        d = last;
    }
    return n + (size_t)snprintf(to + n, size - n, " ");
}

void when_text(const struct power_rule *rule, const struct zone *const *zone, const char *currency,
               char ret[WHEN_TEXT_MAX])
{
    const struct window *w = &rule->window;
    size_t n;

    ret[0] = '\0';
    switch (rule->condition) {
    case IF_WINDOW:
        n = write_days(w->days, ret, WHEN_TEXT_MAX);
        snprintf(ret + n, WHEN_TEXT_MAX - n, "%02u:%02u-%02u:%02u %s", w->from_min / 60u,
                 w->from_min % 60u, w->to_min / 60u, w->to_min % 60u, zone[w->zone]->name);
        break;
    case IF_CARBON:
        snprintf(ret, WHEN_TEXT_MAX, "carbon > %" PRIu64 " g/kWh", rule->above);
        break;
    case IF_PRICE:
        snprintf(ret, WHEN_TEXT_MAX, "price > %" PRIu64 ".%03" PRIu64 " %s/kWh", rule->above / 1000,
                 rule->above % 1000, currency);
        break;
    case IF_ABSENT:
        if (rule->absent_s % 60 == 0)
            snprintf(ret, WHEN_TEXT_MAX, "absent %" PRIu64 " min", rule->absent_s / 60);
        else
            snprintf(ret, WHEN_TEXT_MAX, "absent %" PRIu64 " s", rule->absent_s);
        break;
    default:
        break;
    }
}
