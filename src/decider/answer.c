/* SPDX-License-Identifier: Apache-2.0 */
#include "decider/answer.h"

#include "base/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "decider-fault"

#define FIRST_ROOM 4096

static const char *const state_names[] = {"waiting", "held", "running", "paused"};
static const char *const malleability_names[] = {"rigid", "moldable", "malleable"};

const struct policy *decider_fallback(void)
{
    return policy_find("equal");
}

static void cleanup_json(json_t **json)
{
    json_decref(*json);
}

/* ---- question -------------------------------------------------------------------------------- */

/* Whole cores: the decider hands out no parts of them. */
static int64_t cores_of(int64_t mcpu)
{
    return (mcpu + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU;
}

/* Null where @value is the one that says "unknown" or "never". */
static json_t *number(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *curve(const struct policy_curve *c)
{
    json_t *array;

    if (!c->speedup_permille)
        return json_null();
    array = json_array();
    for (uint32_t k = 0; k < c->count; k++)
        json_array_append_new(array, json_integer(c->speedup_permille[k]));
    return array;
}

static bool has_choice(const struct policy_job *job)
{
    return job->state != POLICY_HELD && policy_job_fixed(job, POLICY_MCPU) < 0;
}

static json_t *job_object(const struct policy_snapshot *s, const struct policy_plan *equal,
                          uint32_t i)
{
    const struct policy_job *j = &s->jobs[i];
    int64_t most = policy_job_most(j, POLICY_MCPU),
            capacity = policy_domain_capacity(s, 0, POLICY_MCPU);
    int64_t user_mcpu = equal->decisions[i].user_mcpu;
    json_t *user_cores =
        user_mcpu ? json_integer((json_int_t)(user_mcpu / POLICY_CORE_MCPU)) : json_null();

    most = most < capacity ? most : capacity;
    return json_pack(
        "{sI ss ss sb sI sI sI sI sI so sI si sI so so so}", "id", (json_int_t)j->id, "state",
        state_names[j->state], "kind", malleability_names[j->malleability], "choice", has_choice(j),
        "min", (json_int_t)cores_of(policy_job_least(j, POLICY_MCPU)), "max",
        (json_int_t)(most / POLICY_CORE_MCPU), "cores",
        (json_int_t)cores_of(policy_amount_total(j->current, j->current_count, POLICY_MCPU)),
        "equal", (json_int_t)cores_of(policy_decision_total(equal, i, POLICY_MCPU)), "user",
        (json_int_t)(s->user_count ? s->users[j->user].id : 0), "user_cores", user_cores, "weight",
        (json_int_t)j->weight, "priority", (int)j->priority, "class", (json_int_t)j->class,
        "arrival_ns", number(j->arrival_ns), "remaining_ns", number(j->remaining_ns),
        "speedup_permille", curve(&j->curve[POLICY_MCPU]));
}

char *decider_question(const struct policy_snapshot *s, const struct policy_plan *equal)
{
    _cleanup_(cleanup_json) json_t *root = NULL;
    _cleanup_free_ char *text = NULL;
    json_t *jobs = json_array();
    char *line;

    for (uint32_t i = 0; i < s->job_count; i++)
        json_array_append_new(jobs, job_object(s, equal, i));
    if (!jobs || json_array_size(jobs) != s->job_count) {
        json_decref(jobs);
        return NULL;
    }
    root = json_pack("{si sI sI sI so}", "version", DECIDER_VERSION, "snapshot",
                     (json_int_t)s->generation, "now_ns", (json_int_t)s->now_ns, "cores",
                     (json_int_t)(policy_domain_capacity(s, 0, POLICY_MCPU) / POLICY_CORE_MCPU),
                     "jobs", jobs);
    text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (!text || asprintf(&line, "%s\n", text) < 0)
        return NULL;
    return line;
}

/* ---- answer ---------------------------------------------------------------------------------- */

int decider_make_room(char **line, size_t *room, size_t used)
{
    size_t more = *room ? 2 * *room : FIRST_ROOM;
    char *longer;

    if (used < *room)
        return 0;
    if (*room >= DECIDER_LINE_MAX)
        return -EMSGSIZE;
    longer = realloc(*line, more);
    if (!longer)
        return -ENOMEM;
    *line = longer;
    *room = more;
    return 0;
}

/* One lookup for each job of an answer: thousands of jobs would make a walk slow. */
struct place {
    uint64_t id;
    uint32_t index;
};

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct place *)a)->id, y = ((const struct place *)b)->id;

    return x < y ? -1 : x > y;
}

