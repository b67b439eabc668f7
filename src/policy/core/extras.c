/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/extras.h"

#include "base/minmax.h"

#include <assert.h>
#include <stddef.h>

#define CORE       POLICY_CORE_MCPU
#define FULL       1000
#define USES       600  /* permille of what its threads should keep busy */
#define WAITS_GIVE 25   /* permille of a job's time that it may wait: to give, … */
#define WAITS_KEEP 50   /* … and to keep */
#define WAITS_OF   500  /* mcpu: a job that does less hardly waits */
#define GIVE       400  /* mcpu idle beyond what extra threads take for one more, … */
#define KEEP       100  /* … and beyond those of the others to keep it */
#define NOTHING    (-1) /* not even the last thread is kept for so little */
#define GAIN_MIN   50   /* permille of a core: curves below promise nothing */
#define GAIN_PART  8    /* progress must rise by this part of what linear speed-up would give */
#define BUSY_GAIN  300  /* permille of what they should keep busy, where progress is not known */
#define CONFIDENT  500  /* permille */
#define SWINGS     8    /* in a row are chance */
#define SWING_PAUSE                                                                                \
    UINT64_C(5000000000) /* after the hold-off: a loan that comes within this comes soon */

/* ---- what was measured ----------------------------------------------------------------------- */

static int64_t own_mcpu(const struct extras_job *j)
{
    return (int64_t)j->share * CORE;
}

/* Permille of the time in which it has work that it waits for a core. */
static int64_t waits(const struct extras_job *j)
{
    int64_t work = j->busy_mcpu + j->wait_mcpu;

    return j->wait_mcpu * FULL / (work > WAITS_OF ? work : WAITS_OF);
}

/*
 * Whether the job misses a core that is its due: one without extra threads whenever it waits, one
 * with them when it does not even get its share.
 */
static bool is_wronged(const struct extras_job *j, int64_t permille)
{
    if (j->loan.extra && j->busy_mcpu * FULL >= own_mcpu(j) * (FULL - permille))
        return false;
    return waits(j) > permille;
}

static bool somebody_waits(const struct extras_job *jobs, uint32_t count, int64_t permille)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_wronged(&jobs[i], permille))
            return true;
    return false;
}

static bool is_known(const struct policy_curve *c)
{
    return c && c->speedup_permille && c->count && c->confidence_permille >= CONFIDENT;
}

/* Speed with @k threads in thousandths: about the mcpu that they keep busy. */
static uint64_t speed(const struct policy_curve *c, uint32_t k)
{
    if (!is_known(c))
        return (uint64_t)10 * FULL * k / (k + 9); /* Amdahl, nine tenths parallel */
    return c->speedup_permille[(k < c->count ? k : c->count) - 1];
}

/* Whether it keeps so much busy that it is in no serial phase. */
static bool uses(const struct extras_job *j, uint32_t threads)
{
    return threads && j->busy_mcpu * FULL >= (int64_t)speed(j->curve, threads) * USES;
}

static bool others_have_loans(const struct extras_job *jobs, uint32_t count, uint32_t user)
{
    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].loan.extra && jobs[i].user != user)
            return true;
    return false;
}

/*
 * Threads may wait behind each other while a core is idle, until the kernel moves one: for that a
 * loan is not to blame, and it would end it. Idle moments are an average, though, so beside another
 * user's loan all waiting counts.
 */
static void forgive(const struct extras_machine *machine, struct extras_job *jobs, uint32_t count)
{
    int64_t idle = machine->idle_mcpu > 0 ? machine->idle_mcpu : 0;

    for (uint32_t i = 0; i < count; i++) {
        int64_t beside = jobs[i].wait_mcpu < idle ? jobs[i].wait_mcpu : idle;

        if (others_have_loans(jobs, count, jobs[i].user))
            continue;
        jobs[i].wait_mcpu -= beside;
        idle -= beside;
    }
}

/* Mcpu that it kept busy without extra threads. */
static int64_t base_mcpu(const struct extras_job *j)
{
    return j->loan.base_mcpu ? j->loan.base_mcpu : own_mcpu(j);
}

/* Mcpu that it keeps busy beyond that. */
static int64_t beyond(const struct extras_job *j)
{
    return j->loan.extra && j->busy_mcpu > base_mcpu(j) ? j->busy_mcpu - base_mcpu(j) : 0;
}

