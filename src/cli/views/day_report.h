/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The day of a machine as one web page: no script and nothing from elsewhere, so that it can be
 * sent by mail; light or dark as the reader's screen. Pure but for the stream, which holds
 * failures to write; used by `tide report`.
 */
#pragma once

#include "cli/views/day_energy.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct day {
    char name[64];       /* "Monday, 23 November 2026" */
    const char *host;    /* borrowed */
    double from_s, to_s; /* seconds since 1970; to_s is not after now */
    long cores;
    bool cut;          /* the history had more jobs than were asked for */
    unsigned cut_jobs; /* jobs of which the history told the newest allocations alone */
};

/* @history: the array of GET /v1/history; jobs that did not run or wait in the day are left out. */
void day_report_html(FILE *file, const struct day *day, const json_t *history,
                     const struct day_energy *energy);
