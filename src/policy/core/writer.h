/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text into a buffer of fixed size, cut where it is full: no locale, no snprintf, so that texts
 * stay as pure as decisions. Any thread (each caller owns its writer); used in src/policy alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writer {
    char *buf;
    size_t size; /* 0: nothing is written */
    size_t length;
};

void put_char(struct writer *w, char c);
void put_text(struct writer *w, const char *text);
void put_number(struct writer *w, int64_t value);

/* Ends the text; returns its length. */
size_t put_end(struct writer *w);

/* strcmp() is no part of what policy objects may import. */
bool text_same(const char *a, const char *b);
