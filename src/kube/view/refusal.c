/* SPDX-License-Identifier: Apache-2.0 */
/* Actions that the API server refuses: the status tells them, and retries become ever rarer. */
#include "kube/view/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define AGAIN_NS     NS_PER_S         /* delay of the second try; doubles … */
#define AGAIN_MAX_NS (300 * NS_PER_S) /* … up to this */
#define FORGET_NS    (120 * NS_PER_S) /* without a further try: the action is no longer wanted */

/* Every creation rests on the service: a namespace that is being deleted refuses all of them. */
static enum refused slot_of(const struct kube_answer *answer)
{
    if (answer->code == -ESHUTDOWN)
        return REFUSED_SERVICE;
    switch (answer->kind) {
    case KUBE_CREATE_SERVICE:
        return REFUSED_SERVICE;
    case KUBE_CREATE_POD:
        return REFUSED_CHIEF + (int)answer->role;
    case KUBE_RESIZE_POD:
        return REFUSED_RESIZE;
    case KUBE_MAKE_WORKLOAD:
        return REFUSED_WORKLOAD;
    default:
        return REFUSED_OTHER;
    }
}

/* Drops the expectation of the refused object and of those to be created after it. */
static void expect_no_more(struct memory_entry *entry, const struct kube_answer *answer)
{
    bool service = answer->kind == KUBE_CREATE_SERVICE;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < entry->replica_count; i++) {
        const struct replica_record *replica = &entry->replicas[i];

        if (replica->state != POD_EXPECTED ||
            !(service || replica->role > answer->role ||
              (replica->role == answer->role && replica->index >= answer->index)))
            entry->replicas[kept++] = *replica;
    }
    entry->replica_count = kept;
    entry->record.sent.service &= !service;
    trial_move(&entry->record.trial[answer->role], TRIAL_BROKEN, NULL); /* a trial is void then */
}

/* After a refused resize nobody has changed the sizes back: forgets that we asked for them. */
static void forget_sizes(struct memory_entry *entry)
{
    for (uint32_t i = 0; i < entry->replica_count; i++) {
        entry->replicas[i].sized_mcpu = 0;
        entry->replicas[i].acted_ns = 0;
    }
}

/* Never cuts inside a UTF-8 character: the status would not be valid JSON. */
static void copy(char *to, size_t size, const char *text)
{
    size_t length = strlen(text);

    if (length >= size) {
        length = size - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    memcpy(to, text, length);
    to[length] = '\0';
}

void kube_memory_answer(struct kube_memory *memory, const struct kube_etj *etj,
                        const struct kube_answer *answer, int64_t now_ns)
{
    struct memory_entry *entry = memory_entry(memory, etj->meta.uid);
    struct refusal *r = entry ? &entry->record.refused[slot_of(answer)] : NULL;
    int64_t delay;

    if (!entry || (answer->code == 0 && r->kind != answer->kind))
        return;
    if (answer->code == 0) {
        *r = (struct refusal){0};
        return;
    }
    r->code = answer->code;
    r->kind = answer->kind;
    delay = AGAIN_NS << (r->count < 9 ? r->count : 9);
    r->count++;
    r->until_ns = now_ns + (delay < AGAIN_MAX_NS ? delay : AGAIN_MAX_NS);
    if (answer->code == -ESHUTDOWN) /* the namespace never comes back */
        r->until_ns = FOREVER - FORGET_NS;
    r->generation = etj->meta.generation;
    copy(r->text, sizeof(r->text), answer->text);
    if (answer->kind == KUBE_CREATE_SERVICE || answer->kind == KUBE_CREATE_POD)
        expect_no_more(entry, answer);
    else if (answer->kind == KUBE_RESIZE_POD)
        forget_sizes(entry);
}

void refused_forget(struct core *c, struct job *job)
{
    for (int slot = 0; slot < REFUSED_MAX; slot++) {
        struct refusal *r = &job->record->refused[slot];

        if (!r->code)
            continue;
        if (r->generation != job->etj->meta.generation || c->now_ns >= r->until_ns + FORGET_NS)
            *r = (struct refusal){0};
        else
            core_wake(c, r->until_ns + FORGET_NS);
    }
}

bool refused_now(struct core *c, const struct job *job, enum refused slot)
{
    const struct refusal *r = &job->record->refused[slot];

    if (!r->code || c->now_ns >= r->until_ns)
        return false;
    core_wake(c, r->until_ns);
    return true;
}

bool refused_allow(struct core *c, const struct job *job, enum kube_role role)
{
    if (job->queue == QUEUE_UNKNOWN)
        return false;
    for (int slot = REFUSED_SERVICE; slot <= REFUSED_CHIEF + (int)role; slot++)
        if (refused_now(c, job, slot))
            return false;
    return true;
}

void refused_tell(struct job *job)
{
    const struct refusal *r = job->record->refused;
    char text[2 * KUBE_MESSAGE_MAX];

    while (r < job->record->refused + REFUSED_MAX && !r->code)
        r++;
    if (r == job->record->refused + REFUSED_MAX)
        return;
    job->trouble_reason = r->code == -EEXIST      ? "NameTaken"
                          : r->code == -ESHUTDOWN ? "NamespaceTerminating"
                                                  : "Refused";
    snprintf(text, sizeof(text), "cannot %s: %s", kube_action_name(r->kind), r->text);
    copy(job->trouble, sizeof(job->trouble), text);
}
