/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/retention.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wholefile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "store-failed"

#define HEAD     "threadtide retention 1"
#define FILE_MAX 128
#define KEEP_MS  600000 /* between two writings of the file; a kill costs so much of the time */

static bool take_newest(void *arg, const struct store_point *p)
{
    int64_t *newest_ms = arg;

    if (p->last_ms > *newest_ms)
        *newest_ms = p->last_ms;
    return true;
}

/* Units have clocks of their own, so their newest record is a second opinion. */
static int begin_anew(struct retention *r, struct store *s, int64_t now_ms, struct error *err)
{
    int64_t newest_ms = 0;
    int k = store_points(s, take_newest, &newest_ms, err);

    if (k < 0)
        return k;
    r->at_ms = newest_ms > 0 && newest_ms < now_ms ? newest_ms : now_ms;
    r->stored_ms = 0;
    return 0;
}

static int keep(struct retention *r, struct error *err)
{
    char text[FILE_MAX];
    int n = snprintf(text, sizeof(text), HEAD " %" PRId64 "\n", r->at_ms);
    int k = wholefile_replace(r->path, text, (size_t)n, NULL);

    if (k < 0)
        return error_set(err, k, "cannot write %.200s: %s", r->path, strerror(-k));
    r->stored_ms = r->at_ms;
    return 0;
}

int retention_begin(struct retention *r, const char *dir, struct store *s, int64_t now_ms,
                    uint64_t boot_ns, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    int n;

    *r = (struct retention){.seen_ns = boot_ns};
    n = snprintf(r->path, sizeof(r->path), "%s/" RETENTION_FILE, dir);
    if (n < 0 || (size_t)n >= sizeof(r->path))
        return error_set(err, -ENAMETOOLONG, "the path of the state is too long");
    if (wholefile_read(r->path, FILE_MAX, &text, &len, &status) < 0 ||
        sscanf(text, HEAD " %" SCNd64, &r->at_ms) != 1 || r->at_ms <= 0)
        return begin_anew(r, s, now_ms, err);
    r->stored_ms = r->at_ms;
    return 0;
}

void retention_step(struct retention *r, int64_t now_ms, uint64_t boot_ns)
{
    int64_t passed_ms = (int64_t)((boot_ns - r->seen_ns) / NS_PER_MS);
    int64_t most_ms = r->at_ms + RETENTION_SPEED * passed_ms;

    r->seen_ns += (uint64_t)passed_ms * NS_PER_MS;
    most_ms = most_ms < now_ms ? most_ms : now_ms;
    r->at_ms = most_ms > r->at_ms ? most_ms : r->at_ms;
}

int retention_run(struct retention *r, struct store *s, int64_t now_ms, uint64_t boot_ns,
                  struct error *err)
{
    int k = 0;

    if (r->stored_ms && access(r->path, F_OK) < 0 && errno == ENOENT)
        k = begin_anew(r, s, now_ms, err);
    retention_step(r, now_ms, boot_ns);
    if (k == 0 && r->at_ms - r->stored_ms >= KEEP_MS)
        k = keep(r, err);
    return k;
}

int64_t retention_ms(const struct retention *r, int64_t now_ms)
{
    return r->at_ms < now_ms ? r->at_ms : now_ms;
}
