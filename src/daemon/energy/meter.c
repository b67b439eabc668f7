/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/meter.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "daemon/daemon.h"
#include "daemon/energy/handed.h"
#include "daemon/job/job.h"
#include "host/power/frequency.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "power/measure/counter.h"
#include "power/model/stand_in.h"
#include "power/model/watts.h"
#include "proto/proto.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-sensor"

static_assert(ATTRIBUTION_JOBS_MAX >= PROTO_JOBS_MAX, "all jobs fit");

#define REST_US   (60 * UINT64_C(1000000))
#define REST_MIN  (NS_PER_S)        /* shortest pause at rest, whatever a counter's wrap is */
#define FAST_NS   (100 * NS_PER_MS) /* a source with this period is fast */
#define RETRY_NS  (10 * NS_PER_S)
#define BRIDGE_NS (3 * NS_PER_S)  /* an older reading is not of now */
#define STILL_NS  (10 * NS_PER_S) /* a counter that stands still so long knows nothing */
#define OLD_TIMES 3               /* periods after which a source's watts are old */
#define WALL_TIMES                                                                                 \
    3 /* RAPL has shown 12 to 15 W of 34 W at the wall: an upper bound without a model */

/* A sensor's account. */
struct account {
    struct counter counter;
    struct sensor_reading last; /* time_ns 0: none */
    uint64_t uw;                /* the last reading of a sensor of power */
    uint64_t news_uj, news_ns;  /* energy since the last look, and how long that was */
    bool known;                 /* news_uj is */
};

/* Energy of sensors of one kind over some looks. */
struct tally {
    uint64_t uj;
    bool any, gap; /* there are such sensors; one did not tell */
};

struct meter {
    struct daemon *daemon;
    sd_event_source *timer; /* at rest */
    struct sensors *sensors;
    struct frequency *frequency; /* NULL: all CPUs run at their base */
    struct account account[SENSORS_MAX];
    struct handed handed;
    bool by_handed;             /* a source of these makes up the machine at present */
    bool waiting;               /* … and has told nothing new since the last division */
    bool stood;                 /* a counter has not moved for a whole division */
    uint32_t used[SENSORS_MAX]; /* what makes up the machine … */
    size_t n_used;
    struct energy_range pending; /* … and has used since the last division, … */
    uint64_t pending_gap_ns;     /* … but for this time */
    bool left;                   /* a job has ended since then: some of its CPU time is nobody's */
    uint64_t retry_ns;           /* without a source: when to look for one again */
    uint64_t divided_ns;         /* time of the last division; 0: none */
    uint64_t busy_ns;            /* of all CPUs, then */
    uint64_t paced_ns, paced_busy_ns; /* the same of the last meter_pace(); 0: none since */
    bool split;                       /* readings since the last division were brief */
    struct tally packages;            /* what power limits reach, since the last division */
    struct tally parts;               /* packages and their memory, since then */
    struct tally recent;              /* the same since the last look */
    struct stand_in learnt;
    struct meter_now now;
    struct watts model; /* for idling and bounds, and where no source is; count 0: none */
    struct ledger ledger;
    uint64_t told_ns; /* when `told` was made; 0: never */
    struct meter_told told;
    struct attribution_load load[ATTRIBUTION_JOBS_MAX];
    struct attribution division;
};

/* ---- sources ---- */

static void read_account(struct account *a, const struct sensor *sensor,
                         const struct sensor_reading *r)
{
    enum counter_news news;
    uint64_t before = a->uw;

    a->known = false;
    a->news_ns = r->time_ns - a->counter.time_ns;
    if (r->error == 0 && a->last.time_ns == 0)
        a->counter = (struct counter){.wrap_uj = sensor->wrap_uj, .most_uw = sensor->most_uw};
    a->last = *r;
    if (r->error < 0)
        return;
    if (sensor->counts) {
        news = counter_read(&a->counter, r->time_ns, r->value, &a->news_uj);
    } else {
        a->uw = r->value;
        news = counter_watts(&a->counter, r->time_ns, r->value, before,
                             OLD_TIMES * sensor->period_ns, &a->news_uj);
    }
    a->known = news == COUNTER_OK || news == COUNTER_WRAPPED;
}

