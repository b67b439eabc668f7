/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of a job are what its owner may ask for it: one row each in attribute_rows.h. The
 * table makes the members of `struct attributes`, options and their help (src/cli/terms.h),
 * members of requests and answers (src/daemon/api), labels of containers
 * (src/daemon/containers/labels.c), the file of a job (src/daemon/record/store.c), and parts of the
 * manual pages and completions (src/cli/document). Pure; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a job's share becomes cores. */
enum placement { PLACEMENT_SHARED, PLACEMENT_EXCLUSIVE, PLACEMENT_QUOTA, PLACEMENT_MAX };

enum attribute_kind {
    KIND_NUMBER,  /* in JSON an integer */
    KIND_MEMORY,  /* bytes; text "512M", in JSON an integer */
    KIND_MOMENT,  /* milliseconds since 1970; in JSON seconds since 1970 */
    KIND_CHOICE,  /* index of a name; in JSON the name */
    KIND_PROMISE, /* microseconds; text "p99=50ms", also in JSON */
    KIND_DEVICES, /* counts of base/devices.h; text "nvidia=1", also in JSON */
};

struct attribute_choice {
    const char *name, *text;
};

struct attribute {
    const char *key;    /* in requests; the option is --KEY, the label io.threadtide.KEY */
    const char *shown;  /* its name in answers of the API; NULL: the key */
    const char *stored; /* its name in a job's file; NULL: as in answers */
    const char *value;  /* placeholder of the value in help: "K" */
    const char *text;   /* help in one line, no full stop */
    const char *page;   /* text for manual pages, in scdoc's syntax */
    const struct attribute_choice *choices; /* KIND_CHOICE: one for each of least … most */
    int64_t least, most, usual;
    size_t offset; /* in struct attributes */
    enum attribute_kind kind;
    bool none;       /* may be taken back, by null in JSON; the value is 0 then */
    bool none_word;  /* the option takes "none" to take it back */
    bool fixed;      /* cannot change after the job's start */
    bool docker_has; /* `docker run` has an option of that name, which is no label of ours */
};

/* The values that a job's owner asks for. No padding, because memcmp() compares them. */
struct attributes {
#define ATTRIBUTE(ID, member, ...) int64_t member;
#include "proto/attribute_rows.h"
#undef ATTRIBUTE
};

enum attribute_id {
#define ATTRIBUTE(ID, member, ...) ATTRIBUTE_##ID,
#include "proto/attribute_rows.h"
#undef ATTRIBUTE
    ATTRIBUTE_COUNT
};

extern const struct attribute attribute_table[ATTRIBUTE_COUNT];

/* for (each_attribute(a)) … */
/* NOLINTBEGIN(bugprone-macro-parentheses): it declares @a */
#define each_attribute(a)                                                                          \
    const struct attribute *a = attribute_table;                                                   \
    a < attribute_table + ATTRIBUTE_COUNT;                                                         \
    a++
/* NOLINTEND(bugprone-macro-parentheses) */

/* Returns the values of a job that asks for nothing. */
struct attributes attributes_usual(void);

int64_t attribute_get(const struct attribute *a, const struct attributes *from);
void attribute_set(const struct attribute *a, struct attributes *to, int64_t value);

/* Whether @value is within the bounds, or is 0 and the attribute may be taken back. */
bool attribute_holds(const struct attribute *a, int64_t value);

/* Which attributes a command takes; a container's labels take all. */
enum attributes_of {
    ATTRIBUTES_NONE,
    ATTRIBUTES_OF_START,  /* commands that begin a job: run, submit, adopt */
    ATTRIBUTES_OF_CHANGE, /* the command that changes one: set */
    ATTRIBUTES_OF_DOCKER, /* docker run */
};

bool attribute_is_of(const struct attribute *a, enum attributes_of which);

/*
 * Writes one line of help: the attribute's text, with bounds and usual value where they matter.
 * Cuts it to @size; returns @buf.
 */
const char *attribute_help(const struct attribute *a, char *buf, size_t size);

/* Returns the attribute whose key is the @length bytes of @key, or NULL. */
const struct attribute *attribute_find(const char *key, size_t length);

/*
 * Reads a value as people write it, but for moments, which options and labels read themselves.
 * Returns 0, -EINVAL (not of that kind) or -ERANGE (out of bounds).
 */
int attribute_parse(const struct attribute *a, const char *text, int64_t *ret);

/* Writes "p99=50ms" for microseconds, in the largest unit that keeps it exact. Returns @buf. */
#define PROMISE_TEXT_MAX 32
const char *promise_text(int64_t us, char buf[PROMISE_TEXT_MAX]);

/* Writes "shared, exclusive or quota", @last ("or") before the last; cut to @size. Returns @buf. */
const char *attribute_choices(const struct attribute *a, const char *last, char *buf, size_t size);

const char *placement_name(enum placement placement);
int placement_parse(const char *text, enum placement *ret); /* 0 or -EINVAL */
