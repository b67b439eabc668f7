/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/schema.h"

#include "base/cleanup.h"

/*
 * point: the newest total of each point of each unit. sample: its energy in the stretch that ends
 * at to_ms, in the row of the step (1, 60 or 900 s) that it was summed up to.
 */
const char *const store_steps[] = {
    "CREATE TABLE point (id INTEGER PRIMARY KEY, unit TEXT NOT NULL, name TEXT NOT NULL,"
    " boot INTEGER NOT NULL, seq INTEGER NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL,"
    " high INTEGER NOT NULL, UNIQUE (unit, name));"
    "CREATE TABLE sample (step INTEGER NOT NULL, point INTEGER NOT NULL, to_ms INTEGER NOT NULL,"
    " from_ms INTEGER NOT NULL, uj INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL,"
    " basis INTEGER NOT NULL, gap INTEGER NOT NULL, PRIMARY KEY (step, point, to_ms))"
    " WITHOUT ROWID;"
    "CREATE INDEX sample_by_time ON sample (step, to_ms);",
};
const unsigned store_version = ARRAY_LEN(store_steps);
