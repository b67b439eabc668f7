/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that size a runtime's threads when a program starts: one table for all runtimes.
 * `tide run` and `tide submit` set them for their program, `tide docker run` and tide-runc for a
 * container's. A value that the user (or the image) has set wins, and without a number of threads
 * no size is set. Pure; any thread.
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
    const char *text;      /* the value; of a size, what precedes the number */
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
#define STARTUP_MOST_NAME  "TIDE_MAX"
#define STARTUP_OWN_MAX    65536 /* bytes of a user's value to which we would add ours */
#define STARTUP_NUMBER_MAX 4096

struct startup {
    unsigned size; /* threads of pools whose size stays; 0: theirs to choose */
    unsigned most; /* threads that the job may have; 0: no limit */
    bool spin;
    uint32_t set; /* a bit for each row that was really set, in the table's order */
};

/*
 * The sizes for a job; 0 for each that it does not ask for. Exactly @threads come first. Any other
 * size at or above @cores is the runtime's to choose, because it may know better (physical cores,
 * quotas). @cores are those of the one who starts the program, which may get fewer (mpirun).
 */
struct startup startup_of(unsigned threads, unsigned request, unsigned min, unsigned max,
                          unsigned cores);

/* Tells the value that @name has; NULL: none, or an empty one, which runtimes read as none. */
typedef const char *startup_lookup(const void *arg, const char *name);

struct startup_container {
    unsigned request, min, max; /* of the job, 0: not asked for */
    unsigned limit_mcpu;        /* processor time that it may use at most; 0: no limit */
    unsigned cores;             /* CPUs that it may use */
};

/*
 * The same for a container. Its limit bounds its sizes, since runtimes do not read it (Java and Go
 * do), but no pool that the agent resizes: the engine can change a limit. @lookup tells the
 * container's own variables.
 */
struct startup startup_of_container(const struct startup_container *c, startup_lookup *lookup,
                                    const void *arg);

bool startup_spins(const char *value); /* of STARTUP_SPIN; NULL: unset */

/* Writes what @row sets at this start into @buf; false: nothing. */
bool startup_value(const struct startup_row *row, const struct startup *s,
                   char buf[STARTUP_VALUE_MAX]);

/*
 * True if the user leaves the value of @row to us: neither its variable nor one of `unless` is set,
 * as @lookup tells. Ask for all rows before the first is set.
 */
bool startup_free(const struct startup_row *row, startup_lookup *lookup, const void *arg);

/*
 * Calls @set for each variable of this start and for the mark, after it has asked @lookup for all.
 * @s->set tells which rows were set. @set returns 0, or 1 to leave a variable out, or -errno.
 * Returns 0, or the first error of @set, or -ENOMEM.
 */
int startup_apply(struct startup *s, startup_lookup *lookup,
                  int (*set)(void *arg, const char *name, const char *value), void *arg);

/* True if a size was set: the program is moldable, with @s->size threads. */
bool startup_sized(const struct startup *s);

/* The row of the variable @name; NULL: none has that name. */
const struct startup_row *startup_row_of(const char *name);
/* True if @s has set the variable of @row. */
bool startup_is_set(const struct startup *s, const struct startup_row *row);

/*
 * Returns the user's own part of @present (NULL: unset), the value of @row's variable, when
 * @earlier has set it: NULL, @present, or what follows our words in it.
 */
const char *startup_own(const struct startup_row *row, const struct startup *earlier,
                        const char *present);
/* The same by name; @present for a name of no row. */
const char *startup_own_of(const char *name, const struct startup *earlier, const char *present);

void startup_mark(const struct startup *s, char buf[STARTUP_MARK_MAX]);
bool startup_read_mark(const char *text, struct startup *ret); /* false: not a mark */
