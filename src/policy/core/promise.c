/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/promise.h"

#include <assert.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

/*
 * One slow request of a hundred is promised, so that one of few says little: a window of 20 holds
 * one by chance in 18 of 100 cases at most. Below, p99 must be near the promise for two windows or
 * more in a row.
 */
#define ENOUGH  20
#define FEW_NS  (4 * SECOND)
#define SEEN    50000        /* thousandths of requests with the same cores, to give one back */
#define RATE_NS (4 * SECOND) /* time constant of the smoothed load */

/*
 * Tenths of the promise: p99 above NEAR is near it, p99 up to SLACK clearly below; two cores
 * instead of three raise p99 from one to the other, and more where they are nearly busy. With 7
 * instead of 6 some constant loads of the test lost more than one window of a hundred to cores
 * given back.
 */
#define NEAR  9
#define SLACK 6

/* Between slack and near a core is given back after this time, and after this many hold-offs. */
#define MIDDLE_NS (8 * SECOND)
#define MIDDLE    4

#define LOWER(r) ((r) / 4 * 3) /* a load that is clearly lower than @r */
#define SOON_NS  (8 * SECOND)  /* and twice the promise: then the core given back is missed */

#define TRIAL_NS        (2 * SECOND)  /* more cores must have shown that they help, … */
#define PATIENCE_NS     (30 * SECOND) /* … and, in four times the promise at least, are enough */
#define PATIENCE_MIN_NS (6 * SECOND)

#define PER_CORE  256 /* unit of requests in flight for a core */
#define FADES     16  /* part of `usual` that fades with each block */
#define RISES     3   /* halves of the usual number in flight: more, … */
#define RISES_BY  2   /* … by at least so many, is a rise */
#define ROOM      16  /* halves: where p99 is far below the promise */
#define FEW_CORES 3   /* one fewer is a large step */

#define WAKES_NS   (3 * SECOND)    /* p99 near the promise in it: cores were back too late */
#define FAR_NS     (3600 * SECOND) /* larger values are cut, so that products stay in range */
#define MANY       (1 << 24)
#define MANY_CORES (1 << 16)

/* A look, in bounds. */
struct seen {
    uint64_t now_ns, promise_ns, near_ns, slack_ns, p99_ns, window_ns;
    uint64_t rate; /* in the window, by 1000 s */
    uint32_t least, most, has;
    uint32_t own;
    bool shares;    /* its cores beyond its own */
    bool lacks_own; /* these are what it has no more of */
    bool any;       /* requests ended in the window */
    bool enough;    /* to trust its p99 */
    bool slow, slack;
    bool pure; /* all had the cores that are in place now */
    bool rise; /* many more in flight than usual */
};

static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t bounded(uint32_t cores, const struct seen *v)
{
    cores = cores < v->least ? v->least : cores;
    return cores > v->most ? v->most : cores;
}

/* ---- what was seen --------------------------------------------------------------------------- */

static bool lowered_lately(const struct promise_state *s, uint64_t now_ns, uint64_t promise_ns)
{
    return s->lowered_ns && since(now_ns, s->lowered_ns) < SOON_NS + 2 * promise_ns;
}

/*
 * The limit of p99. Soon after a core was given back, p99 above slack that rose by more than two
 * buckets of the histogram says already that this core is missed.
 */
static uint64_t near_ns(const struct promise_state *s, uint64_t now_ns, uint64_t promise_ns)
{
    uint64_t near = greater(promise_ns * NEAR / 10, 1), slack = promise_ns * SLACK / 10;

    if (s->stage != PROMISE_STEADY || !lowered_lately(s, now_ns, promise_ns))
        return near;
    return lesser(near, greater(slack, s->lowered_p99_ns / 4 * 5));
}

/*
 * A queue forms before any p99 shows it: more are in flight than usual, by so much that the last of
 * them would end near the promise, both by what p99 was with the usual number and by how many end.
 */
static bool rises(const struct promise_state *s, const struct promise_look *look,
                  const struct seen *v)
{
    uint64_t in_flight = lesser(look->in_flight, MANY), halves = RISES, high;

    if (v->any && v->p99_ns < v->near_ns)
        halves = greater(RISES, lesser(ROOM, 2 * v->near_ns / greater(v->p99_ns, 1)));
    high = s->usual * greater(lesser(v->has, MANY_CORES), 1) * halves / 2 / PER_CORE + RISES_BY;
    if (in_flight <= high)
        return false;
    return v->rate == 0 || in_flight * 1000 * SECOND / v->rate > v->near_ns / 2;
}

