/* SPDX-License-Identifier: Apache-2.0 */
/* Writes reasons and faults as one line for a person. */
#include "policy/core/policy.h"
#include "policy/core/writer.h"

#include <assert.h>
#include <string.h>

/*
 * A text with arguments in braces: {0} is argument 0 as a plain number, {0:k} in another kind:
 *   c "2.5 cores" of mcpu         k "2.5", the same without the word      j "3 jobs"
 *   J "3 jobs share"
 *   s seconds of ns               w watts of uW                           p percent of permille
 *   P who pinned                  L name of a level                       R name of a resource
 *   a amount of the resource that argument 0 names
 *   o another job: its id, or what the caller calls it
 */
static const char *const reason_text[POLICY_REASON_MAX] = {
    [POLICY_REASON_NONE] = "no reason",
    [POLICY_REASON_EQUAL_SHARE] = "equal share of {0:c} among {1:j}",
    [POLICY_REASON_WEIGHTED_SHARE] = "weight {0} of {1} in {2:c} among {3:j}",
    [POLICY_REASON_MINIMUM] = "minimum {0:k} raises the share of {1:k}",
    [POLICY_REASON_MAXIMUM] = "maximum {0:k} cuts the share of {1:k}",
    [POLICY_REASON_ONE_THREAD] = "one thread, as {0:J} {1:c}",
    [POLICY_REASON_MINIMA] = "minimum {0:k} kept, though the minima add up to {1:k} of {2:c}",
    [POLICY_REASON_PINNED] = "pinned to {0:k} {1:P}",
    [POLICY_REASON_RIGID] = "rigid, stays at {0:c}",
    [POLICY_REASON_MOLDABLE] = "moldable, stays at the {0:c} of its start",
    [POLICY_REASON_LENT] = "share of {0:c}, {1:k} lent",
    [POLICY_REASON_BORROWED] = "share of {0:c} and {1:k} borrowed",
    [POLICY_REASON_HELD] = "held by hand",
    [POLICY_REASON_NO_ROOM] = "waits for {0:R}: needs {1:a}, {2:a} free",
    [POLICY_REASON_TOO_LARGE] = "needs {1:a}, more than the {2:a} there are",
    [POLICY_REASON_PREEMPTED] = "paused for {0:o}: priority {1} against {2}",
    [POLICY_REASON_PRIORITY] = "priority {0}",
    [POLICY_REASON_DEADLINE] = "{0:c} to meet the deadline in {1:s}",
    [POLICY_REASON_DEADLINE_MISSED] = "needs {0:s}, but the deadline is in {1:s}",
    [POLICY_REASON_POWER_CAP] = "power cap of {0:w} allows {1:c}",
    [POLICY_REASON_LOCALITY] = "kept together in {0:L} {1}",
    [POLICY_REASON_SPARE] = "{0:c} that others use less well",
    [POLICY_REASON_WORKERS] = "worker {0} gains {1:p}",
    [POLICY_REASON_PARAMETER_SERVER] = "{0} parameter servers, as communication takes {1:p}",
    [POLICY_REASON_REQUEST] = "its request of {0:c}",
    [POLICY_REASON_PART] = "{0:k} of the {1:c} it asked for, as no more is free",
    [POLICY_REASON_KEPT] = "keeps the {0:c} that it has, more than the {1:k} it asked for",
    [POLICY_REASON_PROPORTION] = "request of {0:k} out of {1:k} in {2:c} among {3:j}",
    [POLICY_REASON_BEHIND] = "waits behind {0:o}",
    [POLICY_REASON_SWITCH_COST] = "stays: {0:c} would not pay for a resize of {1:s}",
    [POLICY_REASON_DWELL] = "stays for {1:s}, as it changed just now: {0:c} planned",
    [POLICY_REASON_FREE_CORES] = "{0:c} without taking from others, {1:k} planned",
    [POLICY_REASON_QUANTUM] = "ran for {0:s}, now it is the turn of {1:o}",
    [POLICY_REASON_ABOVE_MINIMUM] = "minimum {0:k} and weight {1} of {2} in {3:c}",
    [POLICY_REASON_GAIN] = "{0:c}: the last adds {1:p} of one, the next would add {2:p}",
    [POLICY_REASON_NO_CURVE] = "{0:c}, as its speed-up is not known: the equal share is {1:k}",
    [POLICY_REASON_GIVES_WAY] = "paused, as others gain more from its {0:c}",
    [POLICY_REASON_SIZE_RANK] = "{0:c} as number {1} of {2:j} by work left",
    [POLICY_REASON_ENDS] = "{0:c} to end in {1:s}",
};
/* A code without a text would be a NULL pointer: the last one stands for all. */
static_assert(sizeof(reason_text) / sizeof(reason_text[0]) == POLICY_REASON_ENDS + 1,
              "every reason has a text");

