/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes metrics in Prometheus' text format to a stream in memory. prometheus_end() reports errors
 * of all writes. Any thread.
 */
#pragma once

#include <stdio.h>

#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Writes the lines before a metric's values. @type is "gauge", "counter" or "histogram". */
void prometheus_family(FILE *f, const char *name, const char *type, const char *help);

/* Writes a metric with one value and no label. */
void prometheus_one(FILE *f, const char *name, const char *type, const char *help, double value);

/* Writes the value of a label. Bytes that are no UTF-8 become "?". */
void prometheus_label(FILE *f, const char *text);

/* Writes what this process has used: process_cpu_seconds_total, process_resident_memory_bytes. */
void prometheus_process(FILE *f, const char *program);

/* Closes @f, a stream of open_memstream on *text. Returns the text, which the caller frees, or
 * NULL. */
char *prometheus_end(FILE *f, char **text);