static struct seen see(const struct promise_state *s, const struct promise_look *look)
{
    uint64_t promise_ns = lesser(look->promise_ns, FAR_NS);
    struct seen v = {
        .now_ns = look->now_ns,
        .promise_ns = promise_ns,
        .near_ns = near_ns(s, look->now_ns, promise_ns),
        .slack_ns = promise_ns * SLACK / 10,
        .p99_ns = lesser(look->p99_ns, FAR_NS),
        .window_ns = look->window_ns ? lesser(look->window_ns, FAR_NS) : SECOND,
        .least = look->least < look->most ? look->least : look->most,
        .most = look->most,
        .has = look->has,
        .own = look->own && look->own < look->most ? look->own : look->most,
    };
    uint64_t changed_ns = look->has == s->has ? s->changed_ns : look->now_ns;

    v.shares = v.own < v.most;
    v.lacks_own = v.shares && v.has >= v.own;
    v.any = look->ended && look->p99_ns;
    v.rate = (uint64_t)look->ended * 1000 * 1000 / greater(v.window_ns / MS, 1);
    v.slow = v.any && v.p99_ns > v.near_ns;
    v.slack = v.any && v.p99_ns <= v.slack_ns;
    v.enough = v.any && (look->ended >= ENOUGH ||
                         (v.slow && s->slow_ns && since(v.now_ns, s->slow_ns) >= FEW_NS));
    v.pure = since(v.now_ns, changed_ns) >= v.window_ns + lesser(v.p99_ns, PATIENCE_NS);
    v.rise = rises(s, look, &v);
    return v;
}

/* Begin of a time in which @is holds; 0: it does not. */
static void stretch(bool is, uint64_t now_ns, uint64_t *since_ns)
{
    if (!is)
        *since_ns = 0;
    else if (*since_ns == 0)
        *since_ns = greater(now_ns, 1);
}

/* Follows how many are in flight at the top while the promise is kept, with one block's delay. */
static void follow_in_flight(struct promise_state *s, const struct promise_look *look,
                             const struct seen *v)
{
    uint64_t most = lesser(greater(look->in_flight, look->most_in_flight), MANY);

    if (since(v->now_ns, s->block_ns) >= v->window_ns && v->any) {
        if (!v->slow)
            s->usual = greater(s->usual - s->usual / FADES, s->peak_before);
        s->peak_before = s->peak;
        s->peak = 0;
        s->block_ns = v->now_ns;
    }
    if (v->has >= bounded(s->cores, v) && (s->stage == PROMISE_TRIAL || !v->rise))
        s->peak = greater(s->peak, most * PER_CORE / greater(v->has, 1));
}

static void follow(struct promise_state *s, const struct promise_look *look, const struct seen *v)
{
    uint64_t past_ns = lesser(since(v->now_ns, s->now_ns), SECOND), moved;

    if (look->has != s->has) {
        s->has = look->has;
        s->changed_ns = v->now_ns;
    }
    s->now_ns = v->now_ns;
    if (v->any) {
        stretch(v->slow, v->now_ns, &s->slow_ns);
        stretch(!v->slow, v->now_ns, &s->kept_ns);
    }
    if (s->woke_ns && (v->slow || since(v->now_ns, s->woke_ns) >= WAKES_NS)) {
        s->wait_ns = v->slow ? lesser(2 * s->wait_ns, PROMISE_HOLD_MAX_NS) : PROMISE_IDLE_NS;
        s->woke_ns = 0;
    }
    if (!s->kept_ns || s->changed_ns == v->now_ns)
        s->seen = 0;
    else if (s->seen < SEEN)
        s->seen += v->rate * (past_ns / MS) / 1000;
    moved = (v->rate > s->rate ? v->rate - s->rate : s->rate - v->rate) * (past_ns / MS) /
            (RATE_NS / MS);
    s->rate = v->rate > s->rate ? s->rate + moved : s->rate - moved;
    if (s->rate == 0)
        s->rate = v->rate;
    stretch(s->broke && s->rate < LOWER(s->broke_rate), v->now_ns, &s->lower_ns);
    follow_in_flight(s, look, v);
}

