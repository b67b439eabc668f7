/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Store and forward: records of energy in one SQLite file until the parent has stored them. A
 * record holds cumulative energy, so a record that is dropped costs resolution and never energy:
 * when the file is full, the oldest records become one a minute, then one in 15 minutes, then only
 * each point's newest.
 *
 * Records are put one by one and written by outbox_flush(), in one transaction that survives a
 * power cut. On a full disk they stay in memory, at most OUTBOX_MEMORY_MAX of them.
 *
 * The event loop's thread of src/unit; src/hub reads struct outbox_record alone.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "power/measure/range.h"

#define OUTBOX_POINT_MAX  64
#define OUTBOX_MEMORY_MAX 1024                      /* records that wait to be written */
#define OUTBOX_NOTES_MAX  512                       /* two for each meter of a unit */
#define OUTBOX_UJ_MAX     ((UINT64_C(1) << 62) - 1) /* of a total: 1.28 GWh */

struct outbox_record {
    char point[OUTBOX_POINT_MAX]; /* "machine", "meter:NAME", "part:idle", … */
    uint64_t boot, seq;           /* seq grows; unique with boot */
    uint64_t from_ms, to_ms;      /* wall clock */
    uint64_t mono_ns;             /* monotonic time of the end */
    struct energy_range total;    /* since @boot began */
    uint64_t raw_uj;              /* the meter's own counter, for a restart; not sent; 0: none */
    uint32_t gap_ms;              /* of from … to, of which nothing is known */
};

struct outbox;

/*
 * Opens or makes the file. Totals from half of OUTBOX_UJ_MAX on begin anew under @boot if no record
 * waits for a receipt; a parent counts on. @boot: a random number of 63 bits for a new file, whose
 * totals begin at 0; an older file keeps its own. Returns 0; 1 with the reason in @err: the file
 * was damaged and lies beside the new one now; or -errno.
 */
int outbox_open(const char *path, uint64_t bytes_max, uint64_t boot, struct outbox **ret,
                struct error *err);
struct outbox *outbox_close(struct outbox *o); /* flushes; NULL is fine; returns NULL */

uint64_t outbox_boot(const struct outbox *o);

/* Total, time and raw_uj of a point's newest record, also after its receipt. Returns 0 or -ENOENT.
 */
int outbox_last(struct outbox *o, const char *point, struct outbox_record *ret);

/*
 * Takes a record for the next flush; gives it boot and seq. A total that has come to its end stays
 * there, and the record's time becomes a gap.
 */
void outbox_put(struct outbox *o, struct outbox_record *r);

/*
 * Remembers total, time and raw_uj of a point for outbox_last(), without a record to send: what
 * other points' records already hold of it must not be counted again after a restart. At most
 * OUTBOX_NOTES_MAX points; with the next flush, in one transaction with the records before it.
 */
void outbox_note(struct outbox *o, const struct outbox_record *r);

/* Writes what was put. Returns 0, or -errno (-ENOSPC): it stays in memory for the next time. */
int outbox_flush(struct outbox *o, struct error *err);

/* Up to @max records without a receipt after @after_seq, oldest first, flushed before if that
 * works. */
int outbox_next(struct outbox *o, uint64_t after_seq, size_t max, struct outbox_record *ret,
                size_t *ret_n);

/* The parent has stored all up to @seq. Another boot's receipt is ignored. Returns 0 or -errno. */
int outbox_receipt(struct outbox *o, uint64_t boot, uint64_t seq);
