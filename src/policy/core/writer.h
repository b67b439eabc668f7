/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes text into a buffer of fixed size and cuts it where the buffer is full. It uses no locale
 * and no snprintf, so that texts stay as pure as decisions. Any thread; used in src/policy alone.
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

/* Replaces strcmp(), which policy objects may not import. */
bool text_same(const char *a, const char *b);
