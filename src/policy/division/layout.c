/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/layout.h"

#include <string.h>

/* ---- free amounts ---------------------------------------------------------------------------- */

size_t layout_amounts(const struct policy_snapshot *snapshot)
{
    size_t amounts = 0;

    for (uint32_t j = 0; j < snapshot->job_count; j++)
        amounts += 1 + snapshot->jobs[j].current_count;
    return amounts;
}

size_t layout_bytes(const struct policy_snapshot *snapshot)
{
    return 2 * snapshot->domain_count * sizeof(struct policy_vector);
}

void layout_init(struct layout *layout, const struct policy_snapshot *snapshot,
                 struct policy_plan *plan, void *scratch)
{
    *layout = (struct layout){.snapshot = snapshot, .plan = plan, .capacity = scratch};
    layout->left = layout->capacity + snapshot->domain_count;
    for (uint32_t d = 0; d < snapshot->domain_count; d++) {
        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            layout->capacity[d].of[r] = policy_domain_capacity(snapshot, d, r);
        layout->left[d] = layout->capacity[d];
    }
}

void layout_use(struct layout *layout, uint32_t domain, int resource, int64_t amount)
{
    for (uint32_t d = domain; amount && d != POLICY_NO_PARENT;
         d = layout->snapshot->domains[d].parent) {
        int64_t *left = &layout->left[d].of[resource];

        /* a value below all bounds stays negative, also when some of it is given back */
        if (*left != POLICY_UNLIMITED && __builtin_sub_overflow(*left, amount, left))
            *left = INT64_MIN;
    }
}

/* Works on the domain and its ancestors. */
static int64_t smallest(const struct layout *layout, const struct policy_vector *of_domain,
                        uint32_t domain, int resource)
{
    int64_t least = POLICY_UNLIMITED;

    for (uint32_t d = domain; d != POLICY_NO_PARENT; d = layout->snapshot->domains[d].parent)
        if (of_domain[d].of[resource] < least)
            least = of_domain[d].of[resource];
    return least;
}

int64_t layout_left(const struct layout *layout, uint32_t domain, int resource)
{
    return smallest(layout, layout->left, domain, resource);
}

int64_t layout_capacity(const struct layout *layout, uint32_t domain, int resource)
{
    return smallest(layout, layout->capacity, domain, resource);
}

/* Memory and devices come first: no pause of another job can free them. */
static int first_above(const struct layout *layout, const struct policy_vector *of_domain,
                       uint32_t domain, const struct policy_vector *need)
{
    for (int stays = 1; stays >= 0; stays--)
        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            if (policy_stays(r) == stays && need->of[r] &&
                need->of[r] > smallest(layout, of_domain, domain, r))
                return r;
    return POLICY_RESOURCE_MAX;
}

int layout_lacks(const struct layout *layout, uint32_t place, const struct policy_vector *need)
{
    return first_above(layout, layout->left, place, need);
}

int layout_exceeds(const struct layout *layout, uint32_t place, const struct policy_vector *need)
{
    return first_above(layout, layout->capacity, place, need);
}

/* ---- entries --------------------------------------------------------------------------------- */

struct policy_amount *layout_entries(struct layout *layout, uint32_t job)
{
    return layout->plan->amounts + layout->plan->decisions[job].amount_first;
}

uint32_t layout_place(struct layout *layout, uint32_t job)
{
    return layout_entries(layout, job)->domain;
}

void layout_reason(struct layout *layout, uint32_t job, enum policy_reason_code code, int64_t arg0,
                   int64_t arg1, int64_t arg2, int64_t arg3)
{
    layout->plan->decisions[job].reason =
        (struct policy_reason){.code = code, .arg = {arg0, arg1, arg2, arg3}};
}