/* Leaves out numbers that tell nothing: shares of one job, others' cores where there are none. */
static const char *pattern_of(const struct policy_reason *reason)
{
    const int64_t *arg = reason->arg;

    switch (reason->code) {
    case POLICY_REASON_EQUAL_SHARE:
        if (arg[2] > arg[0])
            return arg[1] == 1 ? "the {0:c} that others leave of {2:k}"
                               : "equal share among {1:j} of the {0:c} that others leave of {2:k}";
        if (arg[1] == 1)
            return "alone on {0:c}";
        break;
    case POLICY_REASON_MAXIMUM:
        if (arg[1] == 0)
            return "at its maximum of {0:c}";
        break;
    case POLICY_REASON_ONE_THREAD:
        if (arg[2] > arg[1])
            return arg[1] == 0 ? "one thread, as others leave none of {2:c}"
                               : "one thread, as {0:J} the {1:c} that others leave of {2:k}";
        break;
    case POLICY_REASON_MINIMA:
        if (arg[3] > arg[2])
            return arg[0] == arg[1] ? "minimum {0:k} kept, though others leave {2:k} of {3:c}"
                                    : "minimum {0:k} kept, though the minima add up to {1:k} and "
                                      "others leave {2:k} of {3:c}";
        break;
    case POLICY_REASON_REQUEST:
        if (arg[1] == 0)
            return "its minimum of {0:c}, as it made no request";
        if (arg[1] != arg[0])
            return arg[1] > arg[0] ? "its maximum of {0:c}, below its request of {1:k}"
                                   : "its minimum of {0:c}, above its request of {1:k}";
        break;
    case POLICY_REASON_SIZE_RANK:
        if (arg[3])
            return "{0:c} as number {1} of {2:j} by class and work left";
        break;
    case POLICY_REASON_KEPT:
        if (arg[2] == 0)
            return "keeps the {0:c} that it has, more than its minimum of {1:k}";
        break;
    default:
        break;
    }
    return reason->code < POLICY_REASON_MAX ? reason_text[reason->code] : "?";
}

static const char *const fault_text[POLICY_FAULT_MAX] = {
    [POLICY_FAULT_NONE] = "no fault",
    [POLICY_FAULT_COUNT] = "no domain, or too many domains or jobs",
    [POLICY_FAULT_SPEED] = "speeds of cores do not fall, or there is no core of one",
    [POLICY_FAULT_DOMAIN] = "level, parent, capacity or power is wrong",
    [POLICY_FAULT_ENUM] = "unknown state, malleability, pin or span",
    [POLICY_FAULT_WEIGHT] = "weight is 0 or too large",
    [POLICY_FAULT_BOUNDS] = "negative amount, or minimum above maximum",
    [POLICY_FAULT_CURRENT] = "home or current amounts are no places of this snapshot",
    [POLICY_FAULT_SAME_ID] = "another job has the same id",
    [POLICY_FAULT_CURVE] = "speed-up table is empty or has a zero",
    [POLICY_FAULT_USER] = "belongs to no user, or the user has no weight or no cores",
    [POLICY_FAULT_STALE] = "the plan is for another epoch or generation",
    [POLICY_FAULT_ID] = "the decision is for another job",
    [POLICY_FAULT_VERB] = "the verb does not fit the job's state",
    [POLICY_FAULT_PREEMPT] = "pauses a job that is not preemptible",
    [POLICY_FAULT_RIGID] = "changes a job that cannot change",
    [POLICY_FAULT_REASON] = "no reason given",
    [POLICY_FAULT_PLACE] = "an amount in a wrong place, twice in one, or negative",
    [POLICY_FAULT_NOT_KEPT] = "keep, but other amounts than now",
    [POLICY_FAULT_NO_CHANGE] = "resize, but the same amounts as now",
    [POLICY_FAULT_MEMORY] = "memory of a paused job must stay where it is",
    [POLICY_FAULT_HOLDS] = "a job that does not run holds something",
    [POLICY_FAULT_MINIMUM] = "below the minimum",
    [POLICY_FAULT_MAXIMUM] = "above the maximum",
    [POLICY_FAULT_PINNED] = "not what the job is pinned to",
    [POLICY_FAULT_FEASIBLE] = "called infeasible, but it would fit",
    [POLICY_FAULT_CAPACITY] = "above the capacity, and nothing forces it",
    [POLICY_FAULT_MARK] = "oversubscription is not marked as it is",
    [POLICY_FAULT_USE] = "the stated use is not the sum of the amounts",
    [POLICY_FAULT_WAKEUP] = "the next wake-up is not in the future",
};
static_assert(sizeof(fault_text) / sizeof(fault_text[0]) == POLICY_FAULT_WAKEUP + 1,
              "every fault has a text");

