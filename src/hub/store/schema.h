/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the store's schema. Private to this room, and for the test of upgrades. */
#pragma once

/* Step n makes version n + 1 of version n, in SQLite and in PostgreSQL. A step that was released
 * never changes. */
extern const char *const store_steps[];
extern const char *const store_steps_postgres[];
extern const unsigned store_version;
