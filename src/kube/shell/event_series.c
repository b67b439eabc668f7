/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/event_series.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fnv.h"

#include <string.h>

struct heard {
    uint64_t hash; /* 0: free */
    uint64_t heard_ns, written_ns;
    unsigned count;
    char name[256];
};

struct event_series_set {
    struct heard at[EVENT_SERIES_MAX];
};

/* With its NUL, so that two texts are not taken for one. */
static uint64_t mix(uint64_t hash, const char *text)
{
    return fnv_bytes(hash, text, strlen(text) + 1);
}

struct event_series_set *event_series_new(void)
{
    return calloc(1, sizeof(struct event_series_set));
}

struct event_series_set *event_series_free(struct event_series_set *n)
{
    free(n);
    return NULL;
}

/* Its place, or the one that it takes. */
static struct heard *find(struct event_series_set *n, uint64_t hash)
{
    struct heard *oldest = &n->at[0];

    for (struct heard *h = n->at; h < n->at + EVENT_SERIES_MAX; h++) {
        if (h->hash == hash)
            return h;
        if (h->heard_ns < oldest->heard_ns)
            oldest = h;
    }
    return oldest;
}

enum event_series_move event_series_next(struct event_series_set *n, struct event_series *note,
                                         uint64_t now)
{
    uint64_t hash = mix(mix(mix(FNV_START, note->uid), note->reason), note->text) | 1;
    struct heard *h = find(n, hash);

    if (h->hash != hash || now - h->heard_ns >= EVENT_SERIES_FORGET_S * NS_PER_S) {
        *h = (struct heard){.hash = hash, .heard_ns = now, .written_ns = now, .count = 1};
        snprintf(h->name, sizeof(h->name), "%s", note->name);
        return EVENT_SERIES_NEW;
    }
    h->count++;
    h->heard_ns = now;
    if (now - h->written_ns < EVENT_SERIES_WRITE_S * NS_PER_S)
        return EVENT_SERIES_HEARD;
    h->written_ns = now;
    note->count = h->count;
    snprintf(note->name, sizeof(note->name), "%s", h->name);
    return EVENT_SERIES_AGAIN;
}

json_t *event_series_patch(const struct event_series *note, int64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / (int64_t)NS_PER_S);
    struct tm tm;
    char text[48];
    size_t len;

    gmtime_r(&seconds, &tm);
    len = strftime(text, sizeof(text), "%FT%T", &tm);
    snprintf(text + len, sizeof(text) - len, ".%06uZ",
             (unsigned)(wall_ns % (int64_t)NS_PER_S / 1000));
    return json_pack("{s:{s:i,s:s}}", "series", "count", (int)note->count, "lastObservedTime",
                     text);
}