/* The energy since the last reading, by all that makes up the machine; UNKNOWN if one does not
 * know. */
static struct energy_range machine_news(const struct meter *m)
{
    struct energy_range sum = {0}, part;

    for (size_t i = 0; i < m->n_used; i++) {
        const struct account *a = &m->account[m->used[i]];
        const struct sensor *sensor = sensors_at(m->sensors, m->used[i]);
        bool whole = sensor->part == SENSOR_MACHINE || sensor->part == SENSOR_PSYS;

        if (!a->known)
            return (struct energy_range){0};
        part = energy_within(a->news_uj, sensor->error_permille,
                             whole ? POWER_MEASURED : POWER_MODELLED);
        if (!whole)
            part.high_uj = mul_div(part.high_uj, WALL_TIMES, 1);
        energy_add(&sum, &part);
    }
    return sum;
}

static bool same_sources(const struct meter *m, const uint32_t *used, size_t n)
{
    return n == m->n_used && memcmp(used, m->used, n * sizeof(used[0])) == 0;
}

/* Reads all sensors. Returns what the machine has used since the last reading. */
static struct energy_range read_sensors(struct meter *m, uint64_t now)
{
    struct sensor_reading reading[SENSORS_MAX];
    uint32_t used[SENSORS_MAX];
    size_t n;

    sensors_read(m->sensors, now, reading);
    for (size_t i = 0; i < sensors_count(m->sensors); i++)
        read_account(&m->account[i], sensors_at(m->sensors, i), &reading[i]);
    n = sensors_machine(m->sensors, used, SENSORS_MAX);
    if (!same_sources(m, used, n)) { /* another source's interval has another begin */
        memcpy(m->used, used, n * sizeof(used[0]));
        m->n_used = n;
        return (struct energy_range){0};
    }
    return machine_news(m);
}

/* ---- one look ---- */

static void tally_add(struct tally *t, const struct account *a)
{
    t->any = true;
    t->gap |= !a->known;
    t->uj = add_sat(t->uj, a->known ? a->news_uj : 0);
}

/* Ends a tally. Returns its mean power, 0 where nothing told it. */
static uint64_t tally_end(struct tally *t, uint64_t interval_ns)
{
    uint64_t uw = t->any && !t->gap && interval_ns ? mul_div(t->uj, NS_PER_S, interval_ns) : 0;

    *t = (struct tally){0};
    return uw < POWER_UW_MAX ? uw : 0;
}

/* Adds up the packages' energy since the last division; a limit of theirs reaches no more. */
static void read_packages(struct meter *m)
{
    uint32_t part[SENSORS_MAX];
    size_t n = sensors_packages(m->sensors, part, SENSORS_MAX);

    m->parts.gap |= n == 0;
    m->recent.gap |= n == 0;
    for (size_t i = 0; i < n; i++) {
        tally_add(&m->parts, &m->account[part[i]]);
        tally_add(&m->recent, &m->account[part[i]]);
    }
    for (size_t i = 0; i < sensors_count(m->sensors); i++) {
        const struct sensor *sensor = sensors_at(m->sensors, i);

        if (sensor->kind == SENSOR_POWERCAP && sensor->part == SENSOR_PACKAGE)
            tally_add(&m->packages, &m->account[i]);
    }
}

/* A meter before the power supply is better than all but a sensor there, or a file that was named.
 */
static struct handed_source *find_handed(struct meter *m, uint64_t now)
{
    const struct sensor *own = m->n_used ? sensors_at(m->sensors, m->used[0]) : NULL;

    return own && own->part == SENSOR_MACHINE ? NULL : handed_best(&m->handed, now);
}

