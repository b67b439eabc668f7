/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file into which some program writes what the machine draws ("83.2", "83.2 W") or has used
 * ("12.5 kWh"). It is below the root as the other sensors are.
 */
#include "host/power/sensor_kind.h"
#include "host/proc/file.h"
#include "power/measure/range.h"

#include <errno.h>
#include <stdio.h>

#define ERROR_WORD "bad-sensor"

#define PERIOD_NS  UINT64_C(10000000000) /* a writer may be slow */
#define ERROR_FILE 20                    /* permille: of a plug or meter behind it */

static int find(struct sensors *s, const char *argument, struct error *err)
{
    struct sensor sensor = {.kind = SENSOR_FILE,
                            .part = SENSOR_MACHINE,
                            .most_uw = POWER_UW_MAX,
                            .period_ns = PERIOD_NS,
                            .error_permille = ERROR_FILE};

    if (file_path(sensor.path, sizeof(sensor.path), "%s", argument) < 0)
        return error_set(err, -EINVAL, "file:%.60s… is longer than %d bytes", argument,
                         SENSOR_PATH_MAX - 1);
    snprintf(sensor.name, sizeof(sensor.name), "file:%.58s", argument);
    sensors_add(s, &sensor);
    return 0;
}

const struct sensor_kind_ops sensor_file = {.name = "file", .find = find};
