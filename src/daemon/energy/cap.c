/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/cap.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/muldiv.h"
#include "daemon/daemon.h"
#include "daemon/energy/backstop.h"
#include "daemon/energy/cap_file.h"
#include "daemon/energy/meter.h"
#include "daemon/energy/model.h"
#include "daemon/job/job.h"
#include "power/model/prior.h"
#include "power/model/stand_in.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "cap-not-kept"

#define FIT_SAVE_SAMPLES 300
#define PACE_US          100000 /* a fan that steps up is above the cap for half a second */
#define ACCURACY_US      2000
#define SLOW_NS          (60 * NS_PER_S) /* a slow meter's reading is of what was since then */
#define GUESS_ERROR      300             /* permille, of the curve made of one reading */
#define GUESS_APART      200             /* mcpu: so much more load makes a better guess */
#define NEARLY_FULL      900             /* mcpu of a core */
#define GUESS_IDLE                                                                                 \
    400 /* permille of full power: an idle machine of the last ten years, or more                  \
         */

struct power_caps {
    struct daemon *daemon;
    struct caps caps;
    uint64_t uw; /* in force; 0: none */
    enum cap_source source;
    uint64_t next_ns; /* when that changes by itself */
    struct keeper keeper;
    struct keeper_plan plan; /* plan.cap_uw 0: none yet */
    bool blind;              /* a cap is in force, and nothing is known of the power */
    bool told_over;
    uint64_t over_since_ns, over_ns;   /* 0: not above; time above until then */
    uint64_t slow_over_ns;             /* since when a slow meter tells more; 0: it does not */
    uint64_t lease_boot, lease_number; /* of the newest power lease */
    struct watts named;                /* by the configuration; count 0: none */
    struct stand_in *learnt;           /* what readings taught; the meter's */
    uint32_t saved;                    /* samples of it in the file */
    struct watts guessed;              /* from one reading; count 0: not yet */
    uint32_t guessed_mcpu;             /* the load of that reading */
    struct watts curve;                /* the best of these */
    sd_event_source *timer;
    sd_event_source *pace;          /* reads faster while a cap binds */
    uint64_t read_ns, read_boot_ns; /* the newest reading's time by both clocks */
    uint64_t unlimited_uw;          /* what the packages' limits do not reach; 0: not known */
};

/* ---- what is known of the machine's power ---- */

/*
 * A curve through one reading, until more loads have been read: the one of the highest load, from
 * which full power follows best. It stands still, and the keeper moves it.
 */
static struct watts guess(const struct meter_now *now, uint32_t cores)
{
    uint64_t most = (uint64_t)cores * 1000;
    uint64_t load = now->load_mcpu < most ? now->load_mcpu : most;
    /* machine = full × (GUESS_IDLE + (1000 - GUESS_IDLE) × load / most) */
    uint64_t part = GUESS_IDLE + (1000 - GUESS_IDLE) * load / most;
    uint64_t full = now->machine.uw / part * 1000;
    struct watts w = {.point = {{0, full / 1000 * GUESS_IDLE}, {(uint32_t)most, full}},
                      .count = 2,
                      .error_permille = GUESS_ERROR,
                      .basis = POWER_ASSUMED};

    snprintf(w.source, sizeof(w.source), "one reading");
    return w;
}

static uint32_t cores_of(const struct daemon *d)
{
    return cpuset_count(&d->cpus);
}

/* The curve between the idle and the busy machine, where both were seen and no load between. */
static bool between_ends(const struct power_caps *c, struct watts *ret)
{
    const struct watts_fit *f = &c->learnt->fit;
    uint32_t cores = cores_of(c->daemon);
    const struct watts_fit_knot *full = &f->knot[f->knots ? f->knots - 1 : 0];

    return watts_fit_knows_idle(f, cores * 1000) && full->mcpu >= cores * NEARLY_FULL &&
           full->uw >= f->knot[0].uw &&
           prior_shape(UINT32_MAX, (uint64_t)f->knot[0].uw, (uint64_t)full->uw, cores, ret) == 0;
}

static struct watts guess_once(struct power_caps *c, const struct meter_now *now)
{
    struct watts ends;