/* Its readings are seconds apart: until the next one nothing is divided. */
static void take_handed(struct meter *m, struct handed_source *h, uint64_t now)
{
    struct energy_range second = energy_within(h->uw, h->sensor.error_permille, POWER_MEASURED);

    if (!m->by_handed) /* until now others have told what it tells of the time before */
        h->pending = (struct energy_range){0};
    m->by_handed = true;
    energy_add(&m->pending, &h->pending);
    h->pending = (struct energy_range){0};
    m->waiting = m->pending.basis == POWER_UNKNOWN;
    m->now.time_ns = now;
    m->now.machine = power_of(&second, NS_PER_S);
    m->now.sensed = !m->waiting;
    m->now.fast = false;
    m->now.slow = h->slow;
    m->now.stood_in = false;
}

/*
 * No machine that runs uses nothing: a coarse counter has not moved yet, or it is one of a virtual
 * machine that never will. Nothing is divided until it moves, or for STILL_NS; then it is a gap.
 */
static bool stands_still(struct meter *m, struct energy_range *news, uint64_t now)
{
    if (news->basis == POWER_UNKNOWN || news->uj > 0)
        return false;
    *news = (struct energy_range){0};
    m->split = true; /* what it jumps by is of all this time */
    m->waiting = !m->by_handed && now - m->divided_ns < STILL_NS;
    if (m->waiting)
        m->now.sensed = false;
    m->stood |= !m->waiting;
    return m->waiting;
}

/* Brief readings have seen already all that the counter has moved by since the last division: what
 * moves it next is used since the last of them. */
static bool was_seen(const struct meter *m, const struct energy_range *news)
{
    return news->basis != POWER_UNKNOWN && news->uj == 0 && !m->by_handed && m->split &&
           m->pending.uj > 0 && m->pending_gap_ns == 0;
}

/*
 * A file's watts are of when they were written. Until others are, their energy counts on, and
 * nothing is divided for STILL_NS: the load would be of another time. A mean with the watts before
 * them would be late.
 */
static void take_written(struct meter *m, uint64_t now)
{
    const struct sensor *sensor = m->n_used == 1 ? sensors_at(m->sensors, m->used[0]) : NULL;
    const struct account *a = &m->account[m->used[0]];
    struct energy_range second;

    if (!sensor || sensor->kind != SENSOR_FILE || sensor->counts || a->uw > sensor->most_uw)
        return;
    second = energy_within(a->uw, sensor->error_permille, POWER_MEASURED);
    m->now.machine = power_of(&second, NS_PER_S);
    if (a->last.old) {
        m->now.sensed = false;
        m->waiting = now - m->divided_ns < STILL_NS;
    }
}

/* @whole: what is pending is divided next. */
static void take_news(struct meter *m, uint64_t now, bool whole)
{
    struct energy_range news = read_sensors(m, now);
    uint64_t pause = m->now.time_ns ? now - m->now.time_ns : 0;
    struct handed_source *h = find_handed(m, now);

    m->now.brief = false;
    read_packages(m);
    if (m->frequency)
        frequency_read(m->frequency);
    if (h) {
        take_handed(m, h, now);
        return;
    }
    if (whole && was_seen(m, &news)) {
        m->waiting = false;
        m->now.sensed = true;
        return;
    }
    if (stands_still(m, &news, now))
        return;
    if (m->by_handed) /* it is away: what was used since its last reading is unknown */
        m->pending_gap_ns += sub_sat(m->now.time_ns, m->divided_ns);
    m->by_handed = m->waiting = m->now.slow = false;
    m->now.time_ns = now;
    m->now.machine = power_of(&news, pause);
    m->now.sensed = news.basis != POWER_UNKNOWN;
    if (m->n_used > 0)
        m->now.fast = sensors_at(m->sensors, m->used[0])->period_ns <= FAST_NS;
    else
        m->now.fast = false;
    energy_add(&m->pending, &news);
    if (news.basis == POWER_UNKNOWN)
        m->pending_gap_ns += pause;
    take_written(m, now);
}

