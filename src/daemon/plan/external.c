/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/external.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "decider/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ERROR_WORD "decider-fault"

#define RETRY_US     1000000ull
#define READ_MOST    65536 /* bytes between two looks at the daemon's other sockets */
#define UNASKED_MOST 64    /* lines in a row that answer nothing */

struct external {
    struct daemon *daemon;
    void (*decide)(struct daemon *d);
    bool in_force;
    int fd;
    sd_event_source *io, *retry, *deadline;
    char *prepared; /* question of the decision that is being made */
    uint64_t prepared_number;
    char *out, *next; /* being sent; to be sent after it */
    size_t sent;
    char *line; /* of an answer; `used` of its `room` bytes are there */
    size_t used, room;
    unsigned unasked;
    const struct policy_snapshot *snapshot; /* of the last question; the decision's */
    bool waits;                             /* for an answer; `deadline` runs */
    uint64_t number, asked_ns;              /* of the last question */
    bool fresh; /* decides by an answer that came just now: asks nothing, and tells its faults */
    struct decider_kept *kept; /* the answer in force */
    size_t kept_count;
    bool failing;
    time_t since; /* of the first failure */
    char why[ERROR_TEXT_MAX];
    uint64_t asked, answered, took_ns;
};

/* ---- the policy ---- */

const struct policy *external_policy(void)
{
    static struct policy policy;

    if (!policy.name) {
        policy = *decider_fallback();
        policy.name = EXTERNAL_NAME;
        policy.brief =
            "as the decider says, a program of the administrator's; without its answer as equal";
        policy.param_count = 0;
        policy.by_curves = true; /* the decider is told them */
    }
    return &policy;
}

int external_parse(const char *text, struct policy_spec *ret, struct error *err)
{
    struct policy_spec equal;
    size_t len = strlen(EXTERNAL_NAME);

    if (strncmp(text, EXTERNAL_NAME, len) != 0 || (text[len] && text[len] != '/'))
        return policy_spec_parse(text, ret, err);
    if (text[len])
        return error_word(err,
                          error_set(err, -EINVAL, "policy " EXTERNAL_NAME " takes no parameter"),
                          "bad-policy");
    policy_spec_parse(decider_fallback()->name, &equal, NULL);
    *ret = equal;
    ret->policy = external_policy();
    return 0;
}

const struct policy *external_rule(const struct policy *policy)
{
    return policy == external_policy() ? decider_fallback() : policy;
}

int external_check(const struct daemon *d, const struct policy_spec *spec, struct error *err)
{
    if (spec->policy != external_policy() || *d->config.decider)
        return 0;
    return error_set(err, -ENODATA,
                     "policy " EXTERNAL_NAME " cannot be used: tide.conf names no decider; set "
                     "'decider=' to its socket, tide.conf(5)");
}

/* ---- how it goes ---- */

static void fault(struct external *e, const char *why)
{
    snprintf(e->why, sizeof(e->why), "%s", why);
    if (e->failing)
        return;
    e->failing = true;
    e->since = time(NULL);
    daemon_err("decider%s%s: %s; the policy equal decides", *e->daemon->config.decider ? " " : "",
               e->daemon->config.decider, why);
}

static void works(struct external *e, uint64_t now)
{
    e->answered++;
    e->took_ns = now - e->asked_ns;
    if (e->failing)
        daemon_log("decider %s: answers again", e->daemon->config.decider);
    e->failing = false;
}

void external_text(const struct external *e, char buf[EXTERNAL_TEXT_MAX])
{
    char when[32] = "";
    struct tm tm;

    buf[0] = '\0';
    if (!e || !e->in_force)
        return;
    if (e->failing && localtime_r(&e->since, &tm))
        strftime(when, sizeof(when), "%F %T", &tm);
    if (e->failing)
        snprintf(buf, EXTERNAL_TEXT_MAX, "not answering since %s (%s), equal decides", when,
                 e->why);
    else if (e->answered)
        snprintf(buf, EXTERNAL_TEXT_MAX,
                 "answered %" PRIu64 " of %" PRIu64 " questions, the last in %.1f ms", e->answered,
                 e->asked, (double)e->took_ns / NS_PER_MS);
    else
        snprintf(buf, EXTERNAL_TEXT_MAX, "no answer yet, equal decides");
}