    if (between_ends(c, &ends))
        return ends;
    if (now->sensed && !now->brief && now->machine.uw &&
        (c->guessed.count == 0 || now->load_mcpu > c->guessed_mcpu + GUESS_APART)) {
        c->guessed = guess(now, cores_of(c->daemon));
        c->guessed_mcpu = now->load_mcpu;
    }
    return c->guessed;
}

static void save_learnt(struct power_caps *c)
{
    uint32_t samples = c->learnt->fit.samples;

    if (samples < c->saved) /* it began anew */
        c->saved = 0;
    if (samples - c->saved >= FIT_SAVE_SAMPLES) {
        cap_fit_save(c->daemon, c->learnt);
        c->saved = samples;
    }
}

/* Measured points that a person named tell more of idling than readings of a busy machine. */
static bool named_is_better(const struct power_caps *c)
{
    return c->named.count && c->named.basis != POWER_ASSUMED &&
           !watts_fit_knows_idle(&c->learnt->fit, cores_of(c->daemon) * 1000);
}

/*
 * The curve: learnt from readings, else named by the configuration, else guessed from one. A guess
 * serves the keeper, which corrects it; it is no word on how much the machine idles.
 */
static void choose_curve(struct power_caps *c, const struct meter_now *now)
{
    const struct watts_fit *fit = &c->learnt->fit;
    const struct watts *shown = &c->curve;

    save_learnt(c);
    if (!named_is_better(c) && watts_fit_solve(fit, cores_of(c->daemon) * 1000, &c->curve)) {
        c->curve.basis = c->learnt->basis;
        snprintf(c->curve.source, sizeof(c->curve.source), "learnt from %u readings", fit->samples);
    } else {
        shown = &c->named;
        c->curve = c->named;
        if (c->named.count == 0)
            c->curve = guess_once(c, now);
    }
    meter_model(c->daemon->meter, shown);
}

bool cap_source_known(const struct daemon *d, struct error *why)
{
    struct meter_source source[SENSORS_MAX];
    size_t n;

    if (d->power_caps->named.count)
        return true;
    meter_refresh(d->meter);
    n = meter_sources(d->meter, source, SENSORS_MAX);
    for (size_t i = 0; i < n; i++)
        if (source[i].used)
            return true;
    for (size_t i = 0; i < n; i++)
        if (source[i].reading.error < 0) {
            error_set(why, -ENODATA,
                      "nothing tells this machine's watts: %.60s cannot be read (%s)",
                      source[i].sensor.name, strerror(-source[i].reading.error));
            return false;
        }
    error_set(why, -ENODATA,
              "nothing tells this machine's watts: it has no sensor, and no model is named");
    return false;
}

/* ---- keeping ---- */

static void on_changed(struct power_caps *c)
{
    if (c->daemon->decision)
        daemon_changed(c->daemon);
}

static void tell_over(struct power_caps *c, uint64_t now)
{
    if (c->over_since_ns)
        c->over_ns += now - c->over_since_ns;
    c->over_since_ns = c->plan.over ? now : 0;
    if (c->plan.over && !c->told_over)
        daemon_err("the machine draws more than its power cap of %" PRIu64 " W, and jobs cannot "
                   "shrink further: the rest is not theirs",
                   c->uw / 1000000);
    else if (!c->plan.over && c->told_over)
        daemon_log("the machine is below its power cap of %" PRIu64 " W again", c->uw / 1000000);
    c->told_over = c->plan.over;
}