static const char *const verb_name[POLICY_VERB_MAX] = {
    [POLICY_VERB_NONE] = "none",   [POLICY_VERB_START] = "start",
    [POLICY_VERB_KEEP] = "keep",   [POLICY_VERB_RESIZE] = "resize",
    [POLICY_VERB_PAUSE] = "pause", [POLICY_VERB_RESUME] = "resume",
    [POLICY_VERB_HOLD] = "hold",   [POLICY_VERB_INFEASIBLE] = "infeasible",
};
static_assert(sizeof(verb_name) / sizeof(verb_name[0]) == POLICY_VERB_INFEASIBLE + 1,
              "every verb has a name");

static const char *const level_name[POLICY_LEVEL_MAX] = {
    [POLICY_AREA] = "area",      [POLICY_CLUSTER] = "cluster", [POLICY_NODE] = "node",
    [POLICY_NUMA] = "NUMA node", [POLICY_CORE] = "core",       [POLICY_SMT] = "SMT thread",
};
static_assert(sizeof(level_name) / sizeof(level_name[0]) == POLICY_SMT + 1,
              "every level has a name");

static const char *const resource_name[POLICY_RESOURCE_MAX] = {[POLICY_MCPU] = "cores",
                                                               [POLICY_MEMORY] = "memory",
                                                               [POLICY_PS] = "parameter servers",
                                                               [POLICY_WORKER] = "workers",
#define ROW(ID, name) [POLICY_DEVICE + DEVICE_##ID] = name " devices",
                                                               DEVICE_KINDS_OF(ROW)
#undef ROW
};

static const char *const device_name[DEVICE_KINDS] = {
#define ROW(ID, name) name,
    DEVICE_KINDS_OF(ROW)
#undef ROW
};

static const char *const pin_name[POLICY_PIN_MAX] = {
    [POLICY_PIN_NONE] = "by nobody",
    [POLICY_PIN_HAND] = "by hand",
    [POLICY_PIN_PROGRAM] = "by the program",
    [POLICY_PIN_SIGNAL] = "by a signal",
};
static_assert(sizeof(pin_name) / sizeof(pin_name[0]) == POLICY_PIN_SIGNAL + 1,
              "every pin has a name");

static const char *name_of(const char *const *names, uint64_t index, uint64_t count)
{
    return index < count ? names[index] : "?";
}

