/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/spend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "base/wholefile.h"
#include "unit/log.h"

#define ERROR_WORD "state-unusable"

#define HEAD      "threadtide budget 1"
#define FILE_MAX  512
#define STORE_NS  (60 * NS_PER_S)
#define DAY_S     86400
#define YEAR_9999 INT64_C(253370764800)
#define UNCAPPED  UINT64_MAX

/* ---- the disk: a line for each day, today's first -------------------------------------------- */

static bool read_day(const char *line, struct spend_day *ret)
{
    struct spend_day d = {0};

    /* An earlier version wrote no lent_uj, and today alone. */
    if (sscanf(line, HEAD " %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &d.begin_s,
               &d.used_uj, &d.unseen_uj, &d.total_uj, &d.lent_uj) < 4 ||
        d.begin_s < 0 || d.begin_s > YEAR_9999)
        return false;
    *ret = d;
    return true;
}

void spend_open(struct spend *s, const char *state_dir)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    char *next, *line;
    size_t len;

    *s = (struct spend){.end_s = DAY_S};
    snprintf(s->path, sizeof(s->path), "%s/budget", state_dir);
    if (wholefile_read(s->path, FILE_MAX, &text, &len, &status) < 0)
        return;
    next = text;
    for (unsigned i = 0; i < SPEND_DAYS && (line = strsep(&next, "\n")); i++) {
        if (!read_day(line, &s->day[i]))
            break;
        s->begun = true;
    }
    s->end_s = s->day[0].begin_s + DAY_S;
    if (!s->begun)
        unit_err("%s cannot be read: what was used today counts from now on", s->path);
}

static void store(struct spend *s, uint64_t now_ns)
{
    char text[FILE_MAX];
    size_t n = 0;

    for (unsigned i = 0; i < SPEND_DAYS && (i == 0 || s->day[i].begin_s); i++) {
        const struct spend_day *d = &s->day[i];

        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              HEAD " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                              d->begin_s, d->used_uj, add_sat(d->unseen_uj, i ? 0 : s->gap_uj),
                              d->total_uj, d->lent_uj);
    }
    s->stored_ns = now_ns;
    wholefile_replace(s->path, text, n, NULL); /* again in a minute */
}

/* ---- which day it is ------------------------------------------------------------------------- */

/* Days begin about 24 hours after another; another policy may name another zone for them. */
static bool same_day(const struct spend_day *d, int64_t begin_s)
{
    int64_t apart_s = d->begin_s - begin_s;

    return d->begin_s && apart_s < DAY_S / 2 && apart_s > -DAY_S / 2;
}

/*
 * Puts the account of the day in front. One that comes again has the total of when it was left, so
 * what was used meanwhile is counted next. A day before the present one of which nothing is known
 * may be the present one under a clock that is wrong: it has used as much. Returns whether it is
 * another account than before.
 */
static bool turn_day(struct spend *s, const struct zone *zone, int64_t utc_s, uint64_t total_uj)
{
    int64_t begin_s = utc_s - utc_s % DAY_S, end_s = begin_s + DAY_S;
    struct spend_day day = {0};
    unsigned i = 0;

    if (zone)
        zone_day(zone, utc_s, &begin_s, &end_s);
    while (i < SPEND_DAYS && !same_day(&s->day[i], begin_s))
        i++;
    if (i > 0) {
        s->day[0].unseen_uj = add_sat(s->day[0].unseen_uj, s->gap_uj);
        s->gap_uj = 0;
        if (i < SPEND_DAYS)
            day = s->day[i];
        else if (begin_s < s->day[0].begin_s)
            day = s->day[0];
        else /* what was counted before this process began is not of a new day */
            day.total_uj = s->seen_ns ? s->day[0].total_uj : total_uj;
        i = i < SPEND_DAYS ? i : SPEND_DAYS - 1;
        memmove(&s->day[1], &s->day[0], i * sizeof(day));
        s->day[0] = day;
    }
    s->day[0].begin_s = begin_s;
    s->end_s = end_s;
    return i > 0;
}

/*
 * Today's part of what a meter tells of a time that began before midnight: nobody knows when in it
 * what was used.
 */
static uint64_t of_today(const struct spend *s, int64_t utc_s, uint64_t uj, uint64_t span_ns)
{
    uint64_t today_ns = (uint64_t)(utc_s - s->day[0].begin_s) * NS_PER_S;

    return span_ns > today_ns ? mul_div(uj, today_ns, span_ns) : uj;
}

/* ---- what was used --------------------------------------------------------------------------- */

/* Counts a second in which nobody knew what the area draws, or what they know who are back. */
static void count_gap(struct spend *s, const struct points_news *news, uint64_t more_uj,
                      uint64_t most_uj)
{
    s->hole |= news->hole;
    if (!news->known) {
        s->gap_uj = add_sat(s->gap_uj, sub_sat(most_uj, more_uj));
        return;
    }
    if (s->hole)
        s->day[0].unseen_uj = add_sat(s->day[0].unseen_uj, sub_sat(s->gap_uj, more_uj));
    s->gap_uj = 0;
    s->hole = false;
}

void spend_tick(struct spend *s, const struct zone *zone, int64_t utc_s,
                const struct points_news *news, uint64_t cap_uw, uint64_t now_ns)
{
    uint64_t more_uj = 0, second_ns = s->seen_ns ? now_ns - s->seen_ns : 0;
    bool turned = utc_s && turn_day(s, zone, utc_s, news->total_uj);
    struct spend_day *today = &s->day[0];

    if (s->begun) /* a total that is less: the meters' records were lost */
        more_uj = sub_sat(news->total_uj, today->total_uj);
    if (utc_s)
        more_uj = of_today(s, utc_s, more_uj, news->span_ns);
    today->total_uj = news->total_uj;
    today->used_uj = add_sat(today->used_uj, more_uj);
    s->seen_ns = now_ns;
    s->begun = true;
    count_gap(s, news, more_uj, cap_uw == UNCAPPED ? 0 : mul_div(cap_uw, second_ns, NS_PER_S));
    if (turned || now_ns - s->stored_ns >= STORE_NS)
        store(s, now_ns);
}

uint64_t spend_used_uj(const struct spend *s)
{
    return add_sat(add_sat(s->day[0].used_uj, s->day[0].unseen_uj), s->gap_uj);
}
