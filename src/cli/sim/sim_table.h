/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as tables for people, on stdout. Single-threaded; used by `tide sim`. */
#pragma once

#include "sim/report/compare.h"

/* @all: every metric, a line each; else a line for each policy. 0, or -ENOMEM. */
int sim_table_print(const struct compare *compare, bool all);
