/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of power caps. Daemon's event loop only; called by the routes. */
#pragma once

#include <jansson.h>

struct daemon;

/* The cap in force, whether it is kept, all caps that stand, and the curve behind them. */
json_t *view_cap(const struct daemon *d);
