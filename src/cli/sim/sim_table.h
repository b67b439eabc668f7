/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a comparison as tables on stdout. Single-threaded; used by `tide sim`. */
#pragma once

#include "sim/report/compare.h"

/* @all: every metric on a line; else every policy on a line. 0, or -ENOMEM. */
int sim_table_print(const struct compare *compare, bool all);
