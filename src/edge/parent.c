/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/parent.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/wholefile.h"
#include "edge/payload.h"
#include "power/cap/caps.h"
#include "power/division/tenure.h"

#define ERROR_WORD "state-unusable"

#define HEAD     "threadtide tenure 1"
#define FILE_MAX 256

struct parent {
    parent_send send;
    parent_say say;
    void *arg;
    struct tenure tenure;
    struct lease_message lease; /* the newest that was taken */
    bool owed;                  /* it is not acknowledged */
    bool told_late;             /* said that it is not kept yet */
    bool unstored;              /* said that the disk cannot keep what counts without a lease */
    uint32_t stored_kind;
    uint64_t stored_floor_uw;
    bool stored;
    uint64_t asked_ns;
    char path[PATH_MAX];
};

__attribute__((format(printf, 2, 3))) static void say(const struct parent *p, const char *fmt, ...)
{
    char text[PATH_MAX + ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    p->say(p->arg, text);
}

/* ---- what counts without a lease ------------------------------------------------------------- */

/* Returns 0 when the disk has it. */
static int store(struct parent *p)
{
    char text[FILE_MAX];
    int n, r;

    if (p->stored && p->stored_kind == p->lease.kind && p->stored_floor_uw == p->lease.floor_uw)
        return 0;
    n = snprintf(text, sizeof(text), HEAD " %u %" PRIu64 "\n", p->lease.kind, p->lease.floor_uw);
    r = fault(FAULT_TENURE_STORE);
    if (r == 0)
        r = wholefile_replace(p->path, text, (size_t)n, NULL);
    failpoint(FAILPOINT_TENURE_STORED);
    if (r < 0 && !p->unstored)
        say(p, "%s cannot be written: %s; leases are not acknowledged" ERROR_WHY, p->path,
            strerror(-r));
    p->unstored = r < 0;
    if (r < 0)
        return r;
    p->stored = true;
    p->stored_kind = p->lease.kind;
    p->stored_floor_uw = p->lease.floor_uw;
    return 0;
}

static void load(struct parent *p)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;

    if (wholefile_read(p->path, FILE_MAX, &text, &len, &status) < 0)
        return;
    p->stored = sscanf(text, HEAD " %u %" SCNu64, &p->stored_kind, &p->stored_floor_uw) == 2 &&
                p->stored_kind < CAP_KIND_MAX;
    if (p->stored)
        tenure_begin(&p->tenure, p->tenure.boot, p->stored_kind, p->stored_floor_uw);
    else
        say(p, "%s cannot be read: until a lease comes, the policy and cap= alone count" ERROR_WHY,
            p->path);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static void acknowledge(struct parent *p, bool kept)
{
    struct payload_ack ack = {
        .boot = p->lease.boot, .number = p->lease.number, .uw = p->lease.uw, .kept = kept};

    if (p->send(p->arg, TOPIC_ACK, payload_ack_text(&ack)) == 0 && kept)
        p->owed = false;
}

void parent_got(struct parent *p, const struct mqtt_message *m)
{
    struct lease_message lease;
    struct error err;

    if (payload_lease_read(m->bytes, m->len, &lease, &err) < 0) {
        say(p, "a message of the parent is ignored: %s", error_said(&err));
        return;
    }
    if (tenure_take(&p->tenure, &lease, clock_boot_ns()) < 0)
        return; /* late or overtaken: both are normal */
    p->lease = lease;
    p->owed = true; /* also of one that comes again: the acknowledgement was lost */
    p->told_late = false;
}

bool parent_cap(const struct parent *p, uint64_t *ret_uw, uint32_t *ret_kind)
{
    *ret_kind = p->tenure.kind;
    return tenure_cap(&p->tenure, clock_boot_ns(), ret_uw);
}

void parent_tick(struct parent *p, uint64_t sum_uw)
{
    uint64_t now = clock_boot_ns();
    struct payload_ask ask = {.boot = p->tenure.boot, .stamp_ns = now};

    if (p->owed && now < p->tenure.until_ns && store(p) == 0) {
        if (sum_uw <= p->lease.uw) {
            acknowledge(p, true);
        } else if (!p->told_late) {
            acknowledge(p, false);
            p->told_late = true;
        }
    }
    if (p->asked_ns && now - p->asked_ns < LEASE_ASK_MS * NS_PER_MS)
        return;
    if (p->send(p->arg, TOPIC_ASK, payload_ask_text(&ask)) == 0)
        p->asked_ns = now;
}

/* ---- begin and end --------------------------------------------------------------------------- */

int parent_new(const char *path, parent_send send, parent_say tell, void *arg, struct parent **ret,
               struct error *err)
{
    struct parent *p = calloc(1, sizeof(*p));
    uint64_t boot;

    if (!p)
        return error_set(err, -ENOMEM, "out of memory: no leases of the parent are taken");
    if (getrandom(&boot, sizeof(boot), 0) != sizeof(boot)) {
        free(p);
        return error_set(err, -EIO, "no random numbers");
    }
    p->send = send;
    p->say = tell;
    p->arg = arg;
    p->tenure.boot = boot >> 1 | 1;
    if ((size_t)snprintf(p->path, sizeof(p->path), "%s", path) >= sizeof(p->path)) {
        free(p);
        return error_set(err, -ENAMETOOLONG, "%.200s: too long", path);
    }
    load(p);
    *ret = p;
    return 0;
}

struct parent *parent_free(struct parent *p)
{
    free(p);
    return NULL;
}