/* Cores that nobody would use without loans. */
static int64_t lendable(const struct extras_machine *machine, const struct extras_job *jobs,
                        uint32_t count)
{
    int64_t mcpu = machine->idle_mcpu;

    for (uint32_t i = 0; i < count; i++)
        mcpu += beyond(&jobs[i]);
    return mcpu;
}

/* ---- what one more thread gains -------------------------------------------------------------- */

/* Permille of a core by its last thread of @k, times its weight; 0: nothing to speak of. */
static uint64_t gain(const struct extras_job *j, uint32_t k)
{
    uint64_t with = speed(j->curve, k), without = speed(j->curve, k - 1);

    return with < without + GAIN_MIN ? 0 : (with - without) * j->weight;
}

/* The mcpu that thread @k of the job will keep busy: a core where that is not known. */
static int64_t takes(const struct extras_job *j, uint32_t k)
{
    uint64_t with = speed(j->curve, k), without = speed(j->curve, k - 1);

    /* A curve is no account of cores where threads wait for memory: busy, and no faster. */
    if (!is_known(j->curve) || base_mcpu(j) * 4 > (int64_t)speed(j->curve, j->share) * 5)
        return CORE;
    return with < without + GAIN_MIN ? GAIN_MIN : (int64_t)(with - without);
}

/* The same for all extra threads of a job. */
static int64_t lent_to(const struct extras_job *j)
{
    int64_t mcpu = 0;

    for (uint32_t k = 1; k <= j->loan.extra; k++)
        mcpu += takes(j, j->share + k);
    return mcpu;
}

static int64_t lent(const struct extras_job *jobs, uint32_t count)
{
    int64_t mcpu = 0;

    for (uint32_t i = 0; i < count; i++)
        mcpu += lent_to(&jobs[i]);
    return mcpu;
}

/* ---- taking back ----------------------------------------------------------------------------- */

/*
 * Whether loans come and go without end. A load whose period is near a multiple of the looks' beats
 * with them: idle for some seconds as they see it, then not. Each such loan lasts longer than a
 * trial, and the next one comes soon after the hold-off.
 */
static bool swings(uint64_t now_ns, uint64_t since_ns, uint64_t until_ns, uint32_t *count)
{
    bool again = now_ns - since_ns < EXTRAS_SWING_NS && since_ns >= until_ns &&
                 since_ns - until_ns < SWING_PAUSE;

    *count = again ? *count + 1 : 0;
    return *count > SWINGS;
}

/* A short loan doubles the hold-off, as one of many that swing does; a long one begins it anew. */
static void hold_off(uint64_t now_ns, bool was_short, uint64_t since_ns, uint64_t *hold_ns,
                     uint64_t *until_ns, uint32_t *swung)
{
    uint64_t doubled = 2 * *hold_ns < EXTRAS_HOLD_MAX_NS ? 2 * *hold_ns : EXTRAS_HOLD_MAX_NS;

    was_short |= swings(now_ns, since_ns, *until_ns, swung);
    *hold_ns = was_short && *hold_ns ? doubled : EXTRAS_HOLD_NS;
    *until_ns = now_ns + *hold_ns;
}

static bool is_short(const struct extras_job *j, uint64_t now_ns)
{
    return now_ns - j->loan.since_ns < EXTRAS_TRIAL_NS;
}

/* Takes the job's loan for a reason of its own. */
static void end_own(struct extras_job *j, uint64_t now_ns, enum extras_end why)
{
    bool failed = why == EXTRAS_NO_GAIN;

    j->end = why;
    hold_off(now_ns, failed || is_short(j, now_ns), j->loan.since_ns, &j->loan.hold_ns,
             &j->loan.until_ns, &j->loan.swings);
    j->loan.extra = 0;
}

/* The job whose last extra thread gains least; NULL: nobody has one. */
static struct extras_job *least_of(struct extras_job *jobs, uint32_t count)
{
    struct extras_job *least = NULL;

    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].loan.extra && (!least || gain(&jobs[i], jobs[i].share + jobs[i].loan.extra) <=
                                                 gain(least, least->share + least->loan.extra)))
            least = &jobs[i];
    return least;
}

/*
 * Takes threads back for which too little of @mcpu is left, each from the job where the last one
 * gains least. Returns whether there were any.
 */