/* CPU time of a job since the last division; false: not known. */
static bool job_time(struct job *j, uint64_t begin_ns, uint64_t most_ns, uint64_t *ret)
{
    const struct usage *u = &j->observed.usage;
    struct job_energy *e = &j->observed.energy;
    bool born = e->looked_ns == 0 && j->met_ns + NS_PER_S >= begin_ns; /* its time began at 0 */
    bool known = u->looked_ns == 0 || ((e->looked_ns || born) && u->cpu_ns >= e->cpu_ns);

    *ret = known && u->looked_ns ? u->cpu_ns - (e->looked_ns ? e->cpu_ns : 0) : 0;
    if (*ret > most_ns) { /* it came with time from before */
        *ret = 0;
        known = false;
    }
    e->cpu_ns = u->cpu_ns;
    e->looked_ns = u->looked_ns;
    return known;
}

/* Fills in the loads of all jobs. Returns their CPU time; *complete: all of it is known. */
static uint64_t take_loads(struct meter *m, uint64_t interval_ns, uint32_t *ret_count,
                           bool *complete)
{
    uint64_t sum = 0, most = mul_div(interval_ns, cpuset_count(&m->daemon->topology.online), 1);
    uint32_t n = 0;

    *complete = !m->left;
    m->left = false;
    for (struct job *j = m->daemon->jobs->first; j; j = j->next, n++) {
        struct cpuset cores;

        *complete &= job_time(j, m->divided_ns, most, &m->load[n].cpu_ns);
        m->load[n].id = j->number;
        m->load[n].speed_permille = m->now.speed_permille;
        if (m->frequency) {
            job_cores(j, &cores);
            m->load[n].speed_permille = frequency_mean(m->frequency, &cores);
        }
        sum += m->load[n].cpu_ns;
    }
    *ret_count = n;
    return sum;
}

static uint32_t load_of(uint64_t busy_ns, uint32_t speed_permille, uint64_t interval_ns)
{
    uint64_t mcpu = mul_div(busy_ns, speed_permille, interval_ns);

    return mcpu > UINT32_MAX ? UINT32_MAX : (uint32_t)mcpu;
}

static void take_told(const struct meter *m, struct meter_told *ret)
{
    ret->now = m->now;
    ret->ledger = m->ledger;
    ret->sources = meter_sources(m, ret->source, SENSORS_MAX);
}

/* ---- where no source tells ---- */

static struct watts_sample sample_of(const struct meter *m, uint32_t load_mcpu, uint64_t parts_uw)
{
    return (struct watts_sample){.sensor_uw = parts_uw,
                                 .busy_mcpu =
                                     (uint32_t)mul_div(load_mcpu, 1000, m->now.speed_permille),
                                 .speed_permille = m->now.speed_permille};
}

static bool sees_machine(const struct meter *m)
{
    const struct sensor *own = m->n_used ? sensors_at(m->sensors, m->used[0]) : NULL;

    return m->by_handed || (own && (own->part == SENSOR_MACHINE || own->part == SENSOR_PSYS));
}

/*
 * Learns from the interval, or makes it up: by what readings taught, else by the curve. Packages
 * are a bound of the machine where nothing better ever told it. A counter that jumps after it stood
 * counts more time than this interval: that is no reading, and a stand-in has counted the energy.
 */
static void make_up(struct meter *m, uint64_t parts_uw, uint64_t interval_ns)
{
    struct watts_sample s = sample_of(m, m->now.load_mcpu, parts_uw);
    const struct power_range nothing = {0};
    struct power_range p;
    bool told = m->pending.basis != POWER_UNKNOWN && m->pending_gap_ns == 0;
    bool jumped = told && m->stood && !m->by_handed;

    if (jumped) {
        m->stood = m->now.sensed = false;
        m->now.machine = nothing;
    }
    stand_in_add(&m->learnt, &s, told && m->now.sensed ? &m->now.machine : &nothing);
    m->now.stood_in = false;
    if (told && !jumped && (sees_machine(m) || m->learnt.basis < POWER_CALIBRATED))
        return;
    p = stand_in_at(&m->learnt, &s);
    if (p.basis == POWER_UNKNOWN && m->n_used == 0 && !m->by_handed)
        p = watts_at(&m->model, m->now.load_mcpu);
    else
        m->now.stood_in = p.basis != POWER_UNKNOWN;
    if (p.basis == POWER_UNKNOWN)
        return;
    m->now.machine = p;
    m->now.sensed = m->now.stood_in && m->learnt.beside;
    m->now.fast = false;
    m->pending = energy_of(&p, interval_ns);
    m->pending_gap_ns = 0;
}

