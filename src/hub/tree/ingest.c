/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/ingest.h"

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/wallclock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-broker-message"

struct message {
    struct unit *unit;
    bool early;     /* one before it is missing */
    int64_t end_ms; /* of its records, once some of them are stored; else 0 */
    struct payload_energy energy;
};

struct receipt {
    char unit[EDGE_NAME_MAX];
    struct payload_receipt upto;
};

struct ingest {
    struct ingest_options options;
    struct ingest_counts counts;
    struct message *message; /* INGEST_MESSAGES_MAX */
    struct receipt *receipt; /* INGEST_RECEIPTS_MAX */
    size_t messages, receipts;
};

int ingest_new(const struct ingest_options *options, struct ingest **ret)
{
    struct ingest *i = calloc(1, sizeof(*i));

    if (i) {
        i->options = *options;
        i->message = calloc(INGEST_MESSAGES_MAX, sizeof(*i->message));
        i->receipt = calloc(INGEST_RECEIPTS_MAX, sizeof(*i->receipt));
    }
    if (!i || !i->message || !i->receipt) {
        ingest_free(i);
        return -ENOMEM;
    }
    *ret = i;
    return 0;
}

struct ingest *ingest_free(struct ingest *i)
{
    if (!i)
        return NULL;
    free(i->message);
    free(i->receipt);
    free(i);
    return NULL;
}

struct ingest_counts ingest_counts(const struct ingest *i)
{
    return i->counts;
}

bool ingest_waits(const struct ingest *i)
{
    return i->messages > 0;
}

/* ---- messages ---- */

static void unreadable(struct ingest *i, const char *unit, const struct error *e)
{
    char text[ERROR_TEXT_MAX + 128];

    i->counts.unreadable++;
    snprintf(text, sizeof(text), "sent energy that is not understood: %s (tide why %s)", e->text,
             error_why(e));
    i->options.say(i->options.arg, unit, text);
}

int ingest_energy(struct ingest *i, struct unit *u, const void *bytes, size_t len,
                  struct error *err)
{
    struct message *m = &i->message[i->messages];
    struct error e = {0};

    i->counts.messages++;
    if (payload_energy_read(bytes, len, &m->energy, &e) < 0) {
        unreadable(i, u->name, &e);
        return 0;
    }
    if (m->energy.count == 0)
        return 0;
    m->unit = u;
    if (++i->messages < INGEST_MESSAGES_MAX)
        return 0;
    return ingest_flush(i, err);
}

/* ---- the store ---- */

/* Whether all records before those of the message are stored. */
static bool follows(const struct unit *u, const struct payload_energy *e)
{
    return e->after == 0 || (u->stored_boot == e->record[0].boot && e->after <= u->stored_seq);
}

/* Said once, not each time that they take turns. */
static void note_twin(struct ingest *i, struct unit *u)
{
    int64_t now_ms = (int64_t)wallclock_ms();
    bool said = unit_has_twin(u, now_ms);
    char text[EDGE_NAME_MAX + 256];

    u->twin_ms = now_ms;
    if (said)
        return;
    snprintf(text, sizeof(text),
             "two programs say that they are %s, each with an outbox of its own, or an earlier "
             "outbox was put back; what each used counts once (tide why two-of-a-name)",
             u->name);
    i->options.say(i->options.arg, u->name, text);
}

static int store_message(struct ingest *i, struct message *m, struct ingest_counts *counts,
                         struct error *err)
{
    const struct outbox_record *last = &m->energy.record[m->energy.count - 1];
    struct store_put put;
    char text[128];
    int r;

    m->end_ms = 0;
    m->early = !follows(m->unit, &m->energy);
    if (m->early) {
        counts->early++;
        return 0;
    }
    r = store_put(i->options.store, m->unit->name, m->energy.record, m->energy.count, &put, err);
    if (r < 0)
        return r;
    if (m->unit->stored_boot != last->boot || m->unit->stored_seq < last->seq) {
        m->unit->stored_boot = last->boot;
        m->unit->stored_seq = last->seq;
    }
    if (put.stored)
        m->end_ms = (int64_t)last->to_ms;
    counts->stored += put.stored;
    counts->known += put.known;
    counts->refused += put.refused;
    if (put.returned)
        note_twin(i, m->unit);
    if (put.refused) {
        snprintf(text, sizeof(text), "impossible records, which are not stored: %" PRIu32 ERROR_WHY,
                 put.refused);
        i->options.say(i->options.arg, m->unit->name, text);
    }
    return 0;
}

static struct receipt *receipt_of(struct ingest *i, const char *unit, uint64_t boot)
{
    for (size_t k = i->receipts; k-- > 0;)
        if (strcmp(i->receipt[k].unit, unit) == 0 && i->receipt[k].upto.boot == boot)
            return &i->receipt[k];
    return NULL;
}

/* One receipt says of all earlier ones of the same boot that they are stored. */
static void owe(struct ingest *i, const struct message *m)
{
    const struct outbox_record *last = &m->energy.record[m->energy.count - 1];
    struct receipt *r = receipt_of(i, m->unit->name, last->boot);

    if (m->early && (m->unit->asked_again || r))
        return;
    m->unit->asked_again = m->early;
    if (!r && i->receipts < INGEST_RECEIPTS_MAX) {
        r = &i->receipt[i->receipts++];
        *r = (struct receipt){.upto = {last->boot, 0}};
        strcpy(r->unit, m->unit->name);
    }
    if (r && !m->early && last->seq > r->upto.seq)
        r->upto.seq = last->seq;
}

/* A unit whose clock is ahead has told nothing of the time to come. */
static void note_end(const struct message *m, int64_t now_ms)
{
    int64_t end_ms = m->end_ms < now_ms ? m->end_ms : now_ms;

    if (end_ms > m->unit->stored_ms)
        m->unit->stored_ms = end_ms;
}

int ingest_flush(struct ingest *i, struct error *err)
{
    struct ingest_counts counts = i->counts;
    size_t n = i->messages;
    int r = n ? store_begin(i->options.store, err) : 0;

    i->messages = 0;
    if (n == 0)
        return 0;
    for (size_t k = 0; r == 0 && k < n; k++) {
        r = store_message(i, &i->message[k], &counts, err);
        failpoint(FAILPOINT_ENERGY_PUT);
    }
    if (r == 0)
        r = store_commit(i->options.store, err);
    else
        store_commit(i->options.store, NULL); /* what it holds has no receipt, and does no harm */
    if (r < 0) {
        for (size_t k = 0; k < n; k++)
            i->message[k].unit->stored_boot = 0;
        return r;
    }
    failpoint(FAILPOINT_ENERGY_STORED);
    i->counts = counts;
    for (size_t k = 0; k < n; k++) {
        note_end(&i->message[k], (int64_t)wallclock_ms());
        owe(i, &i->message[k]);
    }
    ingest_receipts(i);
    return 0;
}

void ingest_receipts(struct ingest *i)
{
    size_t sent = 0;

    for (; sent < i->receipts; sent++) {
        _cleanup_free_ char *text = payload_receipt_text(&i->receipt[sent].upto);

        if (!text || i->options.receipt(i->options.arg, i->receipt[sent].unit, text) < 0)
            break;
        failpoint(FAILPOINT_ENERGY_TOLD);
    }
    memmove(i->receipt, i->receipt + sent, (i->receipts - sent) * sizeof(*i->receipt));
    i->receipts -= sent;
}
