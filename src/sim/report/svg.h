/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of runs as SVG: plain elements, no script, colours from a style sheet that follows the
 * reader's light or dark screen. All goes to a stream, whose errors the caller checks at the end.
 * Any thread; used by report.c and `tide sim`.
 */
#pragma once

#include "sim/engine/metrics.h"
#include "sim/report/chart.h"

#include <stdio.h>

#define SVG_WIDTH 960 /* width of every picture */

/* The style sheet of the pictures, without the element around it. */
extern const char svg_style[];

/* Writes text with &, <, > and " as entities, for SVG and HTML. */
void svg_text(FILE *file, const char *text);

/* Each writes one <svg> element, @y below the top of the one around it, and returns its height. */

/* Draws cores held and jobs present over the whole run, and the machine's cores as a line. */
int svg_timelines(FILE *file, int y, const struct chart *chart, uint32_t cores);

/* Draws a row for each job: waiting, paused, and running in relation to its most cores. */
int svg_gantt(FILE *file, int y, const struct chart *chart);

/* Draws a bar for each estimate with its interval; @unit may be "". */
int svg_bars(FILE *file, int y, const char *unit, const char *const *names,
             const struct sim_estimate *estimates, uint32_t count);

/* Writes a file with timelines and Gantt chart of several charts, below their names. */
void svg_file(FILE *file, const char *title, const char *const *names, struct chart *const *charts,
              uint32_t count, uint32_t cores);
