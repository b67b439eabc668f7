/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/spread.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "kube/inject/agent_files.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "agent-not-spread"

/* Somebody who waits for the object. */
struct spread_wait {
    struct spread_wait *next;
    struct space *space;
    spread_done *done;
    void *arg;
};

/* A namespace. */
struct space {
    struct space *next;
    struct spread *spread;
    struct spread_wait *waits;
    int64_t call;      /* under way; 0: none */
    uint64_t until_ns; /* what is known of it counts so long */
    bool there;
    char name[64];
};

struct spread {
    struct client *client;
    char *text; /* of the object, as JSON */
    spread_log *log;
    struct space *spaces;
    uint64_t failures;
    unsigned n;
    char name[64];
};

static void forget(struct space **at)
{
    struct space *space = *at;

    *at = space->next;
    space->spread->n--;
    free(space);
}

/* Finds or makes one; those that are over go. NULL: too many, or out of memory. */
static struct space *space_of(struct spread *s, const char *name, uint64_t now)
{
    struct space **at = &s->spaces, *space;

    while (*at) {
        space = *at;
        if (strcmp(space->name, name) == 0)
            return space;
        if (s->n >= SPREAD_MAX && !space->call && space->until_ns <= now)
            forget(at);
        else
            at = &space->next;
    }
    if (s->n >= SPREAD_MAX || strlen(name) >= sizeof(space->name))
        return NULL;
    space = calloc(1, sizeof(*space));
    if (!space)
        return NULL;
    space->spread = s;
    strcpy(space->name, name);
    space->next = s->spaces;
    s->spaces = space;
    s->n++;
    return space;
}

/* How long an answer counts. */
static unsigned counts_s(int code)
{
    if (code == 0)
        return SPREAD_FRESH_S;
    return code == -ETIMEDOUT ? SPREAD_AGAIN_S : SPREAD_REFUSE_S;
}

/*
 * Whether one that was there may still be, after an answer of @code: the namespace is there, and
 * nobody has refused to make it anew (a quota counts new objects alone).
 */
static bool may_be_there(int code)
{
    return code != -ENOENT && code != -EACCES && code != -ESHUTDOWN;
}

static void on_written(void *arg, const struct client_answer *answer)
{
    struct space *space = arg;
    struct spread *s = space->spread;
    struct spread_wait *wait;
    bool good = answer->code == 0;
    char text[2 * ERROR_TEXT_MAX];

    space->call = 0;
    space->there = good || (space->there && may_be_there(answer->code));
    space->until_ns = clock_now_ns() + counts_s(answer->code) * NS_PER_S;
    s->failures += !good;
    snprintf(text, sizeof(text), "%s" ERROR_WHY, answer->text);
    if (!good)
        s->log(NULL, text);
    while ((wait = space->waits)) {
        space->waits = wait->next;
        wait->done(wait->arg, good ? NULL : answer->text);
        free(wait);
    }
}

static int write_to(struct space *space)
{
    struct spread *s = space->spread;
    char path[192];
    struct client_request request = {.verb = CLIENT_APPLY,
                                     .path = path,
                                     .text = s->text,
                                     .manager = AGENT_MANAGER,
                                     .done = on_written,
                                     .arg = space,
                                     .timeout_ms = SPREAD_WAIT_MS};

    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/configmaps/%s", space->name, s->name);
    space->call = client_send(s->client, &request);
    if (space->call > 0)
        return 0;
    space->call = 0;
    return -EBUSY;
}

int spread_to(struct spread *s, const char *name_space, spread_done *done, void *arg,
              struct spread_wait **ret, struct error *err)
{
    uint64_t now = clock_now_ns();
    struct space *space = space_of(s, name_space, now);
    struct spread_wait *wait;

    if (!space)
        return error_set(err, -ENOSPC, "too many namespaces");
    if (!space->call && space->until_ns > now)
        return space->there ? 0 : error_set(err, -EAGAIN, "it was refused a moment ago");
    if (!space->call && write_to(space) < 0 && !space->there)
        return error_set(err, -EBUSY, "too many requests to the API server");
    if (space->there) /* it is written anew meanwhile */
        return 0;
    wait = calloc(1, sizeof(*wait));
    if (!wait)
        return error_set(err, -ENOMEM, "out of memory");
    *wait = (struct spread_wait){space->waits, space, done, arg};
    space->waits = wait;
    *ret = wait;
    return 1;
}

void spread_cancel(struct spread_wait *w)
{
    struct spread_wait **at = &w->space->waits;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w);
}

struct spread *spread_new(struct client *client, const char *name, json_t *object, spread_log *log)
{
    struct spread *s = calloc(1, sizeof(*s));
    char *text = json_dumps(object, JSON_COMPACT);

    json_decref(object);
    if (!s || !text) {
        free(s);
        free(text);
        return NULL;
    }
    s->client = client;
    s->text = text;
    s->log = log;
    snprintf(s->name, sizeof(s->name), "%s", name);
    return s;
}

struct spread *spread_free(struct spread *s)
{
    if (!s)
        return NULL;
    while (s->spaces) {
        if (s->spaces->call)
            client_cancel(s->client, s->spaces->call);
        while (s->spaces->waits)
            spread_cancel(s->spaces->waits);
        forget(&s->spaces);
    }
    free(s->text);
    free(s);
    return NULL;
}

unsigned spread_spaces(const struct spread *s)
{
    unsigned n = 0;

    for (const struct space *space = s->spaces; space; space = space->next)
        n += space->there;
    return n;
}

uint64_t spread_failures(const struct spread *s)
{
    return s->failures;
}