const char *policy_verb_name(enum policy_verb verb)
{
    return name_of(verb_name, verb, POLICY_VERB_MAX);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes @value / @unit with up to two decimals, cut, and without trailing zeros: "2.5". */
static void put_fraction(struct writer *w, int64_t value, int64_t unit)
{
    int64_t rest = value > 0 ? value % unit : 0;
    int64_t tenths = rest * 10 / unit;
    int64_t hundredths = rest * 10 % unit * 10 / unit;

    put_number(w, value / unit);
    if (tenths == 0 && hundredths == 0)
        return;
    put_char(w, '.');
    put_char(w, (char)('0' + tenths));
    if (hundredths)
        put_char(w, (char)('0' + hundredths));
}

static void put_count(struct writer *w, int64_t value, const char *one, const char *many)
{
    put_number(w, value);
    put_char(w, ' ');
    put_text(w, value == 1 ? one : many);
}

static void put_cores(struct writer *w, int64_t mcpu)
{
    put_fraction(w, mcpu, POLICY_CORE_MCPU);
    put_text(w, mcpu == POLICY_CORE_MCPU ? " core" : " cores");
}

static void put_bytes(struct writer *w, int64_t bytes)
{
    static const char *const unit[] = {" B", " KiB", " MiB", " GiB", " TiB"};
    unsigned i = 0;

    while (i < 4 && bytes >> (10 * (i + 1)))
        i++;
    put_fraction(w, bytes, INT64_C(1) << (10 * i));
    put_text(w, unit[i]);
}

static void put_amount(struct writer *w, uint64_t resource, int64_t value)
{
    switch (resource) {
    case POLICY_MCPU:
        put_cores(w, value);
        break;
    case POLICY_MEMORY:
        put_bytes(w, value);
        break;
    case POLICY_PS:
        put_count(w, value, "parameter server", "parameter servers");
        break;
    case POLICY_WORKER:
        put_count(w, value, "worker", "workers");
        break;
    default:
        put_number(w, value);
        put_char(w, ' ');
        put_text(w, name_of(device_name, resource - POLICY_DEVICE, DEVICE_KINDS));
        put_text(w, value == 1 ? " device" : " devices");
    }
}

static void put_job(struct writer *w, int64_t id, const char *name)
{
    put_text(w, name ? name : "job ");
    if (!name)
        put_number(w, id);
}

static void put_argument(struct writer *w, char kind, const int64_t *arg, int index,
                         const char *other)
{
    int64_t value = arg[index];

    switch (kind) {
    case 'c':
        put_cores(w, value);
        break;
    case 'k':
        put_fraction(w, value, POLICY_CORE_MCPU);
        break;
    case 'j':
        put_count(w, value, "job", "jobs");
        break;
    case 'J':
        put_count(w, value, "job shares", "jobs share");
        break;
    case 's':
        put_fraction(w, value, 1000000000);
        put_text(w, " s");
        break;
    case 'w':
        put_fraction(w, value, 1000000);
        put_text(w, " W");
        break;
    case 'p':
        put_fraction(w, value, 10);
        put_text(w, " %");
        break;
    case 'P':
        put_text(w, name_of(pin_name, (uint64_t)value, POLICY_PIN_MAX));
        break;
    case 'L':
        put_text(w, name_of(level_name, (uint64_t)value, POLICY_LEVEL_MAX));
        break;
    case 'R':
        put_text(w, name_of(resource_name, (uint64_t)value, POLICY_RESOURCE_MAX));
        break;
    case 'a':
        put_amount(w, (uint64_t)arg[0], value);
        break;
    case 'o':
        put_job(w, value, other);
        break;
    default:
        put_number(w, value);
    }
}

static void put_pattern(struct writer *w, const char *pattern, const int64_t *arg,
                        const char *other)
{
    while (*pattern) {
        char kind = 0;
        int index;

        if (*pattern != '{') {
            put_char(w, *pattern++);
            continue;
        }
        index = pattern[1] - '0';
        pattern += 2;
        if (*pattern == ':') {
            kind = pattern[1];
            pattern += 2;
        }
        put_argument(w, kind, arg, index, other);
        pattern++; /* the closing brace */
    }
}

bool policy_reason_job(const struct policy_reason *reason, uint64_t *ret_id)
{
    const char *pattern = pattern_of(reason);

    for (; *pattern; pattern++)
        if (pattern[0] == '{' && pattern[2] == ':' && pattern[3] == 'o') {
            *ret_id = (uint64_t)reason->arg[pattern[1] - '0'];
            return true;
        }
    return false;
}

size_t policy_reason_text(const struct policy_reason *reason, const char *other, char *buf,
                          size_t size)
{
    struct writer w = {.buf = buf, .size = size};

    put_pattern(&w, pattern_of(reason), reason->arg, other);
    if (reason->user_mcpu) {
        put_text(&w, POLICY_USER_TEXT);
        put_fraction(&w, reason->user_mcpu, POLICY_CORE_MCPU);
        put_text(&w, " of ");
        put_cores(&w, reason->machine_mcpu);
        if (reason->users > 1) {
            put_text(&w, ", ");
            put_number(&w, reason->users);
            put_text(&w, " users share");
        }
    }
    if (reason->used_mcpu > reason->capacity_mcpu) {
        put_text(&w, POLICY_OVER_TEXT);
        put_fraction(&w, reason->used_mcpu, POLICY_CORE_MCPU);
        put_text(&w, " of ");
        put_cores(&w, reason->capacity_mcpu);
    }
    return put_end(&w);
}

size_t policy_fault_text(const struct policy_fault *fault, char *buf, size_t size)
{
    struct writer w = {.buf = buf, .size = size};

    put_text(&w, fault->in_domain ? "domain " : "job ");
    put_number(&w, fault->index);
    put_text(&w, " of the snapshot: ");
    put_text(&w, name_of(fault_text, fault->code, POLICY_FAULT_MAX));
    if (fault->value != fault->bound) {
        put_text(&w, ": ");
        put_amount(&w, fault->resource, fault->value);
        put_text(&w, " against ");
        put_amount(&w, fault->resource, fault->bound);
    }
    return put_end(&w);
}
