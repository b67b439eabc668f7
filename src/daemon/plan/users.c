/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/users.h"

#include "daemon/daemon.h"
#include "daemon/job/limits.h"
#include "host/cgroup/cgroup.h"

#include <errno.h>

#define ERROR_WORD "cores-pinned"

/* Resolution of the weights of a user's many jobs. */
#define SCALE_MAX 100

static struct policy_user describe(const struct daemon *d, uid_t uid)
{
    const struct config *c = &d->config;
    bool limited = c->user_cores && !limits_exempt(d, uid);

    return (struct policy_user){
        .id = uid,
        .weight = limits_user_weight(d, uid),
        .most_mcpu = limited ? (int64_t)c->user_cores * POLICY_CORE_MCPU : POLICY_UNLIMITED,
    };
}

uint32_t users_most(const struct daemon *d, uid_t uid)
{
    return d->config.user_cores && !limits_exempt(d, uid) ? d->config.user_cores : UINT32_MAX;
}

uint32_t users_fill(const struct daemon *d, struct job *const *job, uint32_t count,
                    struct policy_job *jobs, struct policy_user *users)
{
    uint32_t n_users = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t u = 0;

        while (u < n_users && users[u].id != job[i]->uid)
            u++;
        if (u == n_users)
            users[n_users++] = describe(d, job[i]->uid);
        jobs[i].user = u;
        jobs[i].granted = job[i]->asked.granted;
    }
    return n_users;
}

void users_take_up(struct job *j, const struct policy_decision *decision)
{
    j->wanted.user.may_mcpu = decision->user_mcpu;
    j->wanted.user.is_short = decision->reason.user_mcpu > 0;
}

bool users_over(const struct job *j)
{
    return j->wanted.user.may_mcpu > 0 && j->wanted.user.has_mcpu > j->wanted.user.may_mcpu;
}

/* The kernel's weights are integers: scales all of them up where some would be below one. */
static uint32_t scale(const struct daemon *d)
{
    uint32_t most = 1, scale;
    bool over = false;

    for (const struct job *j = d->jobs->first; j; j = j->next) {
        over |= users_over(j);
        most = j->wanted.share > most ? j->wanted.share : most;
    }
    scale = CGROUP_WEIGHT_MAX / (CGROUP_WEIGHT_STD * most);
    if (!over || scale < 1)
        return 1;
    return scale < SCALE_MAX ? scale : SCALE_MAX;
}

void users_add_up(struct daemon *d)
{
    uint32_t all;

    for (struct job *j = d->jobs->first; j; j = j->next) {
        j->wanted.user.has_mcpu = 0;
        for (const struct job *k = d->jobs->first; j->wanted.user.may_mcpu && k; k = k->next)
            if (k->uid == j->uid && k->admission.wanted)
                j->wanted.user.has_mcpu += (int64_t)k->wanted.share * POLICY_CORE_MCPU;
    }
    all = scale(d);
    for (struct job *j = d->jobs->first; j; j = j->next)
        j->wanted.user.scale = all;
}

uint32_t users_weight(const struct job *j, uint32_t cores)
{
    uint64_t weight = (uint64_t)cores * CGROUP_WEIGHT_STD * j->wanted.user.scale;

    if (users_over(j))
        weight = weight * (uint64_t)j->wanted.user.may_mcpu / (uint64_t)j->wanted.user.has_mcpu;
    if (weight < CGROUP_WEIGHT_MIN)
        return CGROUP_WEIGHT_MIN;
    return weight < CGROUP_WEIGHT_MAX ? (uint32_t)weight : CGROUP_WEIGHT_MAX;
}

/* ---- cores of `tide pin` ---- */

/* Whose pins are looked at first; the later ones have what is left. */
enum turn { TURN_GRANTED, TURN_WHOLE, TURN_CUT, TURN_STANDS_STILL, TURNS };

static enum turn turn_of(const struct job *j)
{
    if (!j->admission.wanted || j->observed.frozen)
        return TURN_STANDS_STILL;
    if (j->asked.granted)
        return TURN_GRANTED;
    return j->wanted.user.is_short ? TURN_CUT : TURN_WHOLE;
}

/* Returns the cores that jobs of other users keep. */
static struct cpuset others_cores(const struct job *j)
{
    struct cpuset others = {0};

    for (const struct job *k = j->daemon->jobs->first; k; k = k->next)
        for (unsigned w = 0; k->uid != j->uid && w < CPUSET_WORDS; w++)
            others.word[w] |= k->wanted.kept.word[w];
    return others;
}

static void leave_others(const struct job *j, struct cpuset *cores)
{
    struct cpuset others = others_cores(j);

    for (unsigned w = 0; w < CPUSET_WORDS; w++)
        cores->word[w] &= ~others.word[w];
}

void users_keep_cores(struct daemon *d)
{
    for (struct job *j = d->jobs->first; j; j = j->next)
        cpuset_zero(&j->wanted.kept);
    for (enum turn turn = TURN_GRANTED; turn < TURNS; turn++)
        for (struct job *j = d->jobs->first; j; j = j->next) {
            if (!j->asked.kept || turn_of(j) != turn)
                continue;
            j->wanted.kept = j->asked.kept_cores;
            if (turn != TURN_GRANTED)
                leave_others(j, &j->wanted.kept);
            if (turn == TURN_CUT)
                cpuset_cut(&j->wanted.kept, j->wanted.share ? j->wanted.share : 1);
        }
}

bool users_pins_cores(const struct job *j)
{
    return j->asked.kept && cpuset_count(&j->asked.kept_cores) > 0;
}

bool users_keeps_cores(const struct job *j)
{
    return j->asked.kept && (!users_pins_cores(j) || cpuset_count(&j->wanted.kept) > 0);
}

int users_check_cores(const struct job *j, const struct cpuset *cores, struct error *err)
{
    struct cpuset others = others_cores(j);
    char text[CPUSET_TEXT_MAX];

    cpuset_and(&others, &others, cores);
    if (cpuset_count(&others) == 0)
        return 0;
    cpuset_format(&others, text, sizeof(text));
    return error_word(
        err, error_set(err, -EPERM, "a job of another user is pinned to core %.200s", text),
        "cores-pinned");
}

struct threads users_pinned_threads(const struct job *j)
{
    struct threads threads = j->asked.pinned;
    uint32_t most = PROTO_THREADS_MAX, cores = cpuset_count(&j->wanted.kept);

    if (j->wanted.user.is_short && !j->asked.granted && j->wanted.share > 0)
        most = j->wanted.share;
    if (cores > 0 && cores < cpuset_count(&j->asked.kept_cores) && cores < most)
        most = cores;
    if (threads.intra > most)
        threads.intra = most;
    if (threads.inter > most)
        threads.inter = most;
    return threads;
}
