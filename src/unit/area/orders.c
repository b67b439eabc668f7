/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/orders.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/wholefile.h"
#include "edge/payload.h"
#include "unit/config.h"
#include "unit/log.h"

#define ERROR_WORD "state-unusable"

#define ORDER_LINE_MAX (PAYLOAD_WORD_MAX + 24)
#define KEEP_MS        3600000 /* the hub's clock and ours may differ by so much */

struct noted {
    uint64_t until_ms;
    char id[PAYLOAD_WORD_MAX];
};

struct orders {
    char path[CONFIG_PATH_MAX + 16];
    unsigned count;
    struct noted noted[ORDERS_MAX];
};

static int store(const struct orders *o)
{
    size_t size = ORDER_LINE_MAX * (size_t)(o->count + 1), n = 0;
    _cleanup_free_ char *text = malloc(size);
    int r = text ? fault(FAULT_ORDER_STORE) : -ENOMEM;

    if (r < 0)
        return r;
    text[0] = '\0';
    for (unsigned i = 0; i < o->count; i++)
        n += (size_t)snprintf(text + n, size - n, "%" PRIu64 " %s\n", o->noted[i].until_ms,
                              o->noted[i].id);
    r = wholefile_replace(o->path, text, n, NULL);
    failpoint(FAILPOINT_ORDER_NOTED);
    return r;
}

static void load(struct orders *o, char *text)
{
    char *next = text;

    while (next && *next && o->count < ORDERS_MAX) {
        struct noted *n = &o->noted[o->count];
        char *line = strsep(&next, "\n");

        if (sscanf(line, "%" SCNu64 " %63[^\n]", &n->until_ms, n->id) == 2)
            o->count++;
        else
            unit_err("%s: '%.40s' is no command; it is left out", o->path, line);
    }
}

int orders_open(const char *state_dir, struct orders **ret, struct error *err)
{
    struct orders *o = calloc(1, sizeof(*o));
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    int r;

    if (!o)
        return error_set(err, -ENOMEM, "out of memory: commands cannot be remembered");
    snprintf(o->path, sizeof(o->path), "%s/commands", state_dir);
    r = wholefile_read(o->path, ORDER_LINE_MAX * ORDERS_MAX, &text, &len, &status);
    if (r == 0)
        load(o, text);
    else if (r != -ENOENT)
        unit_err("%s cannot be read: %s", o->path, strerror(-r));
    *ret = o;
    return 0;
}

void orders_close(struct orders *o)
{
    free(o);
}

bool orders_known(const struct orders *o, const char *id)
{
    for (unsigned i = 0; i < o->count; i++)
        if (strcmp(o->noted[i].id, id) == 0)
            return true;
    return false;
}

static void drop_old(struct orders *o, uint64_t wall_ms)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < o->count; i++)
        if (o->noted[i].until_ms + KEEP_MS > wall_ms)
            o->noted[kept++] = o->noted[i];
    o->count = kept;
}

int orders_note(struct orders *o, const char *id, uint64_t until_ms, uint64_t wall_ms)
{
    struct noted *n;
    int r;

    if (o->count == ORDERS_MAX)
        drop_old(o, wall_ms);
    if (o->count == ORDERS_MAX)
        return -E2BIG;
    n = &o->noted[o->count++];
    n->until_ms = until_ms;
    snprintf(n->id, sizeof(n->id), "%s", id);
    r = store(o);
    if (r < 0)
        o->count--;
    return r;
}
