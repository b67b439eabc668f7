/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's powercap class: RAPL of Intel and AMD. A zone is a directory with a counter of µJ;
 * its name says what it sees, its directory's name where it belongs ("intel-rapl:1:0" is in package
 * zone "intel-rapl:1").
 */
#include "base/cleanup.h"
#include "host/power/sensor_kind.h"
#include "host/proc/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS      "sys/class/powercap"
#define LIMIT      "constraint_0_power_limit_uw"
#define MOST_UW    UINT64_C(10000000000) /* of any zone: 10 kW */
#define MOST_LEAST UINT64_C(1000000000)  /* … and at least 1 kW of one that does not say */
#define MOST_TIMES 4                     /* peaks above the long-term limit */
#define WRAP_S     60                    /* of a counter at high power (Intel's SDM 3B, RAPL) */
#define ERROR_RAPL 30                    /* permille: of RAPL against its own rails */
#define ERROR_PSYS 50
#define UPDATE_NS  UINT64_C(1000000)

static int zone_u64(const struct sensors *s, const char *zone, const char *file, uint64_t *ret)
{
    char path[SENSOR_PATH_MAX];
    int r = file_path(path, sizeof(path), CLASS "/%s/%s", zone, file);

    return r < 0 ? r : file_read_u64(s->root, path, ret);
}

static int zone_name(const struct sensors *s, const char *zone, char ret[SENSOR_NAME_MAX])
{
    char path[SENSOR_PATH_MAX];
    int r = file_path(path, sizeof(path), CLASS "/%s/name", zone);

    return r < 0 ? r : sensors_line(s, ret, SENSOR_NAME_MAX, path);
}

static uint32_t part_of(const char *name)
{
    static const struct {
        const char *name;
        uint32_t part;
    } parts[] = {{"core", SENSOR_CORE},
                 {"uncore", SENSOR_UNCORE},
                 {"dram", SENSOR_DRAM},
                 {"psys", SENSOR_PSYS}};

    if (strncmp(name, "package", 7) == 0)
        return SENSOR_PACKAGE;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (strcmp(name, parts[i].name) == 0)
            return parts[i].part;
    return SENSOR_OTHER;
}

/* Fills in the zone's name; of a zone inside a package, also the package's. Returns its part. */
static uint32_t describe(const struct sensors *s, const char *zone, struct sensor *sensor)
{
    char own[SENSOR_NAME_MAX], outer[SENSOR_NAME_MAX], parent[SENSOR_NAME_MAX];
    const char *first = strchr(zone, ':'), *last = strrchr(zone, ':');
    const char *package;

    if (zone_name(s, zone, own) < 0)
        snprintf(own, sizeof(own), "%.60s", zone);
    package = own;
    snprintf(sensor->name, sizeof(sensor->name), "%s", own);
    if (last > first) {
        snprintf(parent, sizeof(parent), "%.*s", (int)(last - zone), zone);
        if (zone_name(s, parent, outer) == 0) {
            package = outer;
            snprintf(sensor->name, sizeof(sensor->name), "%.30s/%.30s", outer, own);
        }
    }
    if (strncmp(package, "package-", 8) == 0)
        sensor->package = (uint32_t)strtoul(package + 8, NULL, 10);
    return part_of(own);
}

/* A zone that does not say how much it draws has a counter that is made for it. */
static uint64_t most_of(const struct sensors *s, const char *zone, uint64_t wrap_uj)
{
    uint64_t watts, made_for = wrap_uj ? wrap_uj / WRAP_S : MOST_UW;

    if (zone_u64(s, zone, "constraint_0_max_power_uw", &watts) == 0 && watts > 0 &&
        watts <= MOST_UW)
        return watts < MOST_UW / MOST_TIMES ? watts * MOST_TIMES : MOST_UW;
    return made_for < MOST_LEAST ? MOST_LEAST : made_for < MOST_UW ? made_for : MOST_UW;
}

static void add_zone(struct sensors *s, const char *zone)
{
    struct sensor sensor = {.kind = SENSOR_POWERCAP,
                            .counts = true,
                            .period_ns = UPDATE_NS,
                            .error_permille = ERROR_RAPL};
    uint64_t range;

    if (file_path(sensor.path, sizeof(sensor.path), CLASS "/%s/energy_uj", zone) < 0)
        return;
    sensor.part = describe(s, zone, &sensor);
    if (sensor.part == SENSOR_PSYS)
        sensor.error_permille = ERROR_PSYS;
    if (zone_u64(s, zone, "max_energy_range_uj", &range) == 0 && range > 0 && range < UINT64_MAX)
        sensor.wrap_uj = range + 1;
    sensor.most_uw = most_of(s, zone, sensor.wrap_uj);
    sensors_add(s, &sensor);
}

/* The same packages again, through another register. */
static bool is_second_view(const char *zone)
{
    size_t type = strcspn(zone, ":");

    return type > 5 && strncmp(zone + type - 5, "-mmio", 5) == 0;
}

static int find(struct sensors *s, const char *argument, struct error *err)
{
    char **zone;
    int n = sensors_list(s, CLASS, "", &zone);
    bool direct = false;

    for (int i = 0; i < n; i++)
        direct |= strchr(zone[i], ':') && !is_second_view(zone[i]);
    for (int i = 0; i < n; i++) /* a control type itself has no ':' and no counter */
        if (strchr(zone[i], ':') && !(direct && is_second_view(zone[i])))
            add_zone(s, zone[i]);
    sensors_list_free(zone, n);
    return 0;
}

const struct sensor_kind_ops sensor_powercap = {.name = "powercap", .find = find};

/* ---- limits ---- */

size_t powercap_limits(const struct sensors *s, struct powercap_limit *ret, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n && n < max; i++) {
        const struct sensor *sensor = &s->slot[i].sensor;
        int zone = (int)(strrchr(sensor->path, '/') - sensor->path);

        if (sensor->kind == SENSOR_POWERCAP && sensor->part == SENSOR_PACKAGE &&
            file_path(ret[n].path, sizeof(ret[n].path), "%.*s/" LIMIT, zone, sensor->path) == 0 &&
            file_read_u64(s->root, ret[n].path, &ret[n].uw) == 0)
            n++;
    }
    return n;
}