/* Between readings of a slow meter: what the machine draws now, not what it drew then. */
static void bridge(struct meter *m, uint64_t now)
{
    uint64_t busy, past = now - m->paced_ns;
    struct watts_sample s;
    struct power_range p;

    if (m->divided_ns == 0 || past == 0 || proc_read_busy(m->daemon->root, &busy) < 0)
        return;
    s = sample_of(m, load_of(sub_sat(busy, m->paced_busy_ns), m->now.speed_permille, past),
                  tally_end(&m->recent, past));
    m->paced_ns = now;
    m->paced_busy_ns = busy;
    p = stand_in_at(&m->learnt, &s);
    m->now.stood_in = p.basis != POWER_UNKNOWN;
    if (m->now.stood_in)
        m->now.machine = p;
}

/* Divides what is pending among the jobs, or counts the interval as a gap. */
static void divide(struct meter *m, uint64_t now)
{
    struct daemon *d = m->daemon;
    struct attribution_input in = {.jobs = m->load, .interval_ns = now - m->divided_ns};
    uint64_t busy = 0, jobs_ns, parts_uw;
    bool first = m->divided_ns == 0;

    if (!first && in.interval_ns == 0)
        return;
    m->now.speed_permille = frequency_mean(m->frequency, &d->topology.online);
    if (proc_read_busy(d->root, &busy) < 0)
        busy = m->busy_ns;
    in.busy_ns = sub_sat(busy, m->busy_ns);
    in.speed_permille = m->now.speed_permille;
    jobs_ns = take_loads(m, first ? NS_PER_S : in.interval_ns, &in.job_count, &in.complete);
    m->busy_ns = m->paced_busy_ns = busy;
    m->divided_ns = m->paced_ns = now;
    m->now.packages_known = !first && m->packages.any && !m->packages.gap;
    m->now.packages_uw = tally_end(&m->packages, in.interval_ns);
    parts_uw = tally_end(&m->parts, in.interval_ns);
    m->recent = (struct tally){0};
    if (first)
        return;
    if (m->split && m->pending_gap_ns == 0) /* of the same time as the load */
        m->now.machine = power_of(&m->pending, in.interval_ns);
    m->split = false;
    m->now.load_mcpu =
        load_of(in.busy_ns > jobs_ns ? in.busy_ns : jobs_ns, in.speed_permille, in.interval_ns);
    m->now.other_mcpu = load_of(sub_sat(in.busy_ns, jobs_ns), in.speed_permille, in.interval_ns);
    make_up(m, parts_uw, in.interval_ns);
    in.watts = m->model.count ? &m->model : NULL;
    in.watts_at = watts_at;
    in.error_permille = m->model.error_permille;
    in.machine = m->pending;
    m->pending = (struct energy_range){0};
    if (in.machine.basis == POWER_UNKNOWN || attribution_make(&in, &m->division) < 0)
        ledger_gap(d, &m->ledger, in.interval_ns);
    else
        ledger_add(d, &m->ledger, &in.machine, &m->division, in.interval_ns, m->pending_gap_ns);
    m->pending_gap_ns = 0;
    m->now.total = m->ledger.machine;
    m->now.gap_ns = m->ledger.gap_ns;
    if (m->told_ns == 0 || now - m->told_ns >= LEDGER_WINDOW_NS) {
        m->told_ns = now;
        take_told(m, &m->told);
    }
}

/* ---- when ---- */

