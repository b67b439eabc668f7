/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/discovery.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_LEN 64

struct discovery {
    struct client *client;
    sd_event_source *timer;
    const char *group;
    discovery_fn *fn;
    void *arg;
    int64_t call;
    bool known;
    char version[VERSION_LEN];
};

static void ask_in(struct discovery *d, unsigned seconds)
{
    sd_event_source_set_time(d->timer, (clock_now_ns() + seconds * NS_PER_S) / NS_PER_US + 1);
    sd_event_source_set_enabled(d->timer, SD_EVENT_ONESHOT);
}

static void learn(struct discovery *d, const char *version)
{
    bool news = !d->known || strcmp(d->version, version) != 0;

    d->known = true;
    snprintf(d->version, sizeof(d->version), "%s", version);
    ask_in(d, DISCOVERY_EVERY_S);
    if (news)
        d->fn(d->arg);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct discovery *d = arg;
    const char *version = json_string_value(
        json_object_get(json_object_get(answer->body, "preferredVersion"), "version"));

    d->call = 0;
    if (answer->code == 0 && version && strlen(version) < VERSION_LEN)
        learn(d, version);
    else if (answer->code == -ENOENT)
        learn(d, "");
    else /* the last answer stays */
        ask_in(d, DISCOVERY_AGAIN_S);
}

static int on_time(sd_event_source *s, uint64_t usec, void *arg)
{
    struct discovery *d = arg;
    char path[300];

    snprintf(path, sizeof(path), "/apis/%s", d->group);
    d->call = client_send(
        d->client,
        &(struct client_request){.verb = CLIENT_GET, .path = path, .done = on_answer, .arg = d});
    if (d->call < 0) {
        d->call = 0;
        ask_in(d, DISCOVERY_AGAIN_S);
    }
    return 0;
}

int discovery_new(struct client *client, sd_event *event, const char *group, discovery_fn *fn,
                  void *arg, struct discovery **ret)
{
    struct discovery *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return -ENOMEM;
    *d = (struct discovery){.client = client, .group = group, .fn = fn, .arg = arg};
    r = sd_event_add_time(event, &d->timer, CLOCK_MONOTONIC, 0, 1000, on_time, d);
    if (r < 0) {
        discovery_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

struct discovery *discovery_free(struct discovery *d)
{
    if (!d)
        return NULL;
    if (d->call)
        client_cancel(d->client, d->call);
    sd_event_source_disable_unref(d->timer);
    free(d);
    return NULL;
}

const char *discovery_version(const struct discovery *d)
{
    return d && d->known ? d->version : NULL;
}
