/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub's connection to its units: takes their messages, stores their energy and gives receipts,
 * knows what is so now (units.h), and sends down what people and the policy want. The event loop's
 * thread; src/hub/serve owns the loop and shows what stands here to people.
 */
#pragma once

#include "base/error.h"
#include "hub/store/store.h"
#include "hub/tree/in_force.h"
#include "hub/tree/ingest.h"
#include "hub/tree/units.h"

#include <stdint.h>
#include <systemd/sd-event.h>

#define TREE_NAME "tide-hub" /* the common name of the hub's certificate as a client */

#define TREE_PID         "serve.pid" /* in the hub's directory */
#define TREE_ORDER_MAX_S 3600        /* a unit refuses a longer one */

struct tree;

enum tree_what {
    TREE_STATE, /* it came, is lost, or its state says something else */
    TREE_POWER, /* it told its draw or demand */
    TREE_LEASE, /* it got or acknowledged a lease */
    TREE_EVENT, /* it reported something for people */
    TREE_WHAT_MAX
};

/* A person switches something. */
struct tree_order {
    char id[PAYLOAD_WORD_MAX], unit[EDGE_NAME_MAX], name[PAYLOAD_WORD_MAX], by[PAYLOAD_WORD_MAX];
    bool on;
    int64_t until_ms;             /* the unit tries no longer … */
    uint64_t end_ns;              /* … and nobody waits for it longer, whatever the clock says */
    char state[PAYLOAD_WORD_MAX]; /* "ordered", then "done", "refused", "expired", "disobeyed" */
    char text[PAYLOAD_TEXT_MAX];  /* for people */
};

struct tree_options {
    sd_event *event;             /* borrowed */
    struct store *store;         /* borrowed */
    const char *state;           /* the hub's directory */
    const char *host;            /* of the broker … */
    uint16_t port;               /* … and its port */
    const char *ca, *cert, *key; /* paths; NULL: no TLS, on loopback alone */
    const char *policy; /* the file of the first start, until a policy was applied; NULL or absent:
                           none */
    const char *carbon; /* of the grid's carbon intensity (carbon.h); NULL or "": none */
    /*
     * A hub above this one: "HOST[:PORT]" of its broker, our name there, and the directory of what
     * 'tide-power enrol --state DIR' wrote. NULL or "": none.
     */
    const char *parent, *parent_name, *parent_files;
    /*
     * Something of a unit changed. @event: of TREE_EVENT, else NULL. It may not call tree_free().
     * May be NULL.
     */
    void (*changed)(void *arg, const struct unit *u, enum tree_what what,
                    const struct payload_event *event);
    /* A command has its outcome; may be NULL. */
    void (*ordered)(void *arg, const struct tree_order *order);
    /* The policy in force is another one, or has another number; may be NULL. */
    void (*ruled)(void *arg, const struct in_force *policy);
    /* Logs a text for an administrator; @who a unit's name or NULL. */
    void (*say)(void *arg, const char *who, const char *text);
    void *arg;
};

/* Copies the options, and borrows what they point at. Returns 0 or -errno. */
int tree_new(const struct tree_options *options, struct tree **ret, struct error *err);
struct tree *tree_free(struct tree *t); /* takes NULL, returns NULL */

/* Stores what waits; also called by itself a fifth of a second after a message. Returns 0 or
 * -errno: nobody got a receipt. */
int tree_flush(struct tree *t, struct error *err);

const struct units *tree_units(const struct tree *t);
struct ingest_counts tree_counts(const struct tree *t);
bool tree_connected(const struct tree *t); /* to the broker */

/* ---- the policy ---- */

/* NULL: there is none. Stays until the next policy. */
const struct in_force *tree_policy(const struct tree *t);

/*
 * Energy that the units of an area (its index in tree_policy()->areas) used today, as a budget
 * counts it. Returns false: not known, as where no budget is shared.
 */
bool tree_used_today(const struct tree *t, uint32_t area, uint64_t *ret_uj);

/* The values that rules' conditions are compared with: time, price, the grid's carbon intensity. */
struct rule_now tree_now(const struct tree *t);

/* As in_force_put(); then units get it. */
int tree_policy_put(struct tree *t, const char *text, size_t len, uint64_t edition,
                    struct error *err);

/* Reads DIR/policy.yaml again, which SIGHUP does, too. Returns 0 or -errno: the old one stays. */
int tree_policy_reload(struct tree *t, struct error *err);

/*
 * Adds "{area: AREA, unit: NAME}" to the text's `areas`, as an editor would, unless it stands
 * there. Returns 0; -ENOENT: there is no policy; or what tree_policy_put() says: another unit
 * stands there.
 */
int tree_place(struct tree *t, const char *name, const char *area, struct error *err);

/* ---- orders ---- */

/*
 * Has the unit switch @name, if it can within @for_s (1 to TREE_ORDER_MAX_S). Returns 0 with the
 * order's id: its outcome comes by ordered(); -ENOENT: no such unit or switch; -EPERM: people may
 * not switch it; -EHOSTUNREACH: the unit is lost; -EAGAIN: too much waits, or no broker.
 */
int tree_switch(struct tree *t, const char *unit, const char *name, bool on, uint32_t for_s,
                const char *by, char ret_id[PAYLOAD_WORD_MAX], struct error *err);

/* ---- who is a unit ---- */

/* As authority_revoke() and authority_admit(); the broker learns of it at once. */
int tree_revoke(struct tree *t, const char *name, struct error *err);
int tree_admit(struct tree *t, const char *name, struct error *err);

/* Each name that ever had a certificate: when its newest one ends, and whether it is revoked. */
int tree_certificates(struct tree *t,
                      void (*each)(void *arg, const char *name, int64_t until_ms, bool revoked),
                      void *arg, struct error *err);
