// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plant.h"

/* Reads what plant_draw.py prints from standard input. Returns what plant_check() says, or
 * PLANT_PARAM_COUNT where a name is no parameter's. */
int params_read(struct plant_params *ret);