void layout_fixed_reason(struct layout *layout, uint32_t j)
{
    const struct policy_job *job = &layout->snapshot->jobs[j];
    int64_t mcpu = policy_job_fixed(job, POLICY_MCPU);

    if (job->pinned_by != POLICY_PIN_NONE && job->pinned.of[POLICY_MCPU])
        layout_reason(layout, j, POLICY_REASON_PINNED, mcpu, job->pinned_by, 0, 0);
    else if (job->malleability == POLICY_RIGID)
        layout_reason(layout, j, POLICY_REASON_RIGID, mcpu, 0, 0, 0);
    else
        layout_reason(layout, j, POLICY_REASON_MOLDABLE, mcpu, 0, 0, 0);
}

/* The job's place comes first, which will get the cores; other entries stay. */
static void lay_out(struct layout *layout, uint32_t j, uint32_t place)
{
    const struct policy_job *job = &layout->snapshot->jobs[j];
    struct policy_decision *decision = &layout->plan->decisions[j];

    decision->amount_first = (uint32_t)layout->plan->amount_count;
    decision->amount_count = 1;
    *layout_entries(layout, j) = (struct policy_amount){.domain = place};
    for (uint32_t i = 0; i < job->current_count; i++) {
        struct policy_amount *entry = layout_entries(layout, j);

        if (job->current[i].domain != place)
            entry += decision->amount_count++;
        *entry = job->current[i];
        entry->amount.of[POLICY_MCPU] = 0;
    }
    layout->plan->amount_count += decision->amount_count;
}

/* Parameter servers and workers of a running job stay, unless a pin or bound differs. */
static void place_tasks(struct layout *layout, uint32_t j, int r)
{
    const struct policy_job *job = &layout->snapshot->jobs[j];
    int64_t has = policy_amount_total(job->current, job->current_count, r);
    int64_t want = policy_job_fixed(job, r);

    if (want < 0)
        want = has < job->min.of[r] ? job->min.of[r] : has;
    if (policy_job_fixed(job, r) < 0 && want > job->max.of[r])
        want = job->max.of[r];
    /* a paused job's resources come back together, so one place must have room */
    if (want == has && job->state != POLICY_PAUSED)
        return;
    for (uint32_t i = 0; i < layout->plan->decisions[j].amount_count; i++)
        layout_entries(layout, j)[i].amount.of[r] = 0;
    layout_entries(layout, j)->amount.of[r] = want;
}

void layout_present(struct layout *layout, uint32_t j)
{
    const struct policy_job *job = &layout->snapshot->jobs[j];

    lay_out(layout, j, policy_job_place(layout->snapshot, job));
    for (int r = 0; r < POLICY_RESOURCE_MAX && job->current_count == 0; r++)
        if (policy_stays(r))
            layout_entries(layout, j)->amount.of[r] = policy_job_least(job, r);
    place_tasks(layout, j, POLICY_PS);
    place_tasks(layout, j, POLICY_WORKER);
    for (uint32_t i = 0; i < layout->plan->decisions[j].amount_count; i++) {
        const struct policy_amount *entry = &layout_entries(layout, j)[i];

        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            if (policy_stays(r))
                layout_use(layout, entry->domain, r, entry->amount.of[r]);
    }
}

void layout_tasks(struct layout *layout, uint32_t j, int sign)
{
    for (uint32_t i = 0; i < layout->plan->decisions[j].amount_count; i++) {
        const struct policy_amount *entry = &layout_entries(layout, j)[i];

        for (int r = POLICY_PS; r <= POLICY_WORKER; r++)
            layout_use(layout, entry->domain, r, sign * entry->amount.of[r]);
    }
}

void layout_need(const struct layout *layout, uint32_t j, uint32_t place,
                 struct policy_vector *ret_need)
{
    const struct policy_job *job = &layout->snapshot->jobs[j];
    const struct policy_decision *decision = &layout->plan->decisions[j];

