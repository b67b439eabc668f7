/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/ingest.h"

#include "base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct message {
    char unit[EDGE_NAME_MAX];
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

static void unreadable(struct ingest *i, const char *unit, const char *what, const struct error *e)
{
    char text[ERROR_TEXT_MAX + 64];

    i->counts.unreadable++;
    snprintf(text, sizeof(text), "its %s cannot be read: %s", what, e->text);
    i->options.say(i->options.arg, unit, text);
}

static void take_state(struct ingest *i, const char *unit, const void *bytes, size_t len)
{
    struct payload_state state;
    struct error e = {0};
    char text[ERROR_TEXT_MAX];

    if (payload_state_read(bytes, len, &state, &e) < 0) {
        unreadable(i, unit, "state", &e);
        return;
    }
    if (state.online)
        snprintf(text, sizeof(text), "connected (%s %s)%s", state.role, state.version,
                 state.synced ? "" : "; its clock is not synchronised");
    else
        snprintf(text, sizeof(text), "lost");
    i->options.say(i->options.arg, unit, text);
}

static int take_energy(struct ingest *i, const char *unit, const void *bytes, size_t len,
                       struct error *err)
{
    struct message *m = &i->message[i->messages];
    struct error e = {0};

    if (payload_energy_read(bytes, len, &m->energy, &e) < 0) {
        unreadable(i, unit, "energy", &e);
        return 0;
    }
    if (m->energy.count == 0)
        return 0;
    strcpy(m->unit, unit);
    if (++i->messages < INGEST_MESSAGES_MAX)
        return 0;
    return ingest_flush(i, err);
}

int ingest_message(struct ingest *i, const char *topic, const void *bytes, size_t len,
                   struct error *err)
{
    char unit[EDGE_NAME_MAX];
    enum topic_leaf leaf;

    if (len == 0 || topic_read(topic, unit, &leaf) < 0)
        return 0;
    i->counts.messages++;
    if (leaf == TOPIC_ENERGY)
        return take_energy(i, unit, bytes, len, err);
    if (leaf == TOPIC_STATE)
        take_state(i, unit, bytes, len);
    return 0;
}

/* ---- the store ---- */

static int store_message(struct ingest *i, const struct message *m, struct ingest_counts *counts,
                         struct error *err)
{
    struct store_put put;
    char text[128];
    int r = store_put(i->options.store, m->unit, m->energy.record, m->energy.count, &put, err);

    if (r < 0)
        return r;
    counts->stored += put.stored;
    counts->known += put.known;
    counts->refused += put.refused;
    if (put.refused) {
        snprintf(text, sizeof(text), "%" PRIu32 " of its records cannot be: they are not stored",
                 put.refused);
        i->options.say(i->options.arg, m->unit, text);
    }
    return 0;
}

/* One receipt says of all earlier ones of the same boot that they are stored. */
static void owe(struct ingest *i, const struct message *m)
{
    const struct outbox_record *last = &m->energy.record[m->energy.count - 1];
    struct receipt r = {.upto = {last->boot, last->seq}};

    strcpy(r.unit, m->unit);
    for (size_t k = i->receipts; k-- > 0;)
        if (strcmp(i->receipt[k].unit, r.unit) == 0 && i->receipt[k].upto.boot == r.upto.boot) {
            if (r.upto.seq > i->receipt[k].upto.seq)
                i->receipt[k].upto.seq = r.upto.seq;
            return;
        }
    if (i->receipts < INGEST_RECEIPTS_MAX)
        i->receipt[i->receipts++] = r;
}

int ingest_flush(struct ingest *i, struct error *err)
{
    struct ingest_counts counts = i->counts;
    size_t n = i->messages;
    int r = n ? store_begin(i->options.store, err) : 0;

    i->messages = 0;
    if (n == 0)
        return 0;
    for (size_t k = 0; r == 0 && k < n; k++)
        r = store_message(i, &i->message[k], &counts, err);
    if (r == 0)
        r = store_commit(i->options.store, err);
    else
        store_commit(i->options.store, NULL); /* what it holds has no receipt, and does no harm */
    if (r < 0)
        return r;
    i->counts = counts;
    for (size_t k = 0; k < n; k++)
        owe(i, &i->message[k]);
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
    }
    memmove(i->receipt, i->receipt + sent, (i->receipts - sent) * sizeof(*i->receipt));
    i->receipts -= sent;
}
