/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/machine/machine.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/muldiv.h"
#include "base/wallclock.h"
#include "edge/payload.h"
#include "edge/shrunk.h"
#include "power/cap/caps.h"
#include "power/division/tenure.h"
#include "unit/log.h"
#include "unit/machine/kubernetes.h"
#include "unit/machine/tided.h"
#include "unit/machine/users.h"

#define ERROR_WORD "system-refused"

/*
 * tided ends a lease so much before the parent counts on it: when a breaker's lease ends, jobs need
 * a moment to shrink.
 */
#define SHRINK_MS 2000
#define POINTS    5
#define USERS_NS  (60 * NS_PER_S)
#define SHRUNK_NS (5 * NS_PER_S)
#define AGAIN_US  UINT64_C(200000) /* tided is told again of a lease that is not kept yet */

static const char *const parts[POINTS] = {"machine", "part:jobs", "part:system", "part:idle",
                                          "part:unattributed"};

/* One of tided's totals, which begin anew when its records are lost; ours never fall. */
struct total {
    struct energy_range sum, last; /* ours; tided's when it told last */
    uint64_t stored_uj; /* tided's of the last record before this process began; 0: none */
    bool known;         /* this process has heard tided's: `last` counts, and stored_uj no more */
    uint64_t told_ns, told_gap_ms;
};

struct machine {
    const struct unit_config *config;
    struct tided *tided;
    struct kubernetes *kubernetes; /* NULL: no cluster is told */
    struct users *users;           /* NULL: nobody's energy is told */
    uint64_t users_ns;             /* when tided was asked for it */
    uint64_t shrunk_ns;            /* … who has fewer cores */
    struct shrunk_told shrunk;
    struct outbox *outbox;
    machine_send send;
    void *arg;
    struct tenure tenure;
    struct lease_message lease; /* the newest that was taken */
    bool wanted, kept;          /* tided has to be told; tided keeps it */
    struct lease_message told;  /* tided was told last … */
    bool asking;                /* … and has not answered yet */
    sd_event_source *again;     /* tells tided again that has not kept it yet */
    uint64_t late;              /* number of the lease that the parent knows not to be kept yet */
    uint64_t asked_ns;
    struct total total[POINTS];
    uint64_t draw_uw;  /* 0: not known */
    char problem[128]; /* last said */
};