/* No sensor and no model: nothing is read or counted, and the figures say "unknown". */
static bool is_off(const struct meter *m)
{
    return sensors_count(m->sensors) == 0 && m->model.count == 0 && m->handed.n == 0 &&
           m->learnt.basis == POWER_UNKNOWN;
}

/* Half the longest pause in which no counter can have wrapped unseen, and no watts become old. */
static uint64_t rest_us(const struct meter *m)
{
    uint64_t ns = REST_US * NS_PER_US;

    for (size_t i = 0; i < m->n_used; i++) {
        const struct sensor *sensor = sensors_at(m->sensors, m->used[i]);
        uint64_t pause = sensor->counts ? counter_pause_ns(&m->account[m->used[i]].counter)
                                        : OLD_TIMES * sensor->period_ns;

        ns = pause < ns ? pause : ns;
    }
    ns = ns / 2 > REST_MIN ? ns / 2 : REST_MIN;
    return ns / NS_PER_US;
}

void meter_tick(struct meter *m, bool looked)
{
    uint64_t now = clock_now_ns();
    struct handed_source *h;
    bool whole = looked || !m->daemon->jobs->first;

    if (is_off(m) || (m->n_used == 0 && m->model.count == 0 && m->learnt.basis == POWER_UNKNOWN &&
                      !find_handed(m, now) && now < m->retry_ns))
        return;
    m->retry_ns = now + RETRY_NS;
    take_news(m, now, whole);
    if (!m->waiting && whole) {
        divide(m, now);
        return;
    }
    m->now.sensed = false; /* the load is of another time */
    if (m->waiting && m->by_handed && (h = find_handed(m, now)) &&
        now - h->last.time_ns > BRIDGE_NS)
        bridge(m, now);
}

bool meter_pace(struct meter *m)
{
    uint64_t now = clock_now_ns(), busy, past = now - m->paced_ns;

    if (!m->now.fast || m->by_handed || m->divided_ns == 0 || past == 0 ||
        proc_read_busy(m->daemon->root, &busy) < 0)
        return false;
    take_news(m, now, false);
    m->now.brief = m->split = true;
    m->now.load_mcpu = load_of(sub_sat(busy, m->paced_busy_ns), m->now.speed_permille, past);
    m->paced_ns = now;
    m->paced_busy_ns = busy;
    return true;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct meter *m = arg;

    meter_tick(m, false);
    return sd_event_source_set_time_relative(s, rest_us(m));
}

void meter_rest(struct meter *m, bool resting)
{
    int enabled;

    if (is_off(m) || sd_event_source_get_enabled(m->timer, &enabled) < 0 ||
        (enabled != SD_EVENT_OFF) == resting)
        return;
    if (resting)
        sd_event_source_set_time_relative(m->timer, rest_us(m));
    else
        meter_tick(m, true); /* what was used until now is no job's */
    sd_event_source_set_enabled(m->timer, resting ? SD_EVENT_ON : SD_EVENT_OFF);
}

void meter_refresh(struct meter *m)
{
    if (!m->daemon->jobs->first && clock_now_ns() - m->now.time_ns >= NS_PER_S)
        meter_tick(m, false);
}

static void gone(struct job *j)
{
    if (j->daemon->meter)
        j->daemon->meter->left = true;
}

const struct job_observer meter_observer = {.gone = gone};

/* ---- begin and end ---- */

static int open_root(const struct daemon *d, struct error *err)
{
    int fd = open(d->config.power_root, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? error_set(err, -errno, "power-root: cannot open %.120s: %s",
                              d->config.power_root, strerror(errno))
                  : fd;
}

int meter_new(struct daemon *d, struct meter **ret, struct error *err)
{
    _cleanup_fd_ int root = open_root(d, err);
    struct meter *m;
    int r;

    if (root < 0)
        return root;
    m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    m->daemon = d;
    r = sensors_find(root, d->config.power, &m->sensors, err);
    if (r == 0 && frequency_new(root, &d->topology.online, &m->frequency) == -ENOMEM)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0) {
        r = sd_event_add_time_relative(d->event, &m->timer, CLOCK_MONOTONIC, 0, 100000, on_timer,
                                       m);
        r = r < 0 ? error_set(err, r, "cannot make an event: %s", strerror(-r)) : 0;
    }
    if (r < 0) {
        meter_free(m);
        return r;
    }
    sd_event_source_set_priority(m->timer, SD_EVENT_PRIORITY_NORMAL + 5);
    sd_event_source_set_enabled(m->timer, is_off(m) ? SD_EVENT_OFF : SD_EVENT_ON);
    *ret = m;
    return 0;
}

