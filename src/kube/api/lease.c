/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/lease.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LENGTH_MAX_S 3600 /* of others; longer is nonsense that would lock everybody out */

/* ---- the decisions ---- */

static void copy_text(char *to, size_t size, const json_t *value)
{
    const char *text = json_string_value(value);

    snprintf(to, size, "%s", text ? text : "");
}

static void read_record(struct lease_rule *rule, const json_t *record)
{
    const json_t *spec = json_object_get(record, "spec");
    json_int_t length = json_integer_value(json_object_get(spec, "leaseDurationSeconds"));

    rule->exists = true;
    copy_text(rule->version, sizeof(rule->version),
              json_object_get(json_object_get(record, "metadata"), "resourceVersion"));
    copy_text(rule->holder, sizeof(rule->holder), json_object_get(spec, "holderIdentity"));
    copy_text(rule->renewed, sizeof(rule->renewed), json_object_get(spec, "renewTime"));
    copy_text(rule->acquired, sizeof(rule->acquired), json_object_get(spec, "acquireTime"));
    rule->transitions = json_integer_value(json_object_get(spec, "leaseTransitions"));
    rule->length_ns = length > 0 && length <= LENGTH_MAX_S ? (uint64_t)length * NS_PER_S
                                                           : rule->times.duration_ns;
}

void lease_saw(struct lease_rule *rule, const json_t *record, uint64_t now)
{
    struct lease_rule before = *rule;

    if (!record) {
        rule->exists = false;
        rule->renewed_ns = 0;
        rule->holder[0] = '\0';
        return;
    }
    read_record(rule, record);
    if (!before.exists || strcmp(before.holder, rule->holder) != 0 ||
        strcmp(before.renewed, rule->renewed) != 0)
        rule->seen_ns = now;
    if (strcmp(rule->holder, rule->me) != 0)
        rule->renewed_ns = 0;
}

void lease_wrote(struct lease_rule *rule, const json_t *record, uint64_t sent_ns, uint64_t now)
{
    read_record(rule, record);
    rule->seen_ns = now;
    rule->renewed_ns = strcmp(rule->holder, rule->me) == 0 ? sent_ns : 0;
}

bool lease_held(const struct lease_rule *rule, uint64_t now)
{
    return rule->renewed_ns != 0 && now - rule->renewed_ns < rule->times.deadline_ns;
}

enum lease_move lease_next(const struct lease_rule *rule, uint64_t now)
{
    if (!rule->exists)
        return LEASE_CREATE;
    if (strcmp(rule->holder, rule->me) == 0)
        return LEASE_RENEW;
    if (!rule->holder[0] || now - rule->seen_ns >= rule->length_ns)
        return LEASE_TAKE;
    return LEASE_LOOK;
}

static void micro_time(uint64_t wall_us, char ret[40])
{
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm tm;
    size_t len;

    gmtime_r(&seconds, &tm);
    len = strftime(ret, 40, "%FT%T", &tm);
    snprintf(ret + len, 40 - len, ".%06uZ", (unsigned)(wall_us % 1000000));
}

