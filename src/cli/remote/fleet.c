/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/fleet.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/visible.h"
#include "cli/api.h"
#include "cli/remote/remote.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "host-unreachable"

struct asking {
    struct fleet *fleet;
    uint64_t until_ns;
    atomic_size_t next;
};

/* ---- one machine ---- */

static int get(struct remote *r, const char *path, uint64_t until_ns, json_t **ret,
               struct error *err)
{
    uint64_t now = clock_now_ns();
    _cleanup_free_ char *text = NULL;
    int status, e;

    if (now >= until_ns)
        return error_set(err, -ETIMEDOUT, "no time was left to ask it");
    e = remote_request(r, "GET", path, NULL, (unsigned)((until_ns - now) / NS_PER_MS) + 1, &status,
                       &text, err);
    if (e < 0)
        return e;
    *ret = api_parse(text);
    if (!*ret)
        return error_set(err, -EBADMSG, "its answer is not JSON");
    if (status < 400)
        return 0;
    e = error_set(err, -EACCES, "%.200s", member_text(json_object_get(*ret, "error"), "message"));
    json_decref(*ret);
    *ret = NULL;
    return e;
}

static bool is_list_of_objects(const json_t *list)
{
    const json_t *one;
    size_t i;

    json_array_foreach (list, i, one)
        if (!json_is_object(one))
            return false;
    return json_is_array(list);
}

/* An answer that only seems to be a daemon's is none. */
static void judge(struct fleet_answer *a)
{
    a->reached = json_is_object(a->state) && is_list_of_objects(a->jobs);
    if (a->reached)
        return;
    error_set(&a->why, -EBADMSG, "its answers are not those of a tided");
    json_decref(a->state);
    json_decref(a->jobs);
    a->state = a->jobs = NULL;
}

static void ask(struct fleet_answer *a, uint64_t until_ns)
{
    struct remote r;
    struct error unimportant;

    remote_init(&r, &a->machine->address, true);
    r.connect_ms = 0; /* the deadline holds for everything */
    if (get(&r, "/v1/machine", until_ns, &a->state, &a->why) == 0 &&
        get(&r, "/v1/jobs", until_ns, &a->jobs, &a->why) == 0)
        judge(a);
    visible(a->why.text); /* a character may have been cut, and JSON takes whole ones alone */
    if (a->reached)
        get(&r, "/v1/power", until_ns, &a->power, &unimportant);
    remote_done(&r);
}

/* ---- all of them ---- */

static void *work(void *arg)
{
    struct asking *q = arg;
    size_t i;

    while ((i = atomic_fetch_add(&q->next, 1)) < q->fleet->n)
        ask(&q->fleet->answer[i], q->until_ns);
    return NULL;
}

int fleet_ask(const struct inventory *i, unsigned deadline_ms, struct fleet *ret)
{
    struct fleet f = {.answer = calloc(i->n + 1, sizeof(*f.answer)), .n = i->n};
    struct asking q = {.fleet = &f, .until_ns = clock_now_ns() + deadline_ms * NS_PER_MS};
    pthread_t thread[FLEET_AT_ONCE];
    size_t threads = 0, wanted = f.n < FLEET_AT_ONCE ? f.n : FLEET_AT_ONCE;

    if (!f.answer)
        return -ENOMEM;
    for (size_t k = 0; k < f.n; k++)
        f.answer[k].machine = &i->machine[k];
    while (threads + 1 < wanted && pthread_create(&thread[threads], NULL, work, &q) == 0)
        threads++;
    work(&q); /* this thread is one of them */
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
    for (size_t k = 0; k < f.n; k++)
        f.reached += f.answer[k].reached;
    *ret = f;
    return 0;
}

void fleet_done(struct fleet *f)
{
    for (size_t k = 0; k < f->n; k++) {
        json_decref(f->answer[k].state);
        json_decref(f->answer[k].jobs);
        json_decref(f->answer[k].power);
    }
    free(f->answer);
    *f = (struct fleet){0};
}

static json_t *or_null(json_t *json)
{
    return json ? json_incref(json) : json_null();
}

json_t *fleet_json(const struct fleet *f)
{
    json_t *list = json_array();

    for (size_t k = 0; k < f->n; k++) {
        const struct fleet_answer *a = &f->answer[k];
        char address[ADDRESS_TEXT_MAX];

        address_text(&a->machine->address, address);
        json_array_append_new(
            list, json_pack("{s:s,s:s,s:b,s:s?,s:o,s:o,s:o}", "name", a->machine->name, "address",
                            address, "reached", (int)a->reached, "error",
                            a->reached ? NULL : a->why.text, "machine", or_null(a->state), "jobs",
                            or_null(a->jobs), "power", or_null(a->power)));
    }
    return list;
}

/* ---- an answer's numbers ---- */

long fleet_cores(const struct fleet_answer *a)
{
    return member_long(a->state, "cpus");
}

long fleet_jobs(const struct fleet_answer *a)
{
    return (long)json_array_size(a->jobs);
}

long fleet_waiting(const struct fleet_answer *a)
{
    const json_t *job;
    long n = 0;
    size_t i;

    json_array_foreach (a->jobs, i, job) {
        const char *state = member_text(job, "state");

        n += strcmp(state, "queued") == 0 || strcmp(state, "held") == 0;
    }
    return n;
}

double fleet_load(const struct fleet_answer *a)
{
    const json_t *load = json_object_get(json_object_get(a->power, "load"), "mcpu");

    return json_is_number(load) ? json_number_value(load) / 1000 : -1;
}
