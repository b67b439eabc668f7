/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/instances.h"

#define ALL      20 /* looks that INSTANCES_CALM_NS holds */
#define PART     16 /* of the smoothed requests in flight: a look's */
#define UNIT     256
#define RECENT   8  /* looks, and the fewest of them that are … */
#define CROWD    5  /* … a crowd */
#define TWICE    7  /* the last three of them: where more than twice so many are in flight */
#define ENOUGH   5  /* requests, to know their time */
#define PAYS     20 /* a wider shape must shorten them by one part of so many */
#define SOON     4  /* times the calm before: narrower within that was too early a trial */
#define LASTS    32 /* times the calm: a wider shape that held for so long was right */
#define MANY     (1 << 20)
#define TRIAL_NS UINT64_C(30000000000) /* without enough requests to know their time */

static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint64_t doubled(uint64_t ns, uint64_t first_ns, uint64_t most_ns)
{
    if (ns < first_ns)
        return first_ns;
    return ns < most_ns / 2 ? 2 * ns : most_ns;
}

static unsigned ones(uint32_t looks)
{
    unsigned n = 0;

    for (; looks; looks &= looks - 1)
        n++;
    return n;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The widest shape of at least @count instances, or the narrowest that there is. */
static struct instances_shape of_count(const struct instances_state *s, uint32_t count)
{
    uint32_t most = lesser(s->processes, s->cores), threads;

    most = most ? most : 1;
    count = lesser(count ? count : 1, most);
    threads = s->cores > count ? s->cores / count : 1;
    return (struct instances_shape){lesser(s->cores / threads, most), threads};
}

/* The next wider one; the same where there is none. */
static struct instances_shape wider(const struct instances_state *s)
{
    uint32_t threads = s->shape.threads + 1;

    if (threads > s->cores)
        return s->shape;
    return of_count(s, s->cores / threads);
}

static void set_shape(struct instances_state *s, struct instances_shape shape, uint64_t now_ns)
{
    s->shape = shape;
    s->changed_ns = now_ns;
    s->service_ns = 0;
    s->looks = s->crowded = s->twice = 0;
}

/*
 * The mean number at work, in 256ths, by Little's law: requests that end in a time × what each
 * takes. Agents tell of their process by turns, so that those at work in one moment are overstated.
 */
static uint64_t mean_work(const struct instances_look *look)
{
    uint64_t window_us = look->window_ns / 1000, service_us = look->service_ns / 1000;

    if (look->ended == 0 || window_us == 0 || service_us > UINT32_MAX)
        return UINT64_MAX;
    return lesser(look->ended, MANY) * service_us * UNIT / window_us;
}

/* Whether so many are clearly too few for those at work. */
static bool exceeds(uint64_t work, uint32_t count)
{
    return work / 5 > (uint64_t)count * UNIT / 4;
}

/* ---- looks ----------------------------------------------------------------------------------- */

/* Other cores or processes: as many instances as before, or even parts at first. */
static void follow_cores(struct instances_state *s, const struct instances_look *look)
{
    uint32_t cores = lesser(look->cores ? look->cores : 1, MANY);
    uint32_t processes = lesser(look->processes ? look->processes : 1, MANY);

    if (cores == s->cores && processes == s->processes)
        return;
    if (s->shape.count == 0 || processes != s->processes)
        s->shape.count = processes;
    s->cores = cores;
    s->processes = processes;
    s->before.count = 0;
    s->futile = 0;
    set_shape(s, of_count(s, s->shape.count), look->now_ns);
}

/* Takes the time of a request, once all that ended had the present shape. */
static void follow_service(struct instances_state *s, const struct instances_look *look)
{
    uint64_t settled_ns = look->window_ns + look->service_ns;

    if (look->ended >= ENOUGH && look->service_ns && settled_ns >= look->window_ns &&
        since(look->now_ns, s->changed_ns) > settled_ns)
        s->service_ns = look->service_ns;
}

static void follow_work(struct instances_state *s, const struct instances_look *look)
{
    int64_t at_work = lesser(look->at_work, MANY), part;

    if (since(look->now_ns, s->looked_ns) < INSTANCES_LOOK_NS / 2)
        return;
    s->looked_ns = look->now_ns;
    s->looks += s->looks < UINT32_MAX;
    s->mean = mean_work(look);
    s->crowded =
        s->crowded << 1 | (look->at_work > s->shape.count && exceeds(s->mean, s->shape.count));
    s->twice = s->twice << 1 | (look->at_work / 2 > s->shape.count);
    part = s->looks < PART ? s->looks : PART;
    s->at_work += (at_work * UNIT - s->at_work) / part;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_crowded(const struct instances_state *s)
{
    return (s->twice & TWICE) == TWICE || ones(s->crowded & ((UINT32_C(1) << RECENT) - 1)) >= CROWD;
}

static void narrow(struct instances_state *s, const struct instances_look *look)
{
    uint32_t count =
        look->at_work > s->shape.count ? look->at_work : s->shape.count + 1; /* it just fell */
    struct instances_shape shape = of_count(s, count);

    if (s->widened_ns && since(look->now_ns, s->widened_ns) < SOON * s->calm_ns)
        s->calm_ns = doubled(s->calm_ns, INSTANCES_CALM_NS, INSTANCES_CALM_MAX_NS);
    s->widened_ns = 0;
    s->before.count = 0;
    if (shape.count != s->shape.count)
        set_shape(s, shape, look->now_ns);
}

/* Whether the wider shape of a trial shortens requests; back where it does not. */
static void judge(struct instances_state *s, uint64_t now_ns)
{
    if (s->service_ns == 0 && since(now_ns, s->changed_ns) < TRIAL_NS)
        return;
    if (s->service_ns == 0 || s->service_ns > s->before_ns - s->before_ns / PAYS) {
        s->futile = s->shape.threads;
        s->futile_ns = doubled(s->futile_ns, INSTANCES_FUTILE_NS, INSTANCES_FUTILE_MAX_NS);
        s->until_ns = now_ns + s->futile_ns;
        s->widened_ns = 0;
        set_shape(s, s->before, now_ns);
    }
    s->before.count = 0;
}

/* In a wider shape requests are shorter, so that fewer are in flight than now. */
static bool may_widen(struct instances_state *s, struct instances_shape shape, uint64_t now_ns)
{
    if (shape.threads == s->shape.threads || s->service_ns == 0 || s->looks < ALL ||
        since(now_ns, s->changed_ns) < s->calm_ns)
        return false;
    if (s->futile && shape.threads >= s->futile && now_ns < s->until_ns)
        return false;
    return s->at_work <= (int64_t)shape.count * UNIT || !exceeds(s->mean, shape.count);
}

static void widen(struct instances_state *s, struct instances_shape shape, uint64_t now_ns)
{
    s->before = s->shape;
    s->before_ns = s->service_ns;
    s->widened_ns = now_ns ? now_ns : 1;
    set_shape(s, shape, now_ns);
}

struct instances_shape instances_choose(struct instances_state *s,
                                        const struct instances_look *look)
{
    if (s->calm_ns == 0)
        s->calm_ns = INSTANCES_CALM_NS;
    follow_cores(s, look);
    follow_service(s, look);
    follow_work(s, look);
    if (s->widened_ns && since(look->now_ns, s->widened_ns) >= LASTS * s->calm_ns) {
        s->calm_ns = s->calm_ns / 2 > INSTANCES_CALM_NS ? s->calm_ns / 2 : INSTANCES_CALM_NS;
        s->widened_ns = 0;
    }
    if (is_crowded(s))
        narrow(s, look);
    else if (s->before.count)
        judge(s, look->now_ns);
    else if (may_widen(s, wider(s), look->now_ns))
        widen(s, wider(s), look->now_ns);
    return s->shape;
}