static int read_entry(const json_t *entry, const struct place *places, uint32_t count,
                      int64_t *cores, struct error *err)
{
    const json_t *id = json_object_get(entry, "job"), *n = json_object_get(entry, "cores");
    struct place key;
    const struct place *found;

    if (!json_is_integer(id) || !json_is_integer(n) || json_object_size(entry) != 2)
        return error_set(err, -EBADMSG, "an entry is not {\"job\": ID, \"cores\": NUMBER}");
    key = (struct place){.id = (uint64_t)json_integer_value(id)};
    found = count ? bsearch(&key, places, count, sizeof(key), by_id) : NULL;
    if (json_integer_value(id) < 0 || !found)
        return error_set(err, -EBADMSG, "there is no job %lld", (long long)json_integer_value(id));
    if (json_integer_value(n) < 1 || json_integer_value(n) > POLICY_CORES_MAX)
        return error_set(err, -EBADMSG, "job %lld: %lld is no number of cores",
                         (long long)json_integer_value(id), (long long)json_integer_value(n));
    if (cores[found->index])
        return error_set(err, -EBADMSG, "job %lld stands in the plan twice",
                         (long long)json_integer_value(id));
    cores[found->index] = json_integer_value(n);
    return 0;
}

static int read_plan(const json_t *plan, const struct policy_snapshot *s, int64_t *cores,
                     struct error *err)
{
    _cleanup_free_ struct place *places = calloc(s->job_count + 1, sizeof(*places));
    const json_t *entry;
    size_t i;
    int r = 0;

    if (!places)
        return error_set(err, -EBADMSG, "out of memory");
    for (uint32_t j = 0; j < s->job_count; j++)
        places[j] = (struct place){s->jobs[j].id, j};
    qsort(places, s->job_count, sizeof(*places), by_id);
    json_array_foreach (plan, i, entry) {
        r = read_entry(entry, places, s->job_count, cores, err);
        if (r < 0)
            break;
    }
    return r;
}

int decider_read(const char *line, size_t size, const struct policy_snapshot *s, int64_t *ret_cores,
                 struct error *err)
{
    json_error_t why;
    _cleanup_(cleanup_json) json_t *root = json_loadb(line, size, JSON_REJECT_DUPLICATES, &why);
    _cleanup_free_ int64_t *cores = calloc(s->job_count + 1, sizeof(*cores));
    const json_t *generation = json_object_get(root, "snapshot");
    const json_t *plan = json_object_get(root, "plan");
    int r;

