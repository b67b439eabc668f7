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

#define HEAD     "threadtide budget 1"
#define FILE_MAX 256
#define STORE_NS (60 * NS_PER_S)
#define DAY_S    86400
#define UNCAPPED UINT64_MAX

void spend_open(struct spend *s, const char *state_dir)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;

    *s = (struct spend){0};
    snprintf(s->path, sizeof(s->path), "%s/budget", state_dir);
    if (wholefile_read(s->path, FILE_MAX, &text, &len, &status) < 0)
        return;
    /* An earlier version wrote no lent_uj. */
    if (sscanf(text, HEAD " %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &s->day_s,
               &s->used_uj, &s->unseen_uj, &s->total_uj, &s->lent_uj) >= 4)
        s->begun = true;
    else
        unit_log("%s cannot be read: what was used today counts from now on", s->path);
}

static void store(struct spend *s, uint64_t now_ns)
{
    char text[FILE_MAX];
    int n = snprintf(
        text, sizeof(text), HEAD " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
        s->day_s, s->used_uj, add_sat(s->unseen_uj, s->gap_uj), s->total_uj, s->lent_uj);

    s->stored_ns = now_ns;
    wholefile_replace(s->path, text, (size_t)n, NULL); /* again in a minute */
}

/* Whether a new day has begun. */
static bool turn_day(struct spend *s, const struct zone *zone, int64_t utc_s)
{
    int64_t begin = utc_s - utc_s % DAY_S, end = begin + DAY_S;
    bool later;

    if (zone)
        zone_day(zone, utc_s, &begin, &end);
    later = begin > s->day_s;
    s->day_s = begin;
    s->end_s = end;
    return later;
}

void spend_tick(struct spend *s, const struct zone *zone, int64_t utc_s, uint64_t total_uj,
                bool known, uint64_t cap_uw, uint64_t now_ns)
{
    bool first = !s->begun, new_day = turn_day(s, zone, utc_s);
    uint64_t more = 0, second_ns = s->seen_ns ? now_ns - s->seen_ns : 0;

    if (!first && total_uj >= s->total_uj) /* else the meters' records were lost */
        more = total_uj - s->total_uj;
    s->total_uj = total_uj;
    s->seen_ns = now_ns;
    s->begun = true;
    if (new_day)
        s->used_uj = s->unseen_uj = s->gap_uj = s->lent_uj = 0;
    else
        s->used_uj = add_sat(s->used_uj, more);
    if (!known && cap_uw != UNCAPPED) {
        s->gap_uj = add_sat(s->gap_uj, sub_sat(mul_div(cap_uw, second_ns, NS_PER_S), more));
    } else if (s->gap_uj) { /* a meter that is back may have counted all the time */
        s->unseen_uj = add_sat(s->unseen_uj, sub_sat(s->gap_uj, more));
        s->gap_uj = 0;
    }
    if (new_day || now_ns - s->stored_ns >= STORE_NS)
        store(s, now_ns);
}

uint64_t spend_used_uj(const struct spend *s)
{
    return add_sat(add_sat(s->used_uj, s->unseen_uj), s->gap_uj);
}