static bool take(struct extras *x, uint64_t now_ns, struct extras_job *jobs, uint32_t count,
                 int64_t mcpu, enum extras_end why)
{
    int64_t all = lent(jobs, count);
    struct extras_job *least;
    bool was_short = false, any = false;
    uint64_t since_ns = 0;

    while ((least = least_of(jobs, count)) != NULL) {
        int64_t last = takes(least, least->share + least->loan.extra);

        if (all - last + KEEP <= mcpu)
            break;
        all -= last;
        was_short |= is_short(least, now_ns);
        since_ns = larger_u64(since_ns, least->loan.since_ns);
        least->loan.extra--;
        least->end = why;
        any = true;
    }
    if (any)
        hold_off(now_ns, was_short, since_ns, &x->hold_ns, &x->until_ns, &x->swings);
    return any;
}

/* A loan ends with the share to which it was given, and where the job may have no more. */
static void end_by_bounds(struct extras_job *j, uint64_t now_ns)
{
    struct extras_loan *l = &j->loan;
    uint32_t room = j->share && j->most > j->share ? j->most - j->share : 0;

    if (l->extra && (l->share != j->share || l->extra > room))
        j->end = EXTRAS_BOUND;
    if (l->share != j->share) {
        l->share = j->share;
        l->before = 0;
        l->base_mcpu = 0;
        l->extra = 0;
        if (l->until_ns < now_ns + EXTRAS_LOOK_NS) /* first learns its rate */
            l->until_ns = now_ns + EXTRAS_LOOK_NS;
    }
    if (l->extra > room)
        l->extra = room;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The trial's verdict: the progress rose, or, where none is known, the cores were used. */
static bool pays(const struct extras_job *j)
{
    const struct extras_loan *l = &j->loan;
    uint64_t busy = l->trial_busy / l->trial_looks, rate = l->trial_rate / l->trial_looks,
             extra = l->trial_extra;

    if (l->before == 0 || rate == 0)
        return (int64_t)busy >= base_mcpu(j) + lent_to(j) * BUSY_GAIN / FULL;
    return (rate - (rate < l->before ? rate : l->before)) * GAIN_PART * j->share * l->trial_looks >=
           l->before * extra;
}

/* Follows the job's progress. Returns false if its loan did not pay. */
static bool follow(struct extras_job *j, uint64_t now_ns)
{
    struct extras_loan *l = &j->loan;

    if (l->extra == 0) {
        if (!uses(j, j->share))
            return true;
        if (j->rate)
            l->before = l->before ? (l->before + j->rate) / 2 : j->rate;
        l->base_mcpu = l->base_mcpu ? (l->base_mcpu + j->busy_mcpu) / 2 : j->busy_mcpu;
        return true;
    }
    if (l->paid || now_ns <= l->trial_ns)
        return true;
    l->trial_rate += j->rate;
    l->trial_busy += (uint64_t)j->busy_mcpu;
    l->trial_extra += l->extra;
    l->trial_looks++;
    if (now_ns - l->trial_ns < EXTRAS_TRIAL_NS)
        return true;
    l->paid = pays(j);
    return l->paid;
}

/* ---- giving ---------------------------------------------------------------------------------- */

static bool may_get(const struct extras_job *j, const struct extras_user *u)
{
    return j->ready && j->share + j->loan.extra < j->most && u->has < u->most &&
           gain(j, j->share + j->loan.extra + 1) > 0;
}

/* The user with fewer extras first, then the smaller class, the larger gain, the
 * older job. */
static bool precedes(const struct extras_job *a, const struct extras_job *b,
                     const struct extras_user *users)
{
    uint64_t of_a = gain(a, a->share + a->loan.extra + 1),
             of_b = gain(b, b->share + b->loan.extra + 1);

    if (users[a->user].extra != users[b->user].extra)
        return users[a->user].extra < users[b->user].extra;
    if (a->class != b->class)
        return a->class < b->class;
    return of_a != of_b ? of_a > of_b : a->id < b->id;
}

/* One more thread: a loan, or the trial of a larger one. */
static void begin(struct extras_loan *l, uint64_t now_ns)
{
    l->since_ns = now_ns;
    if ((l->extra == 0 || l->paid) && l->trial_ns != now_ns) {
        l->trial_ns = now_ns;
        l->trial_rate = l->trial_busy = l->trial_extra = l->trial_looks = 0;
        l->paid = false;
    }
}

/* Gives threads that will keep @mcpu busy to jobs that used all they had. */
static void give(const struct extras_machine *machine, struct extras_job *jobs, uint32_t count,
                 struct extras_user *users, int64_t mcpu)
{
    for (uint32_t i = 0; i < count; i++)
        jobs[i].ready = uses(&jobs[i], jobs[i].share + jobs[i].loan.extra) &&
                        waits(&jobs[i]) <= WAITS_KEEP && machine->now_ns >= jobs[i].loan.until_ns;
    while (mcpu >= GIVE) {
        struct extras_job *best = NULL;

        for (uint32_t i = 0; i < count; i++) {
            struct extras_job *j = &jobs[i];

            if (may_get(j, &users[j->user]) && (!best || precedes(j, best, users)))
                best = j;
        }
        if (!best)
            return;
        mcpu -= takes(best, best->share + best->loan.extra + 1);
        begin(&best->loan, machine->now_ns);
        best->loan.extra++;
        users[best->user].extra++;
        users[best->user].has++;
    }
}

/* ---- a look ---------------------------------------------------------------------------------- */

/* Ends loans for reasons of their jobs. */
static void end_each(const struct extras_machine *machine, struct extras_job *jobs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct extras_job *j = &jobs[i];

        j->end = EXTRAS_KEPT;
        end_by_bounds(j, machine->now_ns);
        if (j->loan.extra && !uses(j, j->share))
            end_own(j, machine->now_ns, EXTRAS_UNUSED);
        if (!follow(j, machine->now_ns))
            end_own(j, machine->now_ns, EXTRAS_NO_GAIN);
    }
}

