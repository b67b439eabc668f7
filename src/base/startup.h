/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that size a runtime's threads when a program starts: one table for all runtimes.
 * `tide run` and `tide submit` set them for their program; containers get none. A value
 * that the user has set wins, and without a number of threads no size is set. Pure; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum startup_kind {
    STARTUP_SIZE, /* a pool whose size stays: as many threads as the job is to have */
    STARTUP_MOST, /* a pool that the agent resizes: as many as the job may ever have */
    STARTUP_WAIT, /* idle threads sleep instead of spinning */
};

struct startup_row {
    const char *runtime;   /* as in docs/runtimes.md */
    const char *name;      /* of the variable */
    const char *text;      /* the value, or what stands before the number */
    const char *unless[3]; /* variables of the user that decide the same */
    enum startup_kind kind;
    bool added; /* further words may follow the value, and override it */
    bool ours;  /* the variable is Threadtide's own: what was there is replaced */
};

extern const struct startup_row startup_table[];
extern const size_t startup_rows;

/* Marks what an earlier start set, for a start within a job. Its value is startup_mark()'s. */
#define STARTUP_MARK       "TIDE_STARTUP"
#define STARTUP_MARK_MAX   48
#define STARTUP_VALUE_MAX  64
#define STARTUP_SPIN       "TIDE_SPIN" /* not "0": threads spin as their runtimes like it */
#define STARTUP_NUMBER_MAX 4096

struct startup {
    unsigned size; /* threads of pools whose size stays; 0: theirs to choose */
    unsigned most; /* threads that the job may have; 0: no limit */
    bool spin;
    uint32_t set; /* a bit for each row that was really set, in the table's order */
};

/*
 * What a job asks for, 0 for each that it does not. Exactly @threads come first. Of the others a
 * size at or above @cores is the runtime's to choose, because it may know better (physical cores,
 * quotas). @cores are those of the one who starts the program, which may get fewer (mpirun).
 */
struct startup startup_of(unsigned threads, unsigned request, unsigned min, unsigned max,
                          unsigned cores);

/* Writes what @row sets at this start into @buf; false: nothing. */
bool startup_value(const struct startup_row *row, const struct startup *s,
                   char buf[STARTUP_VALUE_MAX]);

/*
 * True if the user leaves the value of @row to us: neither its variable nor one of `unless` is set,
 * as @lookup tells. Ask for all rows before the first is set.
 */
bool startup_free(const struct startup_row *row,
                  const char *(*lookup)(const void *arg, const char *name), const void *arg);

/*
 * Returns the user's own part of @present (NULL: unset), the value of @row's variable, when
 * @earlier has set it: NULL, @present, or what follows our words in it.
 */
const char *startup_own(const struct startup_row *row, const struct startup *earlier,
                        const char *present);

void startup_mark(const struct startup *s, char buf[STARTUP_MARK_MAX]);
bool startup_read_mark(const char *text, struct startup *ret); /* false: not a mark */
