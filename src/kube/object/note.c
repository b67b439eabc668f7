/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/object/note.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <string.h>

struct heard {
    uint64_t hash; /* 0: free */
    uint64_t heard_ns, written_ns;
    unsigned count;
    char name[256];
};

struct notes {
    struct heard at[NOTES_MAX];
};

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash * 1099511628211u;
}

struct notes *notes_new(void)
{
    return calloc(1, sizeof(struct notes));
}

struct notes *notes_free(struct notes *n)
{
    free(n);
    return NULL;
}

/* Its place, or the one that it takes. */
static struct heard *find(struct notes *n, uint64_t hash)
{
    struct heard *oldest = &n->at[0];

    for (struct heard *h = n->at; h < n->at + NOTES_MAX; h++) {
        if (h->hash == hash)
            return h;
        if (h->heard_ns < oldest->heard_ns)
            oldest = h;
    }
    return oldest;
}

enum note_move note_next(struct notes *n, struct note *note, uint64_t now)
{
    uint64_t hash = mix(mix(mix(14695981039346656037u, note->uid), note->reason), note->text) | 1;
    struct heard *h = find(n, hash);

    if (h->hash != hash || now - h->heard_ns >= NOTE_FORGET_S * NS_PER_S) {
        *h = (struct heard){.hash = hash, .heard_ns = now, .written_ns = now, .count = 1};
        snprintf(h->name, sizeof(h->name), "%s", note->name);
        return NOTE_NEW;
    }
    h->count++;
    h->heard_ns = now;
    if (now - h->written_ns < NOTE_SERIES_S * NS_PER_S)
        return NOTE_HEARD;
    h->written_ns = now;
    note->count = h->count;
    snprintf(note->name, sizeof(note->name), "%s", h->name);
    return NOTE_AGAIN;
}

json_t *note_series(const struct note *note, int64_t wall_ns)
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