/* ---- connection ---- */

static void stop(sd_event_source *timer)
{
    sd_event_source_set_enabled(timer, SD_EVENT_OFF);
}

static void start(sd_event_source *timer, uint64_t after_us)
{
    sd_event_source_set_time_relative(timer, after_us);
    sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

static void drop_answer(struct external *e)
{
    free(e->kept);
    e->kept = NULL;
    e->kept_count = 0;
}

static void drop_question(char **question)
{
    free(*question);
    *question = NULL;
}

static void stop_waiting(struct external *e)
{
    e->waits = false;
    stop(e->deadline);
}

static void hang_up(struct external *e)
{
    e->io = sd_event_source_disable_unref(e->io);
    if (e->fd >= 0)
        close(e->fd);
    e->fd = -1;
    drop_question(&e->prepared);
    drop_question(&e->out);
    drop_question(&e->next);
    e->used = e->sent = e->unasked = 0;
    stop_waiting(e);
}

/* Decides again, later: this may be in the middle of a decision. */
static void give_up_answer(struct external *e)
{
    if (e->kept_count > 0)
        daemon_changed(e->daemon);
    drop_answer(e);
}

static void lose(struct external *e, const char *why)
{
    hang_up(e);
    fault(e, why);
    start(e->retry, RETRY_US);
    give_up_answer(e);
}

static bool may_decide(const struct daemon *d, uid_t uid)
{
    return uid == 0 || uid == d->uid || (*d->config.decider_user && uid == d->config.decider_uid);
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg);

/* A Unix socket connects at once or not at all. */
static int try_connect(struct external *e, struct error *err)
{
    const struct daemon *d = e->daemon;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof(peer);
    int r;

    if (!*d->config.decider)
        return error_set(err, -ENOENT, "tide.conf names no decider");
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", d->config.decider);
    e->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (e->fd < 0 || connect(e->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set(err, -errno, "cannot connect: %s", strerror(errno));
    if (getsockopt(e->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return error_set(err, -errno, "cannot tell whose socket it is: %s", strerror(errno));
    if (!may_decide(d, peer.uid))
        return error_set(err, -EPERM,
                         "it is user %u's, who is neither root nor 'decider-user' of tide.conf",
                         (unsigned)peer.uid);
    r = sd_event_add_io(d->event, &e->io, e->fd, EPOLLIN, on_io, e);
    if (r >= 0) /* jobs' messages come first */
        r = sd_event_source_set_priority(e->io, SD_EVENT_PRIORITY_NORMAL + 1);
    return r < 0 ? error_set(err, r, "%s", strerror(-r)) : 0;
}

/* Returns true if it is connected now. */
static bool connected(struct external *e)
{
    struct error err = {0};
    int enabled = SD_EVENT_OFF;

    if (e->fd >= 0)
        return true;
    sd_event_source_get_enabled(e->retry, &enabled);
    if (enabled != SD_EVENT_OFF)
        return false;
    if (try_connect(e, &err) == 0)
        return true;
    hang_up(e);
    fault(e, err.text);
    start(e->retry, RETRY_US);
    return false;
}

static int on_retry(sd_event_source *s, uint64_t usec, void *arg)
{
    struct external *e = arg;

    if (e->in_force && e->daemon->jobs->n && connected(e))
        daemon_changed(e->daemon);
    return 0;
}

/* ---- questions ---- */

/* Returns false if the connection is lost. */
static bool send_more(struct external *e)
{
    while (e->out) {
        size_t len = strlen(e->out);
        ssize_t n = send(e->fd, e->out + e->sent, len - e->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        e->sent += (size_t)n;
        if (e->sent < len)
            continue;
        drop_question(&e->out);
        e->out = TAKE_PTR(e->next);
        e->sent = 0;
    }
    sd_event_source_set_io_events(e->io, e->out ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return true;
}

/*
 * The deadline runs from the first question that has no answer to it or a later one: who is asked
 * ever more often than it answers is late, too.
 */
static void ask(struct external *e, const struct policy_snapshot *s)
{
    e->snapshot = s;
    e->number = e->prepared_number;
    e->asked_ns = clock_now_ns();
    if (!e->waits) {
        e->asked++;
        start(e->deadline, e->daemon->config.decider_deadline_ms * 1000ull);
    }
    e->waits = true;
    drop_question(&e->next); /* of an older snapshot, not begun */
    if (e->out)
        e->next = TAKE_PTR(e->prepared);
    else
        e->out = TAKE_PTR(e->prepared);
    if (!send_more(e))
        lose(e, strerror(errno));
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
    struct external *e = arg;
    char why[64];

    snprintf(why, sizeof(why), "no answer within %u ms", e->daemon->config.decider_deadline_ms);
    e->waits = false;
    fault(e, why);
    give_up_answer(e);
    return 0;
}

/* ---- answers ---- */

/* Returns 0 if the answer in e->kept is the one to @cores. */
static int accept_cores(struct external *e, const int64_t *cores, struct error *err)
{
    struct decider_kept *kept = calloc(e->snapshot->job_count + 1, sizeof(*kept));
    int count = kept ? decider_accept(e->snapshot, cores, kept, err) : -ENOMEM;

    if (count < 0) {
        free(kept);
        return count;
    }
    drop_answer(e);
    e->kept = kept;
    e->kept_count = (size_t)count;
    return 0;
}

/* Returns false if the decider sends lines without end that nobody asked for. */
static bool take_line(struct external *e, size_t size)
{
    _cleanup_free_ int64_t *cores = NULL;
    uint64_t now = clock_now_ns();
    struct error err = {.text = "out of memory"};
    int r = -ENOMEM;

    if (!e->waits)
        return ++e->unasked < UNASKED_MOST;
    cores = calloc(e->snapshot->job_count + 1, sizeof(*cores));
    if (cores)
        r = decider_read(e->line, size, e->snapshot, cores, &err);
    if (r == -ESTALE)
        return ++e->unasked < UNASKED_MOST;
    e->unasked = 0;
    stop_waiting(e);
    if (r == 0)
        r = accept_cores(e, cores, &err);
    if (r < 0) {
        fault(e, err.text);
        give_up_answer(e);
        return true;
    }
    e->fresh = true;
    e->decide(e->daemon);
    if (e->fresh && e->kept)
        works(e, now);
    e->fresh = false;
    return true;
}

/* Takes all complete lines; a decision by one may end the connection, and empties `used`. */
static const char *take_lines(struct external *e, size_t from)
{
    char *newline;

    while (e->fd >= 0 && (newline = memchr(e->line + from, '\n', e->used - from))) {
        size_t size = (size_t)(newline - e->line);

        if (!take_line(e, size))
            return "it sends lines that answer no question";
        if (e->fd < 0)
            return NULL;
        e->used -= size + 1;
        memmove(e->line, newline + 1, e->used);
        from = 0;
    }
    return NULL;
}

static const char *receive(struct external *e)
{
    for (size_t total = 0; total < READ_MOST;) {
        int r = decider_make_room(&e->line, &e->room, e->used);
        size_t from = e->used;
        const char *why;
        ssize_t n;

        if (r < 0)
            return r == -EMSGSIZE ? "its answer is longer than 4 MiB" : "out of memory";
        n = recv(e->fd, e->line + e->used, e->room - e->used, MSG_DONTWAIT);
        if (n == 0)
            return "it closed the connection";
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
        e->used += (size_t)n;
        total += (size_t)n;
        why = take_lines(e, from);
        if (why || e->fd < 0)
            return why;
    }
    return NULL;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct external *e = arg;
    const char *why = receive(e);

    if (!why && e->fd >= 0 && (events & EPOLLOUT) && !send_more(e))
        why = strerror(errno);
    if (why)
        lose(e, why);
    return 0;
}

/* ---- decisions ---- */

static void prepare(struct external *e, const struct policy_snapshot *s,
                    const struct policy_plan *equal)
{
    drop_question(&e->prepared);
    if (e->fresh || !connected(e))
        return;
    e->prepared = decider_question(s, equal);
    e->prepared_number = s->generation;
}

/* Applies the answer in force. Where it does not fit any more, @plan stays the one of `equal`. */
static int decide_by_answer(struct external *e, const struct policy_snapshot *s,
                            struct policy_plan *plan)
{
    _cleanup_free_ int64_t *cores = calloc(s->job_count + 1, sizeof(*cores));
    struct error err = {0};
    int r = cores ? decider_keep(s, plan, e->kept, e->kept_count, cores) : -ENOMEM;
    bool complete = r == 1;

    if (r >= 0)
        r = decider_apply_kept(s, cores, plan, &err);
    if (r == 0)
        return 0;
    if (e->fresh && complete)
        fault(e, err.text);
    drop_answer(e);
    return r == -EBADMSG || r == -ENOMEM ? 0 : r;
}

int external_decide(struct external *e, const struct policy_snapshot *s, struct policy_plan *plan)
{
    int r = decider_apply(s, NULL, plan, NULL);

    if (r < 0 || !e)
        return r;
    prepare(e, s, plan);
    return e->kept_count ? decide_by_answer(e, s, plan) : 0;
}

void external_explain(const struct external *e, uint64_t job, uint32_t cores,
                      char reason[JOB_REASON_MAX])
{
    for (size_t i = 0; e && i < e->kept_count; i++)
        if (e->kept[i].id == job && e->kept[i].cores == cores)
            snprintf(reason, JOB_REASON_MAX, "external: the decider gives it %u core%s", cores,
                     cores == 1 ? "" : "s");
}

void external_begin(struct external *e, const struct policy *policy)
{
    if (!e)
        return;
    if (e->in_force && policy != external_policy())
        external_configure(e);
    e->in_force = policy == external_policy();
}

void external_decided(struct external *e, const struct policy_snapshot *s)
{
    if (e && e->prepared && s->job_count)
        ask(e, s);
}

/* ---- the whole ---- */

void external_configure(struct external *e)
{
    if (!e)
        return;
    hang_up(e);
    drop_answer(e);
    stop(e->retry);
    e->failing = false;
    e->asked = e->answered = 0;
}

static int add_timer(struct external *e, sd_event_source **ret, sd_event_time_handler_t handler)
{
    int r = sd_event_add_time(e->daemon->event, ret, CLOCK_MONOTONIC, 0, 1000, handler, e);

    return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

int external_new(struct daemon *d, void (*decide)(struct daemon *d), struct external **ret)
{
    struct external *e = calloc(1, sizeof(*e));
    int r;

    if (!e)
        return -ENOMEM;
    e->daemon = d;
    e->decide = decide;
    e->fd = -1;
    r = add_timer(e, &e->retry, on_retry);
    if (r >= 0)
        r = add_timer(e, &e->deadline, on_deadline);
    if (r < 0) {
        external_free(e);
        return r;
    }
    *ret = e;
    return 0;
}

struct external *external_free(struct external *e)
{
    if (!e)
        return NULL;
    hang_up(e);
    drop_answer(e);
    sd_event_source_disable_unref(e->retry);
    sd_event_source_disable_unref(e->deadline);
    free(e->line);
    free(e);
    return NULL;
}