static void arm(struct power_caps *c, uint64_t now)
{
    uint64_t next = c->next_ns;

    if (c->uw && c->plan.next_ns < next)
        next = c->plan.next_ns;
    sd_event_source_set_enabled(c->timer, next == CAP_NO_END ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
    if (next != CAP_NO_END)
        sd_event_source_set_time(c->timer, (next > now ? next : now) / NS_PER_US + 1);
}

/* CLOCK_MONOTONIC, of readings, as CLOCK_BOOTTIME. */
static uint64_t as_boot_ns(uint64_t mono_ns, uint64_t now)
{
    uint64_t ago = clock_now_ns() - mono_ns;

    return mono_ns && ago < now ? now - ago : 0;
}

/* Nobody measured what stands in for a meter: a cap is kept by the most that it may be. */
static struct power_range sure_machine(const struct meter_now *read)
{
    struct power_range ret = read->machine;

    if (read->stood_in)
        ret.uw = ret.high_uw;
    return ret;
}

static struct keeper_input keeper_now(const struct power_caps *c, uint64_t now)
{
    const struct daemon *d = c->daemon;
    const struct meter_now *read = meter_now(d->meter);

    return (struct keeper_input){.now_ns = now,
                                 .cap_uw = c->uw,
                                 .machine = sure_machine(read),
                                 .machine_ns = c->read_boot_ns,
                                 .sensed = read->sensed && !read->slow,
                                 .brief = read->brief,
                                 .load_mcpu = read->load_mcpu,
                                 .other_mcpu = read->other_mcpu,
                                 .speed_permille = read->speed_permille,
                                 .cores = cores_of(d),
                                 .watts = &c->curve,
                                 .unlimited_uw = c->unlimited_uw,
                                 .limit = backstop_can_limit(d->backstop),
                                 .quota = backstop_can_quota(d->backstop)};
}

static void keep(struct power_caps *c, uint64_t now)
{
    struct keeper_input in = keeper_now(c, now);
    bool was_blind = c->blind;
    int r = keeper_step(&c->keeper, &in, &c->plan);

    c->blind = r == -ENODATA;
    if (c->blind)
        c->plan = (struct keeper_plan){.next_ns = UINT64_MAX};
    if (c->blind && !was_blind)
        daemon_log_as("no-watts",
                      "the power cap cannot be kept yet: nothing is known of the machine's power");
    backstop_apply(c->daemon->backstop, &c->plan); /* first: it holds while jobs shrink */
    tell_over(c, now);
    if (r == 0 && c->plan.changed)
        on_changed(c);
}

uint64_t cap_needed_uw(const struct daemon *d, uint32_t mcpu)
{
    const struct power_caps *c = d->power_caps;
    struct keeper_input in = keeper_now(c, clock_boot_ns());
    uint64_t high_uw = keeper_forecast(&c->keeper, &in, mcpu).high_uw;

    return high_uw ? high_uw * 1000 / (1000 - KEEPER_MARGIN) + 1 : 0;
}

/*
 * A power supply's losses, fans and memory are above the packages' power. The most of the last
 * readings counts: a limit that is a little too low costs speed, a higher one breaks the cap.
 */
static void see_unlimited(struct power_caps *c, const struct meter_now *now)
{
    uint64_t above = sub_sat(sure_machine(now).uw, now->packages_uw);

    if (!now->sensed || now->brief || !now->packages_known)
        return;
    c->unlimited_uw -= c->unlimited_uw / 8;
    c->unlimited_uw = above > c->unlimited_uw ? above : c->unlimited_uw;
}

/* While a cap holds jobs back, a second is too long until the next look. */
static void arm_pace(struct power_caps *c)
{
    const struct daemon *d = c->daemon;
    bool binds = c->plan.cap_uw && c->plan.most_mcpu < cores_of(d) * 1000 && d->jobs->first &&
                 meter_now(d->meter)->fast;

    if (binds)
        sd_event_source_set_time_relative(c->pace, PACE_US);
    sd_event_source_set_enabled(c->pace, binds ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static void see_slow(struct power_caps *c, const struct meter_now *read, bool another, uint64_t now)
{
    if (!read->slow || read->machine.uw <= c->uw)
        c->slow_over_ns = 0;
    else if (another || c->slow_over_ns == 0)
        c->slow_over_ns = now;
}

static void step(struct power_caps *c)
{
    const struct meter_now *read = meter_now(c->daemon->meter);
    uint64_t now = clock_boot_ns(), before = c->uw;

    if (!caps_in_force(&c->caps, now, &c->uw, &c->source, &c->next_ns))
        c->uw = 0;
    if (c->uw != before)
        daemon_log(c->uw ? "power cap: %" PRIu64 ".%03" PRIu64 " W, %s" : "no power cap any more",
                   c->uw / 1000000, c->uw / 1000 % 1000, cap_source_name(c->source));
    if (read->time_ns != c->read_ns)
        c->read_boot_ns = as_boot_ns(read->time_ns, now);
    c->read_ns = read->time_ns;
    see_slow(c, read, c->uw != before, now);
    see_unlimited(c, read);
    choose_curve(c, read);
    if (c->uw || before)
        keep(c, now);
    else /* something of an earlier cap may be left */
        backstop_apply(c->daemon->backstop, &c->plan);
    arm(c, now);
    arm_pace(c);
}

void power_caps_tick(struct power_caps *c)
{
    step(c);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    step(arg);
    return 0;
}

static int on_pace(sd_event_source *s, uint64_t usec, void *arg)
{
    struct power_caps *c = arg;

    if (meter_pace(c->daemon->meter))
        step(c);
    return 0;
}

int cap_set(struct daemon *d, enum cap_source source, const struct cap *cap, struct error *err)
{
    struct power_caps *c = d->power_caps;
    struct caps next = c->caps;
    struct error why = {0};
    int r;

    if (cap->held && (cap->uw == 0 || cap->uw > POWER_UW_MAX || cap->floor_uw > cap->uw))
        return error_word(err,
                          error_set(err, -EINVAL, "a power cap is between 1 uW and %" PRIu64 " W",
                                    (uint64_t)POWER_UW_MAX / 1000000),
                          "bad-cap");
    if (cap->held && !cap_source_known(d, &why))
        return error_word(err, error_set(err, -ENODATA, "%s", why.text), "no-watts");
    next.of[source] = *cap;
    r = cap_file_save(d, &next);
    if (r < 0)
        return error_word(
            err, error_set(err, r, "cannot write %s/" CAP_FILE ": %s", d->state_dir, strerror(-r)),
            "state-unusable");
    failpoint(FAILPOINT_CAP_STORED);
    c->caps = next;
    step(c);
    return 0;
}

int cap_set_lease(struct daemon *d, uint64_t boot, uint64_t number, const struct cap *cap,
                  struct error *err)
{
    struct power_caps *c = d->power_caps;
    int r;

    if (boot == c->lease_boot && number < c->lease_number &&
        clock_boot_ns() < c->caps.of[CAP_LEASE].until_ns)
        return error_word(err,
                          error_set(err, -EALREADY,
                                    "the lease %" PRIu64 " is stale: %" PRIu64 " came before it",
                                    number, c->lease_number),
                          "stale-lease");
    r = cap_set(d, CAP_LEASE, cap, err);
    if (r == 0) {
        c->lease_boot = boot;
        c->lease_number = number;
    }
    return r;
}

/* ---- what others see ---- */

void cap_domain(const struct daemon *d, struct policy_domain *root)
{
    const struct keeper_plan *plan;

    if (!d->power_caps)
        return;
    plan = &d->power_caps->plan;
    root->idle_uw = plan->idle_uw;
    root->core_uw = plan->core_uw;
    root->cap_uw = plan->cap_uw;
}

static const char *whose(enum cap_source source)
{
    return source == CAP_CONFIG   ? "of the configuration"
           : source == CAP_PERSON ? "set by hand"
                                  : "of the power lease";
}

void cap_text(const struct daemon *d, char ret[CAP_TEXT_MAX])
{
    const struct power_caps *c = d->power_caps;

    ret[0] = '\0';
    if (c && c->plan.cap_uw)
        snprintf(ret, CAP_TEXT_MAX, "power cap %" PRIu64 ".%" PRIu64 " W (%s): %u core%s",
                 c->plan.cap_uw / 1000000, c->plan.cap_uw / 100000 % 10, whose(c->source),
                 c->plan.cores, c->plan.cores == 1 ? "" : "s");
}

/* A meter of minutes teaches the curve, but no reading of it steers. */
static enum cap_kept state_by_slow(const struct power_caps *c, const struct meter_now *read,
                                   char *why, size_t size)
{
    if (!c->slow_over_ns || clock_boot_ns() - c->slow_over_ns < SLOW_NS) {
        snprintf(why, size,
                 "the only meter tells what was a minute ago: jobs are held by the model");
        return CAP_KEPT;
    }
    snprintf(why, size,
             "the machine draws %" PRIu64 ".%" PRIu64 " W by its only meter, which tells what was "
             "a minute ago: jobs are held by the model",
             read->machine.uw / 1000000, read->machine.uw / 100000 % 10);
    return CAP_OVER;
}

enum cap_kept cap_state(const struct daemon *d, char *why, size_t size)
{
    const struct power_caps *c = d->power_caps;
    const struct meter_now *read = meter_now(d->meter);

    *why = '\0';
    if (c->uw == 0)
        return CAP_NONE;
    if (c->blind) {
        snprintf(why, size, "nothing is known of the machine's power yet");
        return CAP_NOT_YET;
    }
    if (c->plan.over) {
        snprintf(why, size,
                 "the machine draws more although jobs have shrunk: idling, processes of no job, "
                 "and jobs that cannot pause need it");
        return CAP_OVER;
    }
    for (const struct job *j = d->jobs->first; j; j = j->next)
        if (!job_settled(j)) {
            snprintf(why, size, "job %.40s has not given back its cores yet", j->name);
            return CAP_NOT_YET;
        }
    if (read->slow && read->machine.basis != POWER_UNKNOWN)
        return state_by_slow(c, read, why, size);
    if (read->sensed && !read->stood_in && read->machine.basis == POWER_MODELLED)
        snprintf(why, size,
                 "the processors and their memory alone are measured: at the wall the machine may "
                 "draw more");
    return CAP_KEPT;
}

void cap_view(const struct daemon *d, struct cap_view *ret)
{
    const struct power_caps *c = d->power_caps;
    uint64_t now = clock_boot_ns();

    *ret = (struct cap_view){.uw = c->uw,
                             .source = c->source,
                             .left_ms = UINT64_MAX,
                             .caps = &c->caps,
                             .model = &c->curve,
                             .plan = &c->plan,
                             .over_ns = c->over_ns};
    if (c->uw && c->caps.of[c->source].until_ns != CAP_NO_END)
        ret->left_ms = c->caps.of[c->source].until_ns > now
                           ? (c->caps.of[c->source].until_ns - now) / NS_PER_MS
                           : 0;
}

/* ---- begin and end ---- */

static int read_model(struct power_caps *c, struct error *err)
{
    struct error why = {0};
    int r = model_parse(c->daemon->config.power_model, cores_of(c->daemon), &c->named, &why);

    return r < 0
               ? error_word(err, error_set(err, r, "power-model: %s", why.text), "bad-power-model")
               : 0;
}

static void take_config(struct power_caps *c)
{
    c->caps.of[CAP_CONFIG] = (struct cap){.uw = c->daemon->config.power_cap_uw,
                                          .until_ns = CAP_NO_END,
                                          .kind = CAP_BUDGET,
                                          .held = c->daemon->config.power_cap_uw > 0};
}

void power_caps_configure(struct power_caps *c)
{
    struct error err = {0};

    if (read_model(c, &err) < 0)
        daemon_log_as(error_why(&err), "%s", err.text);
    c->curve = c->named;
    take_config(c);
    step(c);
}

int power_caps_new(struct daemon *d, struct power_caps **ret, struct error *err)
{
    struct power_caps *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->daemon = d;
    c->next_ns = CAP_NO_END;
    r = read_model(c, err);
    if (r == 0) {
        r = sd_event_add_time(d->event, &c->timer, CLOCK_BOOTTIME, 0, ACCURACY_US, on_timer, c);
        r = r < 0 ? r
                  : sd_event_add_time_relative(d->event, &c->pace, CLOCK_MONOTONIC, PACE_US,
                                               ACCURACY_US, on_pace, c);
        r = r < 0 ? error_set(err, r, "cannot make an event: %s", strerror(-r)) : 0;
    }
    if (r < 0) {
        power_caps_free(c);
        return r;
    }
    sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
    sd_event_source_set_enabled(c->pace, SD_EVENT_OFF);
    c->curve = c->named;
    cap_file_load(d, &c->caps);
    c->learnt = meter_stand_in(d->meter);
    cap_fit_load(d, c->learnt);
    c->saved = c->learnt->fit.samples;
    take_config(c);
    *ret = c;
    return 0;
}

struct power_caps *power_caps_free(struct power_caps *c)
{
    if (!c)
        return NULL;
    sd_event_source_disable_unref(c->timer);
    sd_event_source_disable_unref(c->pace);
    if (c->daemon->state_fd >= 0 && c->learnt)
        cap_fit_save(c->daemon, c->learnt);
    free(c);
    return NULL;
}