    if (!cores)
        return error_set(err, -EBADMSG, "out of memory");
    if (!root)
        return error_set(err, -EBADMSG, "no JSON: %.100s", why.text);
    if (!json_is_integer(generation) || !json_is_array(plan))
        return error_set(err, -EBADMSG,
                         "no \"snapshot\" with a number, or no \"plan\" with a list");
    if ((uint64_t)json_integer_value(generation) != s->generation)
        return error_set(err, -ESTALE, "it answers snapshot %lld, not %llu",
                         (long long)json_integer_value(generation),
                         (unsigned long long)s->generation);
    r = read_plan(plan, s, cores, err);
    if (r == 0)
        memcpy(ret_cores, cores, s->job_count * sizeof(*cores));
    return r;
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* Cores that a user, or all together, would have under the answer, and may have at most. */
struct sum {
    int64_t mcpu, least, most; /* most 0, of a user: no bound */
};

static bool fits(const struct sum *sum)
{
    return sum->mcpu <= (sum->most > sum->least ? sum->most : sum->least);
}

/* @partly: jobs may be left out. */
static int check_job(const struct policy_job *job, int64_t cores, bool partly, struct error *err)
{
    unsigned long long id = job->id;
    int64_t mcpu = cores * POLICY_CORE_MCPU;

    if (!has_choice(job))
        return cores == 0 ? 0 : error_set(err, -EBADMSG, "job %llu has no choice of cores now", id);
    if (cores == 0)
        return partly ? 0 : error_set(err, -EBADMSG, "the plan leaves job %llu out", id);
    if (mcpu < policy_job_least(job, POLICY_MCPU) || mcpu > policy_job_most(job, POLICY_MCPU))
        return error_set(err, -EBADMSG, "job %llu: %lld cores are outside of its min and max", id,
                         (long long)cores);
    return 0;
}

/* All sums of a snapshot: @user has one for each user, or one where users are not counted. */
struct sums {
    struct sum all, *user;
};

static struct sum *sum_of_user(const struct sums *sums, const struct policy_snapshot *s, uint32_t i)
{
    return &sums->user[s->user_count ? s->jobs[i].user : 0];
}

/* Adds up @cores; jobs that they leave out count with their minimum. @equal: as in decider_keep. */
static void add_up(const struct policy_snapshot *s, const int64_t *cores,
                   const struct policy_plan *equal, struct sums *sums)
{
    sums->all = (struct sum){.most = policy_domain_capacity(s, 0, POLICY_MCPU)};
    for (uint32_t i = 0; i < s->job_count; i++) {
        const struct policy_job *job = &s->jobs[i];
        int64_t has = policy_decision_total(equal, i, POLICY_MCPU);
        int64_t least = has_choice(job) ? policy_job_least(job, POLICY_MCPU) : has;
        int64_t mcpu = cores[i] ? cores[i] * POLICY_CORE_MCPU : least;
        struct sum *user = sum_of_user(sums, s, i);

        sums->all.mcpu += mcpu;
        sums->all.least += least;
        user->mcpu += mcpu;
        user->least += least;
        if (equal->decisions[i].user_mcpu) /* held jobs do not say it */
            user->most = equal->decisions[i].user_mcpu;
    }
}

static bool user_fits(const struct sum *user)
{
    return user->most == 0 || fits(user);
}

static int check_sums(const struct policy_snapshot *s, const struct sums *sums, struct error *err)
{
    if (!fits(&sums->all))
        return error_set(err, -EBADMSG, "%lld cores are more than the machine has",
                         (long long)(sums->all.mcpu / POLICY_CORE_MCPU));
    for (uint32_t u = 0; u < s->user_count; u++)
        if (!user_fits(&sums->user[u]))
            return error_set(err, -EBADMSG, "user %llu would have %lld cores, beyond its share",
                             (unsigned long long)s->users[u].id,
                             (long long)(sums->user[u].mcpu / POLICY_CORE_MCPU));
    return 0;
}

/* Checks jobs, users and the machine. @equal is what the policy of that name decided. */
static int check(const struct policy_snapshot *s, const int64_t *cores, bool partly,
                 const struct policy_plan *equal, struct sums *sums, struct error *err)
{
    for (uint32_t i = 0; i < s->job_count; i++) {
        int r = check_job(&s->jobs[i], cores[i], partly, err);

        if (r < 0)
            return r;
    }
    add_up(s, cores, equal, sums);
    return check_sums(s, sums, err);
}

/* Sums up the plan itself, in which a job that the answer left out can exceed its minimum. */
static int check_result(const struct policy_snapshot *s, const struct policy_plan *plan,
                        struct sums *sums, struct error *err)
{
    sums->all.mcpu = 0;
    for (uint32_t i = 0; i < s->job_count; i++)
        sum_of_user(sums, s, i)->mcpu = 0;
    for (uint32_t i = 0; i < s->job_count; i++) {
        int64_t mcpu = policy_decision_total(plan, i, POLICY_MCPU);

        sums->all.mcpu += mcpu;
        sum_of_user(sums, s, i)->mcpu += mcpu;
    }
    return check_sums(s, sums, err);
}

/* Decides with the bounds of each job that has cores in the answer drawn together to these. */
static int decide_within(const struct policy_snapshot *s, const int64_t *cores,
                         struct policy_job *jobs, struct policy_plan *plan, struct error *err)
{
    struct policy_snapshot bound = *s;
    int r;

    memcpy(jobs, s->jobs, s->job_count * sizeof(*jobs));
    for (uint32_t i = 0; i < s->job_count; i++)
        if (cores[i])
            jobs[i].min.of[POLICY_MCPU] = jobs[i].max.of[POLICY_MCPU] = cores[i] * POLICY_CORE_MCPU;
    bound.jobs = jobs;
    r = policy_decide(decider_fallback(), &bound, plan);
    for (uint32_t i = 0; r == 0 && i < s->job_count; i++) {
        int64_t mcpu = policy_decision_total(plan, i, POLICY_MCPU);

        /* A waiting job may lack memory: then it does not run, whatever its cores. */
        if (cores[i] && mcpu && mcpu != cores[i] * POLICY_CORE_MCPU)
            r = error_set(err, -EBADMSG, "job %llu cannot have %lld cores beside the others",
                          (unsigned long long)jobs[i].id, (long long)cores[i]);
    }
    if (r == 0 && policy_plan_check(s, plan, NULL) < 0)
        r = error_set(err, -EBADMSG, "the plan does not fit the jobs");
    return r;
}

static int apply(const struct policy_snapshot *s, const int64_t *cores, bool partly,
                 struct policy_plan *plan, struct error *err)
{
    _cleanup_free_ struct policy_job *jobs = calloc(s->job_count + 1, sizeof(*jobs));
    _cleanup_free_ struct sum *users = calloc(s->user_count + 1, sizeof(*users));
    struct sums sums = {.user = users};
    struct policy_snapshot plain = *s;
    int refused, r;

