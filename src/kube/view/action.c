/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the plan: actions, events, the time of the next look. */
#include "kube/view/view.h"

#include "base/visible.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 512

void core_wake(struct core *c, int64_t at_ns)
{
    if (at_ns < c->wakeup_ns)
        c->wakeup_ns = at_ns;
}

struct kube_action *core_act(struct core *c, struct job *job, enum kube_action_kind kind,
                             struct replica *replica)
{
    struct kube_plan *plan = c->plan;
    struct kube_action *action;

    if (plan->count == c->action_room) {
        size_t room = c->action_room ? 2 * c->action_room : 64;
        struct kube_action *more = core_alloc(c, room, sizeof(*more));

        if (!more)
            return &c->lost_action;
        if (plan->count)
            memcpy(more, plan->actions, plan->count * sizeof(*more));
        plan->actions = more;
        c->action_room = room;
    }
    action = &plan->actions[plan->count++];
    *action =
        (struct kube_action){.kind = kind, .etj = job->etj, .pod = replica ? replica->pod : NULL};
    return action;
}

void core_event(struct core *c, struct job *job, bool warning, const char *reason, const char *fmt,
                ...)
{
    char text[TEXT_BYTES];
    struct kube_action *action;
    char *copy;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    visible(text); /* a text of others that was cut may end inside a character */
    copy = core_alloc(c, strlen(text) + 1, 1);
    if (!copy)
        return;
    strcpy(copy, text);
    action = core_act(c, job, KUBE_EVENT, NULL);
    action->note.warning = warning;
    action->note.reason = reason;
    action->note.text = copy;
}

bool core_due(struct core *c, int64_t *acted_ns)
{
    if (*acted_ns && c->now_ns - *acted_ns < ECHO_NS) {
        core_wake(c, *acted_ns + ECHO_NS);
        return false;
    }
    *acted_ns = c->now_ns;
    core_wake(c, c->now_ns + ECHO_NS);
    return true;
}

bool core_once(struct core *c, struct replica *replica)
{
    return core_due(c, &replica->acted_ns);
}

bool core_again(struct core *c, struct job *job, int64_t since_ns, const char *what)
{
    struct contest *contest = &job->record->contest;
    int64_t due;

    if (contest->count && c->now_ns - contest->at_ns >= CEILING_NS)
        contest->count = 0;
    due = since_ns + (ECHO_NS << (contest->count < 6 ? contest->count : 6));
    if (c->now_ns < due) {
        core_wake(c, due);
        return false;
    }
    contest->count++;
    contest->at_ns = c->now_ns;
    contest->what = what;
    return true;
}

const char *kube_action_name(enum kube_action_kind kind)
{
    static const char *const names[] = {
        "add finalizer",  "remove finalizer", "create service", "patch status",   "create pod",
        "ask to leave",   "resize pod",       "delete pod",     "set members",    "event",
        "queue workload", "turn workload",    "tell workload",  "delete workload"};

    _Static_assert(sizeof(names) / sizeof(names[0]) == KUBE_ACTION_MAX, "a name for each");
    return kind < KUBE_ACTION_MAX ? names[kind] : "?";
}