static void complain(struct machine *m, const char *text)
{
    if (strcmp(m->problem, text) == 0)
        return;
    snprintf(m->problem, sizeof(m->problem), "%s", text);
    if (text[0])
        unit_log("tided: %s (tide why tided-refuses)", m->problem);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static void acknowledge(struct machine *m, bool kept)
{
    struct payload_ack ack = {
        .boot = m->lease.boot, .number = m->lease.number, .uw = m->lease.uw, .kept = kept};

    m->send(m->arg, TOPIC_ACK, payload_ack_text(&ack));
}

static bool same_lease(const struct lease_message *a, const struct lease_message *b)
{
    return a->number == b->number && a->stamp_ns == b->stamp_ns;
}

/* tided counts the rest of the lease from when it is told. */
static void tell_tided(struct machine *m)
{
    uint64_t now = clock_boot_ns(), left_ms = sub_sat(m->tenure.until_ns, now) / NS_PER_MS;
    struct lease_message rest = m->lease;

    if (m->asking || !m->wanted)
        return;
    if (left_ms <= SHRINK_MS) { /* the next one is under way */
        m->wanted = false;
        return;
    }
    rest.ttl_ms = left_ms - SHRINK_MS;
    if (rest.uw > CAP_OPEN)
        rest.uw = CAP_OPEN;
    if (rest.uw == 0)
        rest.uw = 1; /* tided knows no cap of 0; as little as it can is the same */
    if (rest.floor_uw > rest.uw)
        rest.floor_uw = rest.uw;
    m->asking = true;
    m->told = m->lease;
    tided_ask(m->tided, TIDED_LEASE, payload_lease_text(&rest));
}

void machine_got_lease(struct machine *m, const struct mqtt_message *message)
{
    struct lease_message lease;
    struct error err;
    bool again;

    if (payload_lease_read(message->bytes, message->len, &lease, &err) < 0) {
        unit_err_of(&err, "a message of the parent is ignored: %s", err.text);
        return;
    }
    again = same_lease(&lease, &m->lease);
    if (tenure_take(&m->tenure, &lease, clock_boot_ns()) < 0)
        return; /* late or overtaken: both are normal */
    if (again && m->kept) {
        acknowledge(m, true); /* the first acknowledgement was lost */
        return;
    }
    if (again)
        return; /* tided is at it */
    m->lease = lease;
    m->wanted = true;
    m->kept = false;
    tell_tided(m);
}

static void reading_answered(struct machine *m, int status, const char *body)
{
    if (status != 200)
        complain(m, body);
}

static void lease_answered(struct machine *m, int status, const char *body)
{
    m->asking = false;
    if (status != 200 && status != 202)
        complain(m, body);
    if (!same_lease(&m->told, &m->lease)) {
        tell_tided(m); /* another one came meanwhile; what tided said is not about it */
    } else if (status == 200 && m->wanted) {
        m->wanted = false;
        m->kept = true;
        complain(m, "");
        acknowledge(m, true);
    } else if (status == 202) {
        if (m->late != m->lease.number)
            acknowledge(m, false);
        m->late = m->lease.number;
        sd_event_source_set_time_relative(m->again, AGAIN_US);
        sd_event_source_set_enabled(m->again, SD_EVENT_ONESHOT);
    }
}

static int on_again(sd_event_source *source, uint64_t usec, void *arg)
{
    tell_tided(arg);
    return 0;
}

/* ---- readings -------------------------------------------------------------------------------- */

void machine_reading(struct machine *m, const struct payload_reading *reading)
{
    json_t *j = json_pack("{s:s, s:s, s:b, s:i}", "name", reading->name, "covers", "machine",
                          "slow", reading->slow, "error_permille", (int)reading->error_permille);

    if (j && reading->has_uw)
        json_object_set_new(j, "uw", json_integer((json_int_t)reading->uw));
    if (j && reading->has_uj)
        json_object_set_new(j, "uj", json_integer((json_int_t)reading->uj));
    if (j)
        tided_ask(m->tided, TIDED_READING, json_dumps(j, JSON_COMPACT));
    json_decref(j);
}

void machine_got_reading(struct machine *m, const struct mqtt_message *message)
{
    struct payload_reading reading;
    struct error err;

    if (message->retained) /* nobody knows how old it is */
        return;
    if (payload_reading_read(message->bytes, message->len, &reading, &err) < 0)
        unit_err_of(&err, "a message of the parent is ignored: %s", err.text);
    else
        machine_reading(m, &reading);
}

/* ---- what tided tells ------------------------------------------------------------------------ */

static void demand_answered(struct machine *m, int status, const char *body)
{
    struct payload_demand demand;
    struct error err;

    if (status != 200) {
        complain(m, body);
        return;
    }
    if (payload_demand_read(body, strlen(body), &demand, &err) < 0)
        complain(m, err.text);
    else
        m->send(m->arg, TOPIC_DEMAND, payload_demand_text(&demand));
}

static uint64_t number(const json_t *j, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(j, name));

    return n > 0 ? (uint64_t)n : 0;
}

static struct energy_range read_energy(const json_t *j)
{
    const char *word = json_string_value(json_object_get(j, "basis"));
    struct energy_range e = {number(j, "uj"), number(j, "low_uj"), number(j, "high_uj"), 0};

    for (uint32_t basis = 0; word && basis < POWER_BASIS_MAX; basis++)
        if (strcmp(word, power_basis_name((enum power_basis)basis)) == 0)
            e.basis = basis;
    return e;
}

/* Energy since tided's last report, or since the last record before this process began. */
static struct energy_range used(const struct total *t, const struct energy_range *now)
{
    struct energy_range more = *now;

