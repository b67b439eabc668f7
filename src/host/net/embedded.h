/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the page (ui/dist) inside a program, and the headers that keep a browser from
 * running anything else. Event loop's thread; used by door.c and tide-hub.
 */
#pragma once

#include "host/net/httpd.h"

#include <stdbool.h>
#include <stddef.h>

struct embedded_file {
    const char *path; /* "/page.js"; the first one is also "/". NULL ends a table */
    const char *type, *etag;
    const char *text;
    size_t len;
};

/* Made of ui/dist by scripts/embed.py when the program is built. */
extern const struct embedded_file embedded_page[];

/*
 * Adds to the answer what every answer to a browser carries: scripts, styles and connections from
 * this server alone, no frames, no guessed types, no addresses told to others. 0, or -errno: then
 * answer with an error.
 */
int embedded_protect(struct httpd_request *r);

/*
 * Answers @r with the file of its path: 200, or 304 when the browser has it. The caller has called
 * embedded_protect(). Returns false, with nothing done, if there is no such file.
 */
bool embedded_answer(const struct embedded_file *files, struct httpd_request *r);