    *ret_need = (struct policy_vector){0};
    for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++) {
        int64_t least = policy_job_least(job, r), want = job->request.of[r];

        if (job->state == POLICY_PAUSED) {
            if (!policy_stays(r))
                ret_need->of[r] = policy_amount_total(
                    layout->plan->amounts + decision->amount_first, decision->amount_count, r);
            continue;
        }
        want = want > job->max.of[r] ? job->max.of[r] : want;
        ret_need->of[r] = policy_job_fixed(job, r) < 0 && want > least &&
                                  want <= layout_capacity(layout, place, r)
                              ? want
                              : least;
    }
}

void layout_start(struct layout *layout, uint32_t j, uint32_t place,
                  const struct policy_vector *need)
{
    lay_out(layout, j, place);
    layout_entries(layout, j)->amount = *need;
    for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++)
        layout_use(layout, place, r, need->of[r]);
}

void layout_refuse(struct layout *layout, uint32_t j, uint32_t place,
                   const struct policy_vector *need)
{
    int r = layout_exceeds(layout, place, need);
    bool never = r != POLICY_RESOURCE_MAX;
    int64_t left;

    if (!never)
        r = layout_lacks(layout, place, need);
    left = never ? layout_capacity(layout, place, r) : layout_left(layout, place, r);
    layout_reason(layout, j, never ? POLICY_REASON_TOO_LARGE : POLICY_REASON_NO_ROOM, r,
                  need->of[r], left > 0 ? left : 0, 0);
    layout->plan->decisions[j].verb = never ? POLICY_VERB_INFEASIBLE : POLICY_VERB_HOLD;
}

/* ---- writing the plan ------------------------------------------------------------------------ */

static bool is_empty(const struct policy_vector *amount)
{
    int64_t any = 0;

    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        any |= amount->of[r];
    return any == 0;
}

bool layout_is_unchanged(const struct policy_snapshot *snapshot, const struct policy_plan *plan,
                         uint32_t j)
{
    const struct policy_job *job = &snapshot->jobs[j];
    const struct policy_decision *decision = &plan->decisions[j];
    const struct policy_amount *entry = plan->amounts + decision->amount_first;
    uint32_t held = 0;

    for (uint32_t i = 0; i < job->current_count; i++) {
        uint32_t k = 0;

        if (is_empty(&job->current[i].amount))
            continue;
        held++;
        while (k < decision->amount_count && entry[k].domain != job->current[i].domain)
            k++;
        if (k == decision->amount_count ||
            memcmp(&entry[k].amount, &job->current[i].amount, sizeof(struct policy_vector)) != 0)
            return false;
    }
    return held == decision->amount_count;
}

static void drop_empty(struct layout *layout, uint32_t j)
{
    struct policy_decision *decision = &layout->plan->decisions[j];
    struct policy_amount *entry = layout_entries(layout, j);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < decision->amount_count; i++)
        if (!is_empty(&entry[i].amount))
            entry[kept++] = entry[i];
    decision->amount_count = kept;
}

void layout_run(struct layout *layout, uint32_t j, int64_t mcpu)
{
    struct policy_decision *decision = &layout->plan->decisions[j];

    layout_entries(layout, j)->amount.of[POLICY_MCPU] = mcpu;
    drop_empty(layout, j);
    switch (layout->snapshot->jobs[j].state) {
    case POLICY_QUEUED:
        decision->verb = POLICY_VERB_START;
        break;
    case POLICY_PAUSED:
        decision->verb = POLICY_VERB_RESUME;
        break;
    default:
        decision->verb = layout_is_unchanged(layout->snapshot, layout->plan, j)
                             ? POLICY_VERB_KEEP
                             : POLICY_VERB_RESIZE;
    }
}

void layout_stop(struct layout *layout, uint32_t j, enum policy_verb verb)
{
    for (uint32_t i = 0; i < layout->plan->decisions[j].amount_count; i++) {
        struct policy_vector *amount = &layout_entries(layout, j)[i].amount;

        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            if (!policy_stays(r))
                amount->of[r] = 0;
    }
    drop_empty(layout, j);
    layout->plan->decisions[j].verb = verb;
}