/* Where the clock went back, all times begin anew. */
static void turn_back(struct promise_state *s, uint64_t now_ns)
{
    if (now_ns >= s->now_ns)
        return;
    s->slow_ns = s->woke_ns = s->kept_ns = s->lower_ns = s->lowered_ns = 0;
    s->changed_ns = s->busy_ns = s->idle_ns = s->block_ns = s->stage_ns = s->now_ns = now_ns;
    s->until_ns = now_ns + s->hold_ns;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void set_cores(struct promise_state *s, uint32_t cores, uint64_t now_ns)
{
    s->cores = cores;
    s->changed_ns = now_ns;
    s->seen = 0;
}

static void enter(struct promise_state *s, enum promise_stage stage, enum promise_why why,
                  uint64_t now_ns)
{
    s->stage = stage;
    s->stage_ns = now_ns;
    s->stage_why = s->why = why;
}

static void begin_trial(struct promise_state *s, const struct seen *v, enum promise_why why)
{
    s->from = v->has;
    s->base_ns = v->slow ? v->p99_ns : 0;
    s->peak = s->peak_before = 0;
    s->block_ns = v->now_ns;
    set_cores(s, v->most, v->now_ns);
    enter(s, PROMISE_TRIAL, why, v->now_ns);
}

/* All cores at once. The cores in place get a hold-off, which doubles if they were soon too few. */
static void raise(struct promise_state *s, const struct seen *v, enum promise_why why)
{
    uint64_t first_ns = v->lacks_own ? PROMISE_SHARED_NS : PROMISE_HOLD_NS;
    uint64_t most_ns = v->lacks_own ? PROMISE_SHARED_MAX_NS : PROMISE_HOLD_MAX_NS;
    bool lately = s->lowered_ns && since(v->now_ns, s->lowered_ns) < most_ns;

    s->tried = lowered_lately(s, v->now_ns, v->promise_ns);
    if (v->has < v->most) {
        s->hold_ns =
            lately && s->hold_ns ? lesser(greater(2 * s->hold_ns, first_ns), most_ns) : first_ns;
        s->until_ns = v->now_ns + s->hold_ns;
    }
    begin_trial(s, v, why);
}

/* The trial's cores keep the promise, and the window tells the load: those before it did not. */
static void remember(struct promise_state *s, const struct seen *v)
{
    s->good = s->tried && s->rate <= s->lowered_rate / 8 * 9 ? s->from + 1 : 0;
    if (s->from >= v->most)
        return;
    s->broke = s->from;
    s->broke_rate = s->rate;
    s->lower_ns = 0;
}

static uint32_t middle_of(const struct seen *v)
{
    return v->least + (v->most - v->least) / 2;
}

/* Back to the cores before the trial; half of all where it had more, or all, in vain. */
static void give_up(struct promise_state *s, const struct seen *v, enum promise_why why)
{
    uint32_t back = s->from, middle = middle_of(v);

    if (back >= v->most || (why == PROMISE_IMPOSSIBLE && back > middle))
        back = middle;
    back = back < v->own ? back : v->own; /* nobody yields to a promise that is given up */
    s->pause_ns = s->pause_ns ? lesser(2 * s->pause_ns, PROMISE_PAUSE_MAX_NS) : PROMISE_PAUSE_NS;
    s->base_ns = v->p99_ns;
    s->base_rate = s->rate;
    s->bottom = false;
    set_cores(s, back, v->now_ns);
    enter(s, PROMISE_GIVEN_UP, why, v->now_ns);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/*
 * Whether @n cores broke the promise too short a time ago, under a load like this one. The long
 * hold-off is of the step from shared cores to its own, while there are such.
 */
static bool is_held(const struct promise_state *s, const struct seen *v, uint32_t n)
{
    uint64_t usual_ns = lesser(s->hold_ns, PROMISE_HOLD_MAX_NS), until_ns = s->until_ns;

    if (!v->shares)
        until_ns -= s->hold_ns - usual_ns;
    if (!v->slack)
        until_ns += MIDDLE * usual_ns;
    if (n > s->broke || v->now_ns >= until_ns)
        return false;
    return !s->lower_ns || since(v->now_ns, s->lower_ns) < usual_ns / 4;
}

/* Gives a core back where p99 and the requests seen with these cores allow it. */
static void lower(struct promise_state *s, const struct seen *v)
{
    uint32_t n = v->has < s->cores ? v->has : s->cores - 1;

    s->why = v->any && !v->enough ? PROMISE_FEW : PROMISE_KEPT;
    if (s->good && s->good < n)
        n = s->good;
    if (!v->pure || !s->kept_ns || v->has > s->cores || (s->seen < SEEN && n != s->good) ||
        s->cores <= greater(v->least, 1) || n == 0)
        return;
    if (!v->slack && since(v->now_ns, greater(s->kept_ns, s->changed_ns)) < MIDDLE_NS)
        return;
    if (is_held(s, v, n)) {
        s->why = v->slack ? PROMISE_HOLD : PROMISE_KEPT;
        return;
    }
    s->why = PROMISE_SLACK;
    s->good = 0;
    if (n <= s->broke && !s->lower_ns) /* is tried again */
        s->broke = 0;
    s->lowered_ns = greater(v->now_ns, 1);
    s->lowered_rate = s->rate;
    s->lowered_p99_ns = v->p99_ns;
    /* As many stay in flight where p99 depends little on cores; the last steps are the largest. */
    if (!v->slack || n < FEW_CORES)
        s->usual = lesser(s->usual, (uint64_t)MANY * PER_CORE) * lesser(s->cores, MANY_CORES) /
                   lesser(n, MANY_CORES);
    set_cores(s, n, v->now_ns);
}

static void steady(struct promise_state *s, const struct seen *v)
{
    if (v->slow && v->enough)
        raise(s, v, PROMISE_NEAR);
    else if (v->rise && (v->has < v->most || s->cores < v->most))
        raise(s, v, PROMISE_RISE);
    else
        lower(s, v);
    if (s->kept_ns && since(v->now_ns, s->kept_ns) >= PROMISE_PAUSE_MAX_NS)
        s->pause_ns = 0;
}

/* Shorter, the longer the pause before was. */
static uint64_t patience(const struct promise_state *s, const struct seen *v)
{
    uint64_t all_ns = greater(PATIENCE_NS, 4 * v->promise_ns);

    return greater(all_ns / greater(s->pause_ns / PROMISE_PAUSE_NS, 1), PATIENCE_MIN_NS);
}

/* Whether so many cores instead of @from could lower p99 by the eighth that shows a gain. */
static bool could_help(uint32_t has, uint32_t from)
{
    return (uint64_t)has * 7 > (uint64_t)from * 8;
}

static void trial(struct promise_state *s, const struct seen *v)
{
    uint64_t age_ns = since(v->now_ns, s->stage_ns);

    s->cores = v->most; /* which may have changed */
    if (v->any && !v->slow && (v->pure || age_ns >= patience(s, v))) {
        remember(s, v);
        s->usual = greater(s->usual, greater(s->peak, s->peak_before));
        enter(s, PROMISE_STEADY, PROMISE_KEPT, v->now_ns);
        return;
    }
    if (!v->pure && s->base_ns) /* requests from before the trial */
        s->base_ns = greater(s->base_ns, v->p99_ns);
    /* As slow as before: no gain. Slower than before says that something else rose as well. */
    if (v->slow && v->enough && v->pure && could_help(v->has, s->from) && age_ns >= TRIAL_NS &&
        v->p99_ns > s->base_ns / 8 * 7 && v->p99_ns <= s->base_ns / 4 * 5)
        give_up(s, v, PROMISE_NO_GAIN);
    else if (age_ns >= patience(s, v))
        give_up(s, v, PROMISE_IMPOSSIBLE);
}

/* Whether p99 is twice that with all cores, or rose while fewer requests end than with these. */
static bool is_worse(const struct promise_state *s, const struct seen *v)
{
    return v->p99_ns / 2 > s->base_ns ||
           (v->p99_ns > s->base_ns / 8 * 9 && s->rate < s->base_rate / 8 * 7);
}

/*
 * Until the pause is over, it has as few cores as do no harm: a server that no longer follows its
 * load would be worse than one that is slower than promised.
 */
static void given_up(struct promise_state *s, const struct seen *v)
{
    uint32_t middle = middle_of(v), most = s->from > middle && s->from < v->most ? s->from : middle;

    if (s->stage_why == PROMISE_IMPOSSIBLE)
        most = middle;
    if (v->enough && v->pure && !v->slow) {
        set_cores(s, bounded(v->has, v), v->now_ns);
        enter(s, PROMISE_STEADY, PROMISE_KEPT, v->now_ns);
        return;
    }
    if (since(v->now_ns, s->stage_ns) >= s->pause_ns) {
        begin_trial(s, v, PROMISE_NEAR);
        return;
    }
    if (!v->enough || v->has != s->cores || since(v->now_ns, s->changed_ns) < v->window_ns)
        return;
    if (is_worse(s, v)) {
        s->bottom = true;
        if (s->cores < most)
            set_cores(s, s->cores + 1, v->now_ns);
    } else if (v->pure && !s->bottom && s->cores > v->least) {
        set_cores(s, s->cores - 1, v->now_ns);
    }
}

/* ---- a look ---------------------------------------------------------------------------------- */

/*
 * Whether it has no requests. It waits longer before it is idle again where that was short, or
 * where the promise broke when requests came.
 */
static bool is_idle(struct promise_state *s, const struct promise_look *look)
{
    uint64_t now_ns = look->now_ns;

    if (s->wait_ns == 0)
        s->wait_ns = PROMISE_IDLE_NS;
    if (look->in_flight || look->most_in_flight) {
        s->busy_ns = now_ns;
        if (s->idle) {
            bool was_short = since(now_ns, s->idle_ns) < 4 * s->wait_ns;

            if (was_short)
                s->wait_ns = lesser(2 * s->wait_ns, PROMISE_HOLD_MAX_NS);
            s->woke_ns = was_short ? 0 : greater(now_ns, 1);
            s->idle = false;
            if (s->stage == PROMISE_TRIAL)
                s->stage_ns = now_ns;
            set_cores(s, s->cores, now_ns);
        }
    } else if (!s->idle && look->ended == 0 && since(now_ns, s->busy_ns) >= s->wait_ns) {
        s->idle = true;
        s->idle_ns = now_ns;
    }
    return s->idle;
}

uint32_t promise_need(struct promise_state *s, const struct promise_look *look)
{
    struct seen v;

    if (look->promise_ns == 0)
        memset(s, 0, sizeof(*s));
    turn_back(s, look->now_ns);
    v = see(s, look);
    if (look->promise_ns == 0 ||
        (!s->began && !look->in_flight && !look->most_in_flight && !look->ended)) {
        s->why = PROMISE_NONE;
        return bounded(0, &v);
    }
    if (!s->began) {
        s->began = true;
        s->busy_ns = look->now_ns;
        s->usual = PER_CORE; /* not known yet */
        set_cores(s, bounded(look->has, &v), look->now_ns);
    }
    if (is_idle(s, look)) {
        s->now_ns = look->now_ns;
        s->why = PROMISE_IDLE;
        return bounded(0, &v);
    }
    s->why = s->stage_why;
    follow(s, look, &v);
    switch (s->stage) {
    case PROMISE_STEADY:
        steady(s, &v);
        break;
    case PROMISE_TRIAL:
        trial(s, &v);
        break;
    case PROMISE_GIVEN_UP:
        given_up(s, &v);
        break;
    }
    return bounded(s->cores, &v);
}

bool promise_is_short(const struct promise_state *s, const struct promise_look *look)
{
    struct seen v;

    if (s->stage != PROMISE_TRIAL || s->idle || look->has < look->most || look->has != s->has)
        return false;
    v = see(s, look);
    return v.slow && v.enough && v.pure;
}

void promise_press(struct promise_state *s, uint64_t now_ns)
{
    s->stage_ns = s->changed_ns = now_ns;
    s->seen = 0;
}

const char *promise_why_text(enum promise_why why)
{
    static const char *const text[] = {
        [PROMISE_NONE] = "no request yet",
        [PROMISE_KEPT] = "the promise is kept",
        [PROMISE_FEW] = "too few requests to judge",
        [PROMISE_IDLE] = "no requests",
        [PROMISE_NEAR] = "p99 near the promise",
        [PROMISE_RISE] = "more requests in flight than usual",
        [PROMISE_SLACK] = "p99 clearly below the promise",
        [PROMISE_HOLD] = "p99 clearly below the promise, which fewer cores broke",
        [PROMISE_NO_GAIN] = "more cores do not help",
        [PROMISE_IMPOSSIBLE] = "all cores are not enough",
    };
    static_assert(sizeof(text) / sizeof(text[0]) == PROMISE_WHY_MAX, "a text for each reason");

    return (unsigned)why < PROMISE_WHY_MAX ? text[why] : "?";
}