    if (!jobs || !users)
        return -ENOMEM;
    plain.params = NULL; /* they are the decider's, not those of `equal` */
    r = policy_decide(decider_fallback(), &plain, plan);
    if (r < 0 || !cores)
        return r;
    refused = check(&plain, cores, partly, plan, &sums, err);
    if (refused == 0)
        refused = decide_within(&plain, cores, jobs, plan, err);
    if (refused == 0)
        refused = check_result(&plain, plan, &sums, err);
    if (refused == 0)
        return 0;
    r = policy_decide(decider_fallback(), &plain, plan);
    return r < 0 ? r : -EBADMSG;
}

int decider_apply(const struct policy_snapshot *s, const int64_t *cores, struct policy_plan *plan,
                  struct error *err)
{
    return apply(s, cores, false, plan, err);
}

/* ---- an answer that stays in force ----------------------------------------------------------- */

int decider_apply_kept(const struct policy_snapshot *s, const int64_t *cores,
                       struct policy_plan *plan, struct error *err)
{
    return apply(s, cores, true, plan, err);
}

static int kept_by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct decider_kept *)a)->id, y = ((const struct decider_kept *)b)->id;

    return x < y ? -1 : x > y;
}

int decider_accept(const struct policy_snapshot *s, const int64_t *cores,
                   struct decider_kept *ret_kept, struct error *err)
{
    int count = 0;

    for (uint32_t i = 0; i < s->job_count; i++) {
        const struct policy_job *job = &s->jobs[i];
        int r = check_job(job, cores[i], false, err);

        if (r < 0)
            return r;
        if (cores[i])
            ret_kept[count++] = (struct decider_kept){job->id, policy_job_least(job, POLICY_MCPU),
                                                      policy_job_most(job, POLICY_MCPU), cores[i]};
    }
    qsort(ret_kept, (size_t)count, sizeof(*ret_kept), kept_by_id);
    return count;
}

/* The job that gives up a core: one of a user who has too many, if there is such a user. */
static int64_t *who_gives(const struct policy_snapshot *s, const struct sums *sums, int64_t *cores)
{
    bool users_fit = true;
    int64_t *gives = NULL, most = -1;

    for (uint32_t u = 0; u < s->user_count; u++)
        users_fit &= user_fits(&sums->user[u]);
    for (uint32_t i = 0; i < s->job_count; i++) {
        int64_t above =
            (cores[i] - 1) * POLICY_CORE_MCPU - policy_job_least(&s->jobs[i], POLICY_MCPU);

        if (cores[i] && above > most && (users_fit || !user_fits(sum_of_user(sums, s, i)))) {
            most = above;
            gives = &cores[i];
        }
    }
    return gives;
}

/* Each pass takes one core, until all fits; else the answer is refused, and `equal` decides. */
static int make_room(const struct policy_snapshot *s, const struct policy_plan *equal,
                     int64_t *cores)
{
    _cleanup_free_ struct sum *users = calloc(s->user_count + 1, sizeof(*users));
    struct sums sums = {.user = users};

    while (users) {
        int64_t *gives;

        memset(users, 0, (s->user_count + 1) * sizeof(*users));
        add_up(s, cores, equal, &sums);
        gives = check_sums(s, &sums, NULL) < 0 ? who_gives(s, &sums, cores) : NULL;
        if (!gives)
            return 0;
        --*gives;
    }
    return -ENOMEM;
}

int decider_keep(const struct policy_snapshot *s, const struct policy_plan *equal,
                 const struct decider_kept *kept, size_t count, int64_t *ret_cores)
{
    bool complete = true;

    for (uint32_t i = 0; i < s->job_count; i++) {
        const struct policy_job *job = &s->jobs[i];
        struct decider_kept key = {.id = job->id};
        const struct decider_kept *k = NULL;

        if (count && has_choice(job))
            k = bsearch(&key, kept, count, sizeof(key), kept_by_id);
        if (k && (k->least_mcpu != policy_job_least(job, POLICY_MCPU) ||
                  k->most_mcpu != policy_job_most(job, POLICY_MCPU)))
            k = NULL;
        ret_cores[i] = k ? k->cores : 0;
        complete &= k || !has_choice(job);
    }
    if (complete) /* as the decider wanted it, within its bounds or to be refused */
        return 1;
    return make_room(s, equal, ret_cores);
}