    if (!t->known && (!t->stored_uj || now->uj < t->stored_uj)) {
        more.uj = more.low_uj = more.high_uj = 0; /* nobody knows of whom */
    } else if (!t->known) {
        more.uj = now->uj - t->stored_uj;
        more.low_uj = mul_div(now->low_uj, more.uj, now->uj);
        more.high_uj = mul_div_up(now->high_uj, more.uj, now->uj);
    } else if (now->uj >= t->last.uj) { /* else tided began anew, and all is new */
        more.uj = now->uj - t->last.uj;
        more.low_uj = sub_sat(now->low_uj, t->last.low_uj);
        more.high_uj = sub_sat(now->high_uj, t->last.high_uj);
    }
    more.low_uj = more.low_uj < more.uj ? more.low_uj : more.uj;
    more.high_uj = more.high_uj > more.uj ? more.high_uj : more.uj;
    return more;
}

static void put(struct machine *m, int i, const struct energy_range *now, uint64_t gap_ms)
{
    struct total *t = &m->total[i];
    uint64_t ns = clock_now_ns(), ms = wallclock_ms();
    uint64_t lasted_ms = t->told_ns ? (ns - t->told_ns) / NS_PER_MS : 0;
    uint64_t gap = t->known ? sub_sat(gap_ms, t->told_gap_ms) : 0;
    struct outbox_record r = {.from_ms = sub_sat(ms, lasted_ms), .to_ms = ms, .mono_ns = ns};

    if (now->basis == POWER_UNKNOWN) {
        gap = lasted_ms;
    } else {
        struct energy_range more = used(t, now);

        energy_add(&t->sum, &more);
        t->last = *now;
        t->known = true;
    }
    r.total = t->sum;
    r.raw_uj = t->known ? t->last.uj : t->stored_uj;
    r.gap_ms = (uint32_t)(gap < lasted_ms ? gap : lasted_ms);
    t->told_gap_ms = gap_ms;
    t->told_ns = ns;
    snprintf(r.point, sizeof(r.point), "%s", parts[i]);
    outbox_put(m->outbox, &r);
}

static void power_answered(struct machine *m, int status, const char *body)
{
    json_t *j = status == 200 ? json_loads(body, 0, NULL) : NULL;
    const json_t *machine = json_object_get(j, "energy"), *of = json_object_get(j, "parts");
    uint64_t gap_ms = number(machine, "gap_ms");

    if (!machine || !of) {
        complain(m, status == 200 ? "its answer about power is not understood" : body);
        json_decref(j);
        return;
    }
    m->draw_uw = number(json_object_get(j, "power"), "uw");
    for (int i = 0; i < POINTS; i++) {
        const json_t *part = i ? json_object_get(of, parts[i] + strlen("part:")) : machine;
        struct energy_range e = read_energy(part);

        put(m, i, &e, gap_ms);
    }
    json_decref(j);
}

/* Without an answer nobody is told, and what was told ends. */
static void cap_answered(struct machine *m, int status, const char *body)
{
    json_t *j = status == 200 ? json_loads(body, 0, NULL) : NULL;
    const json_t *whole = json_object_get(j, "whole_mcpu");
    const char *state = json_string_value(json_object_get(j, "state"));

    if (json_is_integer(whole) && json_integer_value(whole) >= 0)
        kubernetes_tell(m->kubernetes, &(struct kubernetes_news){json_integer_value(whole),
                                                                 number(j, "uw"), m->draw_uw});
    else if (state && strcmp(state, "none") == 0)
        kubernetes_tell(m->kubernetes, &(struct kubernetes_news){.mcpu = KUBERNETES_NO_CAP});
    else if (status != 200)
        complain(m, body);
    json_decref(j);
}

static void users_answered(struct machine *m, int status, const char *body)
{
    struct error err = {0};

    if (status != 200)
        complain(m, body);
    else if (users_take(m->users, body, &err) < 0)
        complain(m, err.text);
}

/* A tided that does not know yet who was shrunk tells nothing. */
static void shrunk_answered(struct machine *m, int status, const char *body)
{
    struct payload_shrunk *now = status == 200 ? calloc(1, sizeof(*now)) : NULL;

    if (now && shrunk_read(body, m->config->name, m->config->tells_users, now) < 0)
        complain(m, "its answer about the jobs that a cap shrinks is not understood");
    else if (now)
        shrunk_tell(&m->shrunk, now, clock_boot_ns(), m->send, m->arg);
    free(now);
}