json_t *lease_write(const struct lease_rule *rule, enum lease_move move, const char *name,
                    uint64_t wall_us)
{
    bool renews = move == LEASE_RENEW && rule->acquired[0];
    char now[40];
    json_t *object;

    micro_time(wall_us, now);
    object = json_pack(
        "{s:s,s:s,s:{s:s},s:{s:s,s:I,s:s,s:s,s:I}}", "apiVersion", "coordination.k8s.io/v1", "kind",
        "Lease", "metadata", "name", name, "spec", "holderIdentity", rule->me,
        "leaseDurationSeconds", (json_int_t)(rule->times.duration_ns / NS_PER_S), "acquireTime",
        renews ? rule->acquired : now, "renewTime", now, "leaseTransitions",
        (json_int_t)(move == LEASE_TAKE ? rule->transitions + 1 : rule->transitions));
    /* With the version that the decision rests on: of two who try, one succeeds. */
    if (object && move != LEASE_CREATE &&
        json_object_set_new(json_object_get(object, "metadata"), "resourceVersion",
                            json_string(rule->version)) < 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- the lease ---- */

struct lease {
    struct client *client;
    sd_event_source *timer, *deadline;
    lease_fn *fn;
    void *arg;
    void (*released)(void *arg);
    void *released_arg;
    int64_t call;
    uint64_t sent_ns;
    unsigned seed;
    bool leading; /* as told last */
    bool ending;  /* gives the lease back after the present answer */
    bool looked;  /* has read it once more for that, as somebody had changed it */
    struct lease_rule rule;
    char name[254], told[LEASE_HOLDER_MAX];
    char path[640]; /* of the collection */
};

static void step(struct lease *l);
static void give_back(struct lease *l);

static void tell(struct lease *l)
{
    bool leading = lease_held(&l->rule, clock_boot_ns());

    if (leading == l->leading && strcmp(l->told, l->rule.holder) == 0)
        return;
    l->leading = leading;
    snprintf(l->told, sizeof(l->told), "%s", l->rule.holder);
    l->fn(l->arg, leading, l->rule.holder);
}

/* Adds jitter, so that not all ask at once; it only shortens the time that holders promised. */
static void again_later(struct lease *l)
{
    uint64_t us = l->rule.times.retry_ns / NS_PER_US;

    sd_event_source_set_time_relative(l->timer, us - (uint64_t)rand_r(&l->seed) % (us / 5 + 1));
    sd_event_source_set_enabled(l->timer, SD_EVENT_ONESHOT);
    if (l->rule.renewed_ns == 0)
        return;
    sd_event_source_set_time(l->deadline,
                             (l->rule.renewed_ns + l->rule.times.deadline_ns) / NS_PER_US + 1);
    sd_event_source_set_enabled(l->deadline, SD_EVENT_ONESHOT);
}

static void on_looked(void *arg, const struct client_answer *answer)
{
    struct lease *l = arg;

    l->call = 0;
    if (answer->code == 0 || answer->code == -ENOENT)
        lease_saw(&l->rule, answer->code == 0 ? answer->body : NULL, clock_boot_ns());
    if (l->ending) {
        give_back(l);
        return;
    }
    if (answer->code == 0 || answer->code == -ENOENT) {
        tell(l);
        if (lease_next(&l->rule, clock_boot_ns()) != LEASE_LOOK) {
            step(l);
            return;
        }
    }
    again_later(l);
}

static void on_wrote(void *arg, const struct client_answer *answer)
{
    struct lease *l = arg;

    l->call = 0;
    if (answer->code == 0) {
        lease_wrote(&l->rule, answer->body, l->sent_ns, clock_boot_ns());
    } else if (answer->code == -EAGAIN || answer->code == -EEXIST || answer->code == -ENOENT) {
        l->rule.version[0] = '\0'; /* somebody else was quicker: look, in the next step */
    }
    if (l->ending) {
        give_back(l);
        return;
    }
    tell(l);
    again_later(l);
}

static int64_t look(struct lease *l)
{
    char path[900];
    struct client_request request = {.verb = CLIENT_GET,
                                     .path = path,
                                     .done = on_looked,
                                     .arg = l,
                                     .timeout_ms =
                                         (unsigned)(l->rule.times.deadline_ns / 2 / NS_PER_MS),
                                     .urgent = true};

    snprintf(path, sizeof(path), "%s/%s", l->path, l->name);
    return client_send(l->client, &request);
}

static int64_t write_record(struct lease *l, enum lease_move move, json_t *body, client_done *done)
{
    char path[900];
    struct client_request request = {.verb = move == LEASE_CREATE ? CLIENT_POST : CLIENT_MERGE,
                                     .path = path,
                                     .body = body,
                                     .done = done,
                                     .arg = l,
                                     .timeout_ms =
                                         (unsigned)(l->rule.times.deadline_ns / 2 / NS_PER_MS),
                                     .urgent = true};

    snprintf(path, sizeof(path), "%s%s%s", l->path, move == LEASE_CREATE ? "" : "/",
             move == LEASE_CREATE ? "" : l->name);
    return body ? client_send(l->client, &request) : -ENOMEM;
}

/*
 * The holder writes without looking. Everybody else looks first, since a decision must not rest on
 * a record from before the last pause.
 */
static void step(struct lease *l)
{
    uint64_t now = clock_boot_ns();
    enum lease_move move = lease_next(&l->rule, now);
    bool looked = l->rule.version[0] || !l->rule.exists;
    int64_t r;

    if (move == LEASE_LOOK || !looked) {
        r = look(l);
    } else {
        json_t *body = lease_write(&l->rule, move, l->name, clock_real_ms() * 1000);

        l->sent_ns = now;
        r = write_record(l, move, body, on_wrote);
        json_decref(body);
    }
    if (r < 0)
        again_later(l);
    else
        l->call = r;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct lease *l = arg;

    tell(l);
    if (l->call)
        return 0; /* it has a deadline of its own */
    if (lease_next(&l->rule, clock_boot_ns()) != LEASE_RENEW)
        l->rule.version[0] = '\0', l->rule.exists = true;
    step(l);
    return 0;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
    tell(arg);
    return 0;
}

/* Unlike that of a process before us with the same name: its lease is not ours. */
static int make_identity(struct lease *l, const char *identity)
{
    char host[128] = "";
    unsigned char random[8];
    int len;

    if (identity) {
        len = snprintf(l->rule.me, sizeof(l->rule.me), "%s", identity);
        return len < (int)sizeof(l->rule.me) ? 0 : -ENAMETOOLONG;
    }
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -EIO;
    gethostname(host, sizeof(host) - 1);
    len = snprintf(l->rule.me, sizeof(l->rule.me), "%s_", host);
    for (size_t i = 0; i < sizeof(random); i++)
        len += snprintf(l->rule.me + len, sizeof(l->rule.me) - (size_t)len, "%02x", random[i]);
    return 0;
}

static struct lease_times times_of(const struct lease_options *o)
{
    struct lease_times t = o->times;

    t.duration_ns = t.duration_ns ? t.duration_ns : LEASE_DURATION_S * NS_PER_S;
    t.deadline_ns = t.deadline_ns ? t.deadline_ns : LEASE_DEADLINE_S * NS_PER_S;
    t.retry_ns = t.retry_ns ? t.retry_ns : LEASE_RETRY_S * NS_PER_S;
    return t;
}

int lease_new(struct client *client, sd_event *event, const struct lease_options *options,
              lease_fn *fn, void *arg, struct lease **ret)
{
    struct lease *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return -ENOMEM;
    l->client = client;
    l->fn = fn;
    l->arg = arg;
    l->seed = (unsigned)clock_boot_ns();
    l->rule.times = times_of(options);
    l->rule.exists = true; /* somebody's, for all we know */
    snprintf(l->name, sizeof(l->name), "%s", options->name);
    snprintf(l->path, sizeof(l->path), "/apis/coordination.k8s.io/v1/namespaces/%s/leases",
             options->name_space);
    r = make_identity(l, options->identity);
    if (r == 0)
        r = sd_event_add_time(event, &l->timer, CLOCK_BOOTTIME, 0, 1000, on_timer, l);
    if (r >= 0)
        r = sd_event_add_time(event, &l->deadline, CLOCK_BOOTTIME, 0, 1000, on_deadline, l);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->deadline, SD_EVENT_OFF);
    if (r < 0) {
        lease_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

struct lease *lease_free(struct lease *l)
{
    if (!l)
        return NULL;
    client_cancel(l->client, l->call);
    sd_event_source_disable_unref(l->timer);
    sd_event_source_disable_unref(l->deadline);
    free(l);
    return NULL;
}

bool lease_leading(const struct lease *l)
{
    return !l->ending && lease_held(&l->rule, clock_boot_ns());
}

static void on_released(void *arg, const struct client_answer *answer)
{
    struct lease *l = arg;

    l->call = 0;
    if (answer->code == -EAGAIN && !l->looked) {
        l->rule.version[0] = '\0';
        give_back(l);
    } else {
        l->released(l->released_arg);
    }
}

static void give_back(struct lease *l)
{
    bool held = lease_held(&l->rule, clock_boot_ns());
    json_t *body = NULL;
    int64_t r = -ENOENT;

    if (held && !l->rule.version[0] && !l->looked) {
        l->looked = true;
        r = look(l);
    } else if (held && l->rule.version[0]) {
        body = json_pack("{s:{s:s},s:{s:s,s:i}}", "metadata", "resourceVersion", l->rule.version,
                         "spec", "holderIdentity", "", "leaseDurationSeconds", 1);
        r = write_record(l, LEASE_RENEW, body, on_released);
        json_decref(body);
    }
    if (r < 0)
        l->released(l->released_arg);
    else
        l->call = r;
}

void lease_release(struct lease *l, void (*done)(void *arg), void *arg)
{
    bool again = l->ending;

    l->ending = true;
    l->released = done;
    l->released_arg = arg;
    sd_event_source_set_enabled(l->timer, SD_EVENT_OFF);
    sd_event_source_set_enabled(l->deadline, SD_EVENT_OFF);
    if (again) /* a second request means: do not wait */
        done(arg);
    else if (!l->call)
        give_back(l);
}
