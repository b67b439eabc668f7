/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/promised.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/plan/promises.h"
#include "daemon/plan/users.h"
#include "daemon/record/state_file.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "state-unusable"

#define HEAD         "promises 1\n"
#define LINE_MAX_LEN 320
#define FILE_MAX     (PROMISED_MAX * LINE_MAX_LEN)
#define ENOUGH       100 /* requests of a window, for a p99 that is more than the slowest one */
#define OLD_S        (24 * 3600) /* the program may be another one by now */

struct row {
    uid_t uid;
    char name[PROTO_NAME_MAX]; /* "": the row is free */
    uint64_t used_s;           /* since 1970 */
    struct promise_known known;
};

struct promised {
    int fd;
    struct row row[PROMISED_MAX];
    uint64_t written_ns;
    unsigned jobs; /* with a promise, at the last look */
    bool dirty, failed;
};

/* ---- the file -------------------------------------------------------------------------------- */

static bool read_row(const char *line, struct row *ret)
{
    struct promise_known *k = &ret->known;
    char name[PROTO_NAME_MAX];
    char form[128];

    snprintf(form, sizeof(form),
             "%%" SCNu32 " %%%ds %%" SCNu64 " %%" SCNu64 " %%" SCNu64 " %%" SCNu64 " %%" SCNu32
             " %%" SCNu32 " %%" SCNu64 " %%" SCNu32 " %%" SCNu32 " %%" SCNu32 " %%" SCNu32,
             PROTO_NAME_MAX - 1);
    if (sscanf(line, form, &ret->uid, name, &ret->used_s, &k->requests, &k->fastest_ns, &k->best_ns,
               &k->best_cores, &k->tried, &k->kept_promise_ns, &k->kept_seconds, &k->kept_permille,
               &k->kept_mcpu, &k->kept_rate) != 13 ||
        k->kept_permille > 1000)
        return false;
    memcpy(ret->name, name, sizeof(name));
    return true;
}

/* A file that is damaged, or of another version, is as none. */
static void read_rows(struct promised *p)
{
    _cleanup_free_ char *text = malloc(FILE_MAX);
    char *rest, *line;
    unsigned n = 0;

    if (!text || state_file_read(p->fd, PROMISED_FILE, text, FILE_MAX) < 0 ||
        strncmp(text, HEAD, strlen(HEAD)) != 0)
        return;
    rest = text + strlen(HEAD);
    while (n < PROMISED_MAX && (line = strsep(&rest, "\n"))) {
        struct row row = {0};

        if (read_row(line, &row))
            p->row[n++] = row;
    }
}

