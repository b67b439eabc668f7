/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of every message between a child and its parent (topic.h), in both directions. Unknown
 * members are ignored, so that a newer peer may say more; missing, negative or oversized ones are
 * refused with the member's name. tests/energy/golden holds one message of each kind.
 *
 * A writer returns the text (the caller frees), or NULL without memory. A reader returns 0, -EINVAL
 * with the reason in @err, or -ENOMEM, and writes *ret only for 0. Any thread; used by src/unit and
 * src/hub.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "edge/outbox.h"
#include "edge/topic.h"
#include "power/division/demand.h"
#include "power/division/lease.h"
#include "power/measure/range.h"

#define PAYLOAD_BYTES_MAX   65536
#define PAYLOAD_RECORDS_MAX 64
#define PAYLOAD_TEXT_MAX    256
#define PAYLOAD_WORD_MAX    64
#define PAYLOAD_SWITCHES    32
#define PAYLOAD_NODES_MAX   256
#define PAYLOAD_SHRUNK_JOBS 64         /* of all nodes together */
#define PAYLOAD_UNTOLD      UINT64_MAX /* of a number that may be left out: it was */

/* A relay, as the unit knows it. */
struct payload_switch {
    char name[PAYLOAD_WORD_MAX];
    bool on, known;          /* known: it has told how it is */
    bool always_on, command; /* it never goes off; people may switch it */
};

/* up/state; retained, and the broker's last will of a child is {.online = false}. */
struct payload_state {
    bool online, synced;         /* synced: its wall clock is */
    char role[PAYLOAD_WORD_MAX]; /* "machine", "unit", "hub" */
    char version[PAYLOAD_WORD_MAX];
    uint64_t boot, policy; /* the number of its policy; 0: none */
    uint32_t switches;
    struct payload_switch item[PAYLOAD_SWITCHES];
    /* Each may be PAYLOAD_UNTOLD: no sensor, nothing caps it, no budget is in force. */
    uint64_t absent_s, cap_uw, budget_uj, budget_used_uj;
};
char *payload_state_text(const struct payload_state *s);
int payload_state_read(const void *bytes, size_t len, struct payload_state *ret, struct error *err);

/*
 * up/energy: records of one boot, by rising seq. @after: the last seq of the message before it; 0:
 * none before it waits for a receipt. A parent that has not stored up to there has missed messages.
 */
struct payload_energy {
    uint64_t after;
    size_t count;
    struct outbox_record record[PAYLOAD_RECORDS_MAX];
};
char *payload_energy_text(const struct payload_energy *e);
int payload_energy_read(const void *bytes, size_t len, struct payload_energy *ret,
                        struct error *err);

/* up/demand: what the child would do with watts, and what it draws. */
struct payload_demand {
    struct demand demand; /* passed demand_check(), or has no points */
    uint64_t floor_uw;
    struct power_range draw; /* POWER_UNKNOWN: not told */
};
char *payload_demand_text(const struct payload_demand *d);
int payload_demand_read(const void *bytes, size_t len, struct payload_demand *ret,
                        struct error *err);

/*
 * up/shrunk: whose jobs have fewer cores because of a cap; told again while any has. Jobs with
 * their users are personal data: only of machines that tell their users' energy, too.
 */
struct payload_shrunk_node {
    char name[EDGE_NAME_MAX];
    uint32_t jobs, cores; /* cores: fewer, of all these jobs */
};
struct payload_shrunk_job {
    char node[EDGE_NAME_MAX], name[PAYLOAD_WORD_MAX], user[PAYLOAD_WORD_MAX];
    uint32_t cores;
};
struct payload_shrunk {
    uint32_t nodes, jobs;
    struct payload_shrunk_node node[PAYLOAD_NODES_MAX];
    struct payload_shrunk_job job[PAYLOAD_SHRUNK_JOBS];
};
#define PAYLOAD_SHRUNK_AGAIN_S 30  /* so often it is told */
#define PAYLOAD_SHRUNK_OLD_S   100 /* nobody believes an older one */
char *payload_shrunk_text(const struct payload_shrunk *s);
int payload_shrunk_read(const void *bytes, size_t len, struct payload_shrunk *ret,
                        struct error *err);

/* up/ask: the child lives and wants its lease renewed. */
struct payload_ask {
    uint64_t boot, stamp_ns;
};
char *payload_ask_text(const struct payload_ask *a);
int payload_ask_read(const void *bytes, size_t len, struct payload_ask *ret, struct error *err);

/* up/ack: the child draws no more than the lease says; kept false: it does not manage to. */
struct payload_ack {
    uint64_t boot, number, uw;
    bool kept;
};
char *payload_ack_text(const struct payload_ack *a);
int payload_ack_read(const void *bytes, size_t len, struct payload_ack *ret, struct error *err);

/* up/event: for people. */
struct payload_event {
    uint64_t time_ms;
    char type[PAYLOAD_WORD_MAX]; /* "switch", "cap", "defiant", "late", "refused", "gap" */
    char text[PAYLOAD_TEXT_MAX];
    char *data; /* a JSON object as text; NULL: none. A reader's caller frees it */
};
char *payload_event_text(const struct payload_event *e);
int payload_event_read(const void *bytes, size_t len, struct payload_event *ret, struct error *err);

/* down/lease */
char *payload_lease_text(const struct lease_message *m);
int payload_lease_read(const void *bytes, size_t len, struct lease_message *ret, struct error *err);

/* down/reading: what a meter of the parent's tells of the child. Either value may be missing. */
struct payload_reading {
    char name[PAYLOAD_WORD_MAX]; /* of the meter */
    bool has_uw, has_uj, slow;   /* slow: it may be a minute old */
    uint64_t uw, uj;             /* uj: the meter's own counter */
    uint32_t error_permille;     /* at most 1000 */
};
char *payload_reading_text(const struct payload_reading *m);
int payload_reading_read(const void *bytes, size_t len, struct payload_reading *ret,
                         struct error *err);

/*
 * down/receipt: all records of the boot up to seq are stored. 0: the parent has missed messages,
 * and wants all records without a receipt again.
 */
struct payload_receipt {
    uint64_t boot, seq;
};
char *payload_receipt_text(const struct payload_receipt *r);
int payload_receipt_read(const void *bytes, size_t len, struct payload_receipt *ret,
                         struct error *err);

/* down/cmd, behind its seal: a person switches something. */
struct payload_cmd {
    char unit[EDGE_NAME_MAX], id[PAYLOAD_WORD_MAX], name[PAYLOAD_WORD_MAX], by[PAYLOAD_WORD_MAX];
    uint64_t until_ms;
    bool on;
};
char *payload_cmd_text(const struct payload_cmd *c);
int payload_cmd_read(const void *bytes, size_t len, struct payload_cmd *ret, struct error *err);
