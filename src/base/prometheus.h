/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics in Prometheus' text format. All goes to a stream in memory, whose owner looks for errors
 * when it closes it. Any thread; used by tided and tide-kube.
 */
#pragma once

#include <stdio.h>

#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The lines in front of a metric's values. @type is "gauge", "counter" or "histogram". */
void prometheus_family(FILE *f, const char *name, const char *type, const char *help);

/* A metric with one value and no label. */
void prometheus_one(FILE *f, const char *name, const char *type, const char *help, double value);

/* The value of a label: UTF-8, so that bytes of other texts become "?". */
void prometheus_label(FILE *f, const char *text);

/* What this process has used: process_cpu_seconds_total and process_resident_memory_bytes. */
void prometheus_process(FILE *f, const char *program);

/* Closes @f, a stream of open_memstream on *text. Returns the text, which the caller frees, or
 * NULL. */
char *prometheus_end(FILE *f, char **text);