struct meter *meter_free(struct meter *m)
{
    if (!m)
        return NULL;
    sd_event_source_disable_unref(m->timer);
    sensors_free(m->sensors);
    frequency_free(m->frequency);
    free(m);
    return NULL;
}

/* ---- views ---- */

const struct meter_now *meter_now(const struct meter *m)
{
    return &m->now;
}

const struct ledger *meter_ledger(const struct meter *m)
{
    return &m->ledger;
}

void meter_tell(const struct meter *m, bool live, struct meter_told *ret)
{
    if (live)
        take_told(m, ret);
    else
        *ret = m->told;
}

struct stand_in *meter_stand_in(struct meter *m)
{
    return &m->learnt;
}

const struct sensors *meter_sensors(const struct meter *m)
{
    return m->sensors;
}

void meter_model(struct meter *m, const struct watts *w)
{
    bool was_off = is_off(m);

    m->model = *w;
    if (was_off && !is_off(m)) {
        meter_tick(m, true);
        sd_event_source_set_enabled(m->timer, m->daemon->jobs->first ? SD_EVENT_OFF : SD_EVENT_ON);
    }
}

/* A chip that does not count for the machine is read too rarely to sum up its energy. */
static bool tells_watts(const struct account *a, const struct sensor *sensor)
{
    return !sensor->counts && a->last.time_ns && a->last.error == 0 && a->uw > 0 &&
           a->uw <= sensor->most_uw;
}

size_t meter_sources(const struct meter *m, struct meter_source *ret, size_t max)
{
    size_t n = sensors_count(m->sensors) < max ? sensors_count(m->sensors) : max;

    for (size_t i = 0; i < n; i++) {
        const struct account *a = &m->account[i];

        ret[i] = (struct meter_source){.sensor = *sensors_at(m->sensors, i),
                                       .reading = a->last,
                                       .total_uj = a->counter.total_uj,
                                       .gap_ns = a->counter.gap_ns,
                                       .known = a->known && a->news_ns > 0};
        if (ret[i].known)
            ret[i].uw = mul_div(a->news_uj, NS_PER_S, a->news_ns);
        else if (tells_watts(a, &ret[i].sensor)) { /* for who wants to know which chip to name */
            ret[i].known = true;
            ret[i].uw = a->uw;
        }
        for (size_t k = 0; k < m->n_used; k++)
            ret[i].used |= m->used[k] == i;
    }
    for (size_t i = 0; i < m->handed.n && n < max; i++) {
        const struct handed_source *h = &m->handed.of[i];

        ret[n++] = (struct meter_source){
            .sensor = h->sensor,
            .reading = h->last,
            .total_uj = h->counter.total_uj,
            .gap_ns = h->counter.gap_ns,
            .uw = h->uw,
            .known = h->known,
            .used = m->by_handed && h == handed_best((struct handed *)&m->handed, m->now.time_ns)};
    }
    return n;
}

int meter_handed(struct meter *m, const struct handed_reading *r, struct error *err)
{
    bool was_off = is_off(m);
    int e = handed_take(&m->handed, r, clock_now_ns(), err);

    if (e == 0 && was_off)
        sd_event_source_set_enabled(m->timer, m->daemon->jobs->first ? SD_EVENT_OFF : SD_EVENT_ON);
    return e;
}

void meter_resume(struct meter *m, const struct ledger *before)
{
    m->ledger = *before;
    m->now.total = before->machine;
    m->now.gap_ns = before->gap_ns;
}
