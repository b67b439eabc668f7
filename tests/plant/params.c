// SPDX-License-Identifier: Apache-2.0
#include "params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int params_read(struct plant_params *ret)
{
    char name[64];
    uint64_t value;

    while (scanf(" %63[^=]=%" SCNu64, name, &value) == 2) {
        int i = 0;

        while (plant_param_name(i) && strcmp(plant_param_name(i), name) != 0)
            i++;
        if (!plant_param_name(i))
            return PLANT_PARAM_COUNT;
        *plant_param(ret, i) = value;
    }
    return plant_check(ret);
}
