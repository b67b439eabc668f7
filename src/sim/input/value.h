/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a value of a scenario or trace (12, 0.95, "15min", "64G", "malleable") as an integer in the
 * simulator's unit. Any thread, pure; used by the readers of scenarios and traces. Messages name
 * the value and the expected form; readers add the place.
 */
#pragma once

#include "base/error.h"
#include "base/size.h"

#include <stddef.h>
#include <stdint.h>

#define VALUE_TEXT_MAX DEVICES_TEXT_MAX

/* 10000 days: sums of a few stay far below 64 bits. */
#define VALUE_DURATION_MAX (INT64_C(864000000) * 1000000000)

enum value_kind {
    VALUE_COUNT,    /* a whole number */
    VALUE_DURATION, /* seconds, or with a unit; as ns */
    VALUE_BYTES,    /* bytes, or with K, M, G, T (of 1024) */
    VALUE_POWER,    /* watts; as microwatts */
    VALUE_FACTOR,   /* a ratio; in thousandths */
    VALUE_FRACTION, /* 0 … 1; in thousand-millionths */
    VALUE_WORD,     /* only words */
    VALUE_DEVICES,  /* "nvidia=2,uverbs=1"; as counts of base/devices.h */
    VALUE_KIND_MAX
};

/* The type of a field: a quantity in min … max (in base units), or one of the words. */
struct value_type {
    enum value_kind kind;
    int64_t min, max;
    const char *const *words; /* ended by NULL; NULL: none */
    int64_t first_word;       /* value of words[0]; the others follow */
};

/*
 * Each sets *ret_value and returns 0, or returns -EINVAL with a reason. The text may be a word.
 * Texts that are no number, fractions where whole numbers are needed, and values out of range are
 * refused.
 */
int value_from_text(const struct value_type *type, const char *text, int64_t *ret_value,
                    struct error *err);
int value_from_number(const struct value_type *type, double number, int64_t *ret_value,
                      struct error *err);

/*
 * Returns the type's nearest value to @units, an amount in base units: durations in whole
 * microseconds and fractions in thousandths, so that the last bits of a random number do not show.
 */
int64_t value_round(const struct value_type *type, double units);

/* Writes the value as a user would: "1.5s", "64G", "malleable". */
const char *value_text(const struct value_type *type, int64_t value, char buf[VALUE_TEXT_MAX]);
