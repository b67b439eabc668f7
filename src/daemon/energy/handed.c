/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/handed.h"

#include "base/clock.h"
#include "base/muldiv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-reading"

static bool is_name(const char *name)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    size_t len = strlen(name);

    return len > 0 && len < SENSOR_NAME_MAX && strspn(name, plain) == len;
}

/* The source of that name. A new one takes the place of one that is away. */
static struct handed_source *find(struct handed *h, const char *name, uint64_t now_ns)
{
    struct handed_source *s = NULL;

    for (size_t i = 0; i < h->n; i++)
        if (strcmp(h->of[i].sensor.name, name) == 0)
            return &h->of[i];
    if (h->n < HANDED_MAX)
        s = &h->of[h->n++];
    for (size_t i = 0; !s && i < h->n; i++)
        if (sub_sat(now_ns, h->of[i].last.time_ns) > HANDED_FRESH_NS)
            s = &h->of[i];
    if (!s)
        return NULL;
    *s = (struct handed_source){.sensor = {.kind = SENSOR_HANDED,
                                           .part = SENSOR_MACHINE,
                                           .most_uw = POWER_UW_MAX,
                                           .period_ns = HANDED_FRESH_NS / 3}};
    snprintf(s->sensor.name, sizeof(s->sensor.name), "%s", name);
    return s;
}

/* A source that now counts, or no longer, begins anew. */
static void choose_kind(struct handed_source *s, bool counts)
{
    if (s->last.time_ns && s->sensor.counts == counts)
        return;
    s->sensor.counts = counts;
    s->counter.time_ns = 0;
    s->known = false;
}

static void know_nothing(struct handed_source *s, uint64_t now_ns)
{
    s->known = false;
    s->last = (struct sensor_reading){.time_ns = now_ns, .error = -ENODATA};
}

int handed_take(struct handed *h, const struct handed_reading *r, uint64_t now_ns,
                struct error *err)
{
    uint64_t before_ns, before_uw, uj;
    struct handed_source *s;
    enum counter_news news;

    if (!is_name(r->name))
        return error_set(err, -EINVAL,
                         "name is '%.40s': use 1 to %d letters, digits, '.', '_', "
                         "':' or '-'",
                         r->name, SENSOR_NAME_MAX - 1);
    if (!r->has_uj && !r->has_uw)
        return error_set(err, -EINVAL, "neither uj nor uw is there");
    if (r->error_permille > HANDED_ERROR || (r->has_uw && r->uw > POWER_UW_MAX))
        return error_set(err, -EINVAL, "uw is above %" PRIu64 ", or error_permille above %d",
                         (uint64_t)POWER_UW_MAX, HANDED_ERROR);
    s = find(h, r->name, now_ns);
    if (!s)
        return error_set(err, -ENOSPC, "there are %d sources of readings already", HANDED_MAX);
    choose_kind(s, r->has_uj);
    if (!r->has_uj && r->uw == 0) { /* no machine that runs draws 0 W */
        know_nothing(s, now_ns);
        s->counter.time_ns = 0;
        return 0;
    }
    if (r->has_uj && s->counter.time_ns && r->uj == s->counter.raw_uj &&
        now_ns - s->counter.time_ns < HANDED_FRESH_NS) {
        /* A coarse counter that has not moved: the machine has not used nothing. */
        s->last.time_ns = now_ns;
        s->uw = r->has_uw && r->uw > 0 ? r->uw : s->uw;
        return 0;
    }
    s->sensor.error_permille = r->error_permille;
    s->slow = s->sensor.slow = r->slow;
    before_ns = s->counter.time_ns;
    before_uw = s->uw;
    news = r->has_uj ? counter_read(&s->counter, now_ns, r->uj, &uj)
                     : counter_watts(&s->counter, now_ns, r->uw, before_uw, HANDED_FRESH_NS, &uj);
    s->last = (struct sensor_reading){.time_ns = now_ns, .value = r->has_uj ? r->uj : r->uw};
    s->known = (news == COUNTER_OK || news == COUNTER_WRAPPED) && uj > 0;
    if (news == COUNTER_OK && uj == 0 && now_ns > before_ns)
        know_nothing(s, now_ns);
    if (r->has_uw && r->uw > 0)
        s->uw = r->uw;
    else if (s->known && now_ns > before_ns)
        s->uw = mul_div(uj, NS_PER_S, now_ns - before_ns);
    if (s->known) {
        struct energy_range more = energy_within(uj, r->error_permille, POWER_MEASURED);

        energy_add(&s->pending, &more);
    }
    return 0;
}

struct handed_source *handed_best(struct handed *h, uint64_t now_ns)
{
    struct handed_source *best = NULL;

    for (size_t i = 0; i < h->n; i++) {
        struct handed_source *s = &h->of[i];

        if (s->known && sub_sat(now_ns, s->last.time_ns) <= HANDED_FRESH_NS &&
            (!best || (best->slow && !s->slow) ||
             (best->slow == s->slow && s->last.time_ns > best->last.time_ns)))
            best = s;
    }
    return best;
}