static void answered(void *arg, enum tided_kind kind, int status, const char *body)
{
    if (kind == TIDED_LEASE)
        lease_answered(arg, status, body);
    else if (kind == TIDED_DEMAND)
        demand_answered(arg, status, body);
    else if (kind == TIDED_CAP)
        cap_answered(arg, status, body);
    else if (kind == TIDED_USERS)
        users_answered(arg, status, body);
    else if (kind == TIDED_SHRUNK)
        shrunk_answered(arg, status, body);
    else if (kind == TIDED_READING)
        reading_answered(arg, status, body);
    else
        power_answered(arg, status, body);
}

/* ---- time ------------------------------------------------------------------------------------ */

void machine_tick(struct machine *m)
{
    uint64_t now = clock_boot_ns();

    tided_ask(m->tided, TIDED_POWER, NULL);
    if (m->kubernetes)
        tided_ask(m->tided, TIDED_CAP, NULL);
    if (!m->send)
        return;
    tided_ask(m->tided, TIDED_DEMAND, NULL);
    if (m->users && (m->users_ns == 0 || now - m->users_ns >= USERS_NS)) {
        m->users_ns = now;
        tided_ask(m->tided, TIDED_USERS, NULL);
    }
    if (now - m->shrunk_ns >= SHRUNK_NS) {
        m->shrunk_ns = now;
        tided_ask(m->tided, TIDED_SHRUNK, NULL);
    }
    tell_tided(m);
    if (m->asked_ns && now - m->asked_ns < LEASE_ASK_MS * NS_PER_MS)
        return;
    if (m->send(m->arg, TOPIC_ASK,
                payload_ask_text(&(struct payload_ask){.boot = m->tenure.boot, .stamp_ns = now})) ==
        0)
        m->asked_ns = now;
}

/* ---- begin and end --------------------------------------------------------------------------- */

int machine_new(sd_event *event, const struct unit_config *config, struct outbox *outbox,
                machine_send send, void *arg, struct machine **ret, struct error *err)
{
    struct machine *m = calloc(1, sizeof(*m));
    struct outbox_record last;
    uint64_t boot;
    int r;

    if (!m)
        return error_set(err, -ENOMEM, "out of memory: no connection to tided");
    m->config = config;
    m->outbox = outbox;
    m->send = send;
    m->arg = arg;
    if (getrandom(&boot, sizeof(boot), 0) != sizeof(boot)) {
        free(m);
        return error_set(err, -EIO, "no random numbers");
    }
    m->tenure.boot = boot >> 1 | 1;
    for (int i = 0; i < POINTS; i++) {
        if (outbox_last(outbox, parts[i], &last) == 0) {
            m->total[i].sum = last.total;
            m->total[i].stored_uj = last.raw_uj;
        }
    }
    if (config->tells_users && users_new(outbox, &m->users) < 0) {
        machine_free(m);
        return error_set(err, -ENOMEM, "out of memory: users' energy cannot be reported");
    }
    r = config->kubernetes.named ? kubernetes_new(event, &config->kubernetes, &m->kubernetes, err)
                                 : 0;
    if (r == 0 && (sd_event_add_time_relative(event, &m->again, CLOCK_MONOTONIC, AGAIN_US, 0,
                                              on_again, m) < 0 ||
                   sd_event_source_set_enabled(m->again, SD_EVENT_OFF) < 0))
        r = error_set(err, -ENOMEM, "out of memory: no connection to tided");
    if (r == 0 && tided_new(event, config->tided_socket, answered, m, &m->tided) < 0)
        r = error_set(err, -ENOMEM, "out of memory: no connection to tided");
    if (r < 0) {
        machine_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

struct machine *machine_free(struct machine *m)
{
    if (!m)
        return NULL;
    sd_event_source_disable_unref(m->again);
    tided_free(m->tided);
    kubernetes_free(m->kubernetes);
    users_free(m->users);
    free(m);
    return NULL;
}