static void write_rows(struct promised *p)
{
    _cleanup_free_ char *text = malloc(FILE_MAX);
    size_t len;
    int r;

    p->dirty = false;
    if (!text)
        return;
    len = (size_t)snprintf(text, FILE_MAX, HEAD);
    for (unsigned i = 0; i < PROMISED_MAX; i++) {
        const struct row *row = &p->row[i];
        const struct promise_known *k = &row->known;

        if (*row->name && len + LINE_MAX_LEN < FILE_MAX)
            len += (size_t)snprintf(text + len, FILE_MAX - len,
                                    "%u %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                                    " %u %u %" PRIu64 " %u %u %u %u\n",
                                    (unsigned)row->uid, row->name, row->used_s, k->requests,
                                    k->fastest_ns, k->best_ns, k->best_cores, k->tried,
                                    k->kept_promise_ns, k->kept_seconds, k->kept_permille,
                                    k->kept_mcpu, k->kept_rate);
    }
    r = state_file_write(p->fd, PROMISED_FILE, text);
    if (r < 0 && !p->failed)
        daemon_err("cannot keep what is known of promises: %s; the jobs go on", strerror(-r));
    p->failed = r < 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

unsigned promised_name_len(const char *name, pid_t pid)
{
    size_t len = strlen(name), tail;
    char suffix[24];

    tail = (size_t)snprintf(suffix, sizeof(suffix), "-%d", (int)pid);
    if (pid > 0 && len > tail && strcmp(name + len - tail, suffix) == 0)
        len -= tail;
    return (unsigned)smaller((int64_t)len, PROTO_NAME_MAX - 1);
}

/* Kept once it is known, as the first process may end. */
static unsigned name_len_of(const struct job *j)
{
    if (j->known.name_len)
        return j->known.name_len;
    return promised_name_len(j->name, j->processes ? j->processes->pid : 0);
}

static bool is_of(const struct row *row, uid_t uid, const char *name, unsigned len)
{
    return row->uid == uid && strncmp(row->name, name, len) == 0 && row->name[len] == '\0' && len;
}

static struct row *find(const struct promised *p, uid_t uid, const char *name, unsigned len)
{
    for (unsigned i = 0; i < PROMISED_MAX; i++)
        if (is_of(&p->row[i], uid, name, len))
            return (struct row *)&p->row[i];
    return NULL;
}

/* A free row; else the least recently used one, of the user's own where these are many. */
static struct row *make_room(struct promised *p, uid_t uid)
{
    struct row *oldest = NULL, *own = NULL, *free_row = NULL;
    unsigned owns = 0;

    for (unsigned i = 0; i < PROMISED_MAX; i++) {
        struct row *row = &p->row[i];

        if (!*row->name) {
            free_row = free_row ? free_row : row;
            continue;
        }
        if (!oldest || row->used_s < oldest->used_s)
            oldest = row;
        owns += row->uid == uid;
        if (row->uid == uid && (!own || row->used_s < own->used_s))
            own = row;
    }
    if (owns >= PROMISED_OWN)
        return own;
    return free_row ? free_row : oldest;
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Requests of its processes took longer than this, 1 where that is too short to tell; 0: none. */
static uint64_t fastest(const struct job *j)
{
    unsigned least = LATENCY_BUCKETS;

    for (const struct process *p = j->processes; p; p = p->next)
        for (unsigned b = 0; b < least; b++)
            if (p->latency.bucket[b])
                least = b;
    if (least == LATENCY_BUCKETS)
        return 0;
    return least > 0 ? latency_most_ns(least - 1) : 1;
}

static void learn_kept(struct job *j, const struct latency_window *w, struct promise_known *k)
{
    const struct latency_seconds *s = &j->latency.seconds;
    struct job_known *own = &j->known;
    uint64_t n;

    if (j->promise.slo_us != j->asked.attributes.slo_us) /* these seconds judged another promise */
        return;
    if (s->judged < own->judged)
        *own = (struct job_known){.name_len = own->name_len, .requests = own->requests};
    if (s->judged > own->judged && s->judged - own->judged < 3) {
        own->cores += j->promise.has;
        own->rate += w->per_second;
        own->looks++;
    }
    own->judged = s->judged;
    n = own->looks;
    if (s->judged < PROMISE_KNOWN_SECONDS || n == 0)
        return;
    k->kept_promise_ns = (uint64_t)j->asked.attributes.slo_us * NS_PER_US;
    k->kept_seconds = (uint32_t)smaller_u64(s->judged, UINT32_MAX);
    k->kept_permille = (uint32_t)(s->kept * 1000 / s->judged);
    k->kept_mcpu = (uint32_t)smaller_u64(own->cores * 1000 / n, UINT32_MAX);
    k->kept_rate = (uint32_t)smaller_u64(own->rate / n, UINT32_MAX);
}

/* Counts only windows in which all requests had the same cores from begin to end. */
static void learn_window(struct job *j, const struct latency_window *w, uint64_t now,
                         struct promise_known *k)
{
    struct job_known *own = &j->known;

    if (own->steady != j->promise.has) {
        own->steady = j->promise.has;
        own->steady_ns = now;
    }
    if (w->ended >= ENOUGH && now - own->steady_ns > w->window_ns + w->p99_ns + NS_PER_S)
        promise_known_window(k, w->p99_ns, own->steady);
}

static void learn(struct promised *p, struct job *j, uint64_t now)
{
    struct job_known *own = &j->known;
    struct latency_window w;
    struct row *row;
    uint64_t fast;

    own->name_len = name_len_of(j);
    if (!latency_window(j, now, &w) || strcmp(j->name, j->id) == 0 ||
        j->latency.requests < PROMISE_KNOWN_REQUESTS)
        return;
    row = find(p, j->uid, j->name, own->name_len);
    if (!row) {
        row = make_room(p, j->uid);
        *row = (struct row){.uid = j->uid};
        memcpy(row->name, j->name, own->name_len);
    }
    row->used_s = clock_real_ms() / 1000;
    if (j->latency.requests > own->requests)
        row->known.requests += j->latency.requests - own->requests;
    own->requests = j->latency.requests;
    fast = fastest(j);
    if (fast && (!row->known.fastest_ns || fast < row->known.fastest_ns))
        row->known.fastest_ns = fast;
    learn_window(j, &w, now, &row->known);
    learn_kept(j, &w, &row->known);
    p->dirty = true;
}

void promised_look(struct daemon *d)
{
    struct promised *p = d->promised;
    uint64_t now = clock_now_ns();
    unsigned jobs = 0;
    bool ended;

    if (!p)
        return;
    for (struct job *j = d->jobs->first; j; j = j->next) {
        jobs += j->asked.attributes.slo_us > 0;
        if (j->asked.attributes.slo_us && now - j->known.looked_ns >= NS_PER_S) {
            j->known.looked_ns = now;
            learn(p, j, now);
        }
    }
    ended = jobs < p->jobs; /* a later look need not follow */
    p->jobs = jobs;
    if (p->dirty && (ended || now - p->written_ns >= PROMISED_WRITE_NS)) {
        p->written_ns = now;
        write_rows(p);
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Cores that it may have, and those of them that its user's other promises need. */
static void find_cores(const struct daemon *d, const struct job *j, uid_t uid,
                       const struct attributes *asked, struct promise_asked *ret)
{
    int64_t most = smaller(cpuset_count(&d->cpus), users_most(d, uid)), minima = 0, others = 0;

    most = asked->max ? smaller(most, asked->max) : most;
    for (const struct job *k = d->jobs->first; k; k = k->next) {
        int64_t min = devices_least(k);

        if (k == j || !k->admission.wanted)
            continue;
        minima += min;
        if (k->uid == uid && promises_bind(k) && !k->promise.room.alone &&
            !promise_is_given_up(k->promise.room.why))
            others += larger((int64_t)k->promise.room.need - min, 0);
    }
    if (!j || j->promise.room.threads == 0) /* else others yield to it */
        most = smaller(most, larger((int64_t)cpuset_count(&d->cpus) - minima, 1));
    ret->cores = (uint32_t)most;
    ret->others = (uint32_t)others;
}

static void say(const struct promise_known *k, const struct promise_asked *a,
                enum promise_ground ground, char ret[PROMISED_TEXT_MAX])
{
    char promise[PROMISE_TEXT_MAX];

    switch (ground) {
    case PROMISE_LESS:
        snprintf(ret, PROMISED_TEXT_MAX, "%s was kept before, and this one is shorter",
                 promise_text((int64_t)(k->kept_promise_ns / NS_PER_US), promise));
        break;
    case PROMISE_TAKEN:
        snprintf(ret, PROMISED_TEXT_MAX,
                 "other promises of its user need %u of %u cores, and what this one needs is not "
                 "known",
                 a->others, a->cores);
        break;
    case PROMISE_WAS_KEPT:
        snprintf(ret, PROMISED_TEXT_MAX,
                 "kept in %.1f %% of %u seconds, with %.1f cores and %u requests a second",
                 k->kept_permille / 10.0, k->kept_seconds, k->kept_mcpu / 1000.0, k->kept_rate);
        break;
    case PROMISE_MINIMUM:
        snprintf(ret, PROMISED_TEXT_MAX,
                 "its minimum of %u cores is more than the %u that it may have", a->min, a->cores);
        break;
    case PROMISE_FASTEST:
        snprintf(ret, PROMISED_TEXT_MAX,
                 "the fastest of %" PRIu64 " requests took more than %.3g ms", k->requests,
                 (double)k->fastest_ns / 1e6);
        break;
    case PROMISE_BEST:
        snprintf(ret, PROMISED_TEXT_MAX, "p99 was %.3g ms at best, tried with up to %u cores",
                 (double)k->best_ns / 1e6, k->tried);
        break;
    case PROMISE_CROWDED:
        snprintf(ret, PROMISED_TEXT_MAX,
                 "it had %.1f cores when it was kept, and other promises of its user leave %u",
                 k->kept_mcpu / 1000.0, a->cores > a->others ? a->cores - a->others : 0);
        break;
    case PROMISE_GIVEN_UP_NOW:
        snprintf(ret, PROMISED_TEXT_MAX, "%s", promise_why_text(a->why));
        break;
    case PROMISE_FIRST_RUN:
    case PROMISE_GROUND_MAX:
        snprintf(ret, PROMISED_TEXT_MAX, "too little was measured of it so far");
        break;
    }
}

/*
 * Says "no" of nothing that is old: a refused promise is not measured, so that a program that has
 * become faster would be refused for ever. A time that is to come was written by a wrong clock.
 */
static bool is_old(const struct row *row)
{
    uint64_t now_s = clock_real_ms() / 1000;

    return row->used_s > now_s || now_s - row->used_s > OLD_S;
}

void promised_judge(const struct daemon *d, const struct job *j, uid_t uid, const char *name,
                    pid_t pid, const struct attributes *asked, struct promised_verdict *ret)
{
    unsigned len = j ? name_len_of(j) : name ? promised_name_len(name, pid) : 0;
    const struct row *row =
        d->promised && len ? find(d->promised, j ? j->uid : uid, j ? j->name : name, len) : NULL;
    struct promise_known known = row ? row->known : (struct promise_known){0};
    bool old = row && is_old(row);
    struct promise_asked a = {.promise_ns = (uint64_t)asked->slo_us * NS_PER_US,
                              .min = asked->min > 0 ? (uint32_t)asked->min : 0,
                              /* a promise that is changed has not been tried */
                              .why = j && j->promise.slo_us == asked->slo_us ? j->promise.room.why
                                                                             : PROMISE_NONE};
    enum promise_ground ground;

    find_cores(d, j, j ? j->uid : uid, asked, &a);
    if (old)
        known.requests = known.best_ns = 0;
    ret->keepable = promise_judge(&known, &a, &ground);
    say(&known, &a, ground, ret->text);
    if (old && ground == PROMISE_FIRST_RUN)
        snprintf(ret->text, sizeof(ret->text), "nothing was measured of it in the last 24 hours");
}

const char *promised_keepable_name(enum promise_keepable keepable)
{
    return keepable == PROMISE_KEEPABLE ? "yes" : keepable == PROMISE_UNKEEPABLE ? "no" : "unknown";
}

int promised_new(int fd, struct promised **ret)
{
    struct promised *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->fd = fd;
    read_rows(p);
    *ret = p;
    return 0;
}

struct promised *promised_free(struct promised *p)
{
    if (p && p->dirty)
        write_rows(p);
    free(p);
    return NULL;
}