/* Counts what users have; ends loans above what they may have. */
static void count_users(struct extras_job *jobs, uint32_t count, struct extras_user *users,
                        uint32_t user_count)
{
    for (uint32_t u = 0; u < user_count; u++)
        users[u].extra = users[u].has = 0;
    for (uint32_t i = 0; i < count; i++)
        users[jobs[i].user].has += jobs[i].share;
    for (uint32_t i = 0; i < count; i++) {
        struct extras_user *u = &users[jobs[i].user];
        uint32_t room = u->has < u->most ? u->most - u->has : 0;

        if (jobs[i].loan.extra > room) {
            jobs[i].loan.extra = room;
            jobs[i].end = EXTRAS_BOUND;
        }
        u->extra += jobs[i].loan.extra;
        u->has += jobs[i].loan.extra;
    }
}

void extras_look(struct extras *x, const struct extras_machine *machine, struct extras_job *jobs,
                 uint32_t count, struct extras_user *users, uint32_t user_count)
{
    int64_t now = lendable(machine, jobs, count), both;
    bool waits, quiet, idle_before = x->idle_before;

    forgive(machine, jobs, count);
    waits = somebody_waits(jobs, count, WAITS_KEEP);
    quiet = !somebody_waits(jobs, count, WAITS_GIVE);
    both = now < x->lendable_mcpu ? now : x->lendable_mcpu;
    x->lendable_mcpu = now;
    x->idle_before = quiet;
    end_each(machine, jobs, count);
    count_users(jobs, count, users, user_count);
    if (take(x, machine->now_ns, jobs, count, waits ? NOTHING : now,
             waits ? EXTRAS_WAITS : EXTRAS_NO_IDLE)) {
        count_users(jobs, count, users, user_count);
        return;
    }
    if (quiet && idle_before && machine->now_ns >= x->until_ns)
        give(machine, jobs, count, users, both - lent(jobs, count));
}

const char *extras_end_text(enum extras_end end)
{
    static const char *const text[] = {
        [EXTRAS_KEPT] = "none was taken back",
        [EXTRAS_WAITS] = "a job waited for a core",
        [EXTRAS_NO_IDLE] = "no core is idle any more",
        [EXTRAS_UNUSED] = "it no longer uses its cores",
        [EXTRAS_NO_GAIN] = "its progress did not rise",
        [EXTRAS_BOUND] = "its share changed, or it may have no more",
    };
    static_assert(sizeof(text) / sizeof(text[0]) == EXTRAS_END_MAX, "a text for each end");

    return (unsigned)end < EXTRAS_END_MAX ? text[end] : "?";
}
