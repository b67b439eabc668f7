/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The energy of a day as a part of the page of `tide report`: the machine's, and that of users and
 * jobs, with bounds, cost and CO2 where these are configured. Pure but for the stream; used by
 * day_report.c.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Answers of GET /v1/energy for the day, by part, user and job; NULL: the daemon told nothing. */
struct day_energy {
    json_t *parts, *users, *jobs;
};

/* A cell of a table, for the whole page; @kind: its attributes, or "". */
void day_cell(FILE *file, const char *kind, const char *text);

void day_energy_done(struct day_energy *e);

/* Whether anything of the machine's energy is known. */
bool day_energy_known(const struct day_energy *e);

/* Items of the page's summary: energy, cost, CO2. Writes nothing when nothing is known. */
void day_energy_summary(FILE *file, const struct day_energy *e);

/* Tables by user and by job. Says so when a daemon that measures knows nothing of the day. */
void day_energy_tables(FILE *file, const struct day_energy *e);
