/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chips of the kernel's hwmon class that tell µW (powerN_input, powerN_average) or µJ
 * (energyN_input). A chip does not say what it sees: of two drivers it is known, another one counts
 * for the machine only if a person names it ("hwmon:CHIP"). A chip's number changes when its driver
 * is loaded again, so it is known by its name and its device.
 */
#include "base/cleanup.h"
#include "host/power/sensor_kind.h"
#include "host/proc/file.h"
#include "power/measure/range.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS       "sys/class/hwmon"
#define PERIOD_NS   UINT64_C(1000000000)
#define ERROR_BOARD 50 /* permille */

struct chip {
    const char *directory; /* "hwmon3" */
    char name[32];
    char identity[SENSOR_NAME_MAX]; /* "power_meter ACPI000D:00" */
    bool machine;                   /* named by a person */
};

static uint32_t part_of(const struct chip *chip, const char *label)
{
    if (chip->machine || strcmp(chip->name, "power_meter") == 0) /* ACPI's: the power supply */
        return SENSOR_MACHINE;
    if (strcmp(chip->name, "amd_energy") == 0)
        return strncmp(label, "Esocket", 7) == 0 ? SENSOR_PACKAGE : SENSOR_CORE;
    return SENSOR_OTHER;
}

/* @file: "power1_input", "power1_average", "energy1_input"; its label: "power1_label". */
static void add_file(struct sensors *s, const struct chip *chip, const char *file)
{
    struct sensor sensor = {.kind = SENSOR_HWMON,
                            .counts = file[0] == 'e',
                            .most_uw = POWER_UW_MAX,
                            .period_ns = PERIOD_NS,
                            .error_permille = ERROR_BOARD};
    int number = (int)strcspn(file, "_");
    char label[SENSOR_NAME_MAX] = "", path[SENSOR_PATH_MAX];

    if (file_path(path, sizeof(path), CLASS "/%s/%.*s_label", chip->directory, number, file) < 0 ||
        sensors_line(s, label, sizeof(label), path) < 0)
        snprintf(label, sizeof(label), "%.*s", number, file);
    if (file_path(sensor.path, sizeof(sensor.path), CLASS "/%s/%s", chip->directory, file) < 0)
        return;
    snprintf(sensor.name, sizeof(sensor.name), "%.30s/%.30s", chip->name, label);
    memcpy(sensor.chip, chip->identity, sizeof(sensor.chip));
    sensor.part = part_of(chip, label);
    if (sensor.part == SENSOR_PACKAGE && strlen(label) > 7)
        sensor.package = (uint32_t)strtoul(label + 7, NULL, 10);
    sensors_add(s, &sensor);
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

/* The mean of a period counts, where a chip tells it as well as the present value. */
static bool has_average(char *const *file, int n, const char *input)
{
    size_t number = strcspn(input, "_");

    for (int i = 0; i < n; i++)
        if (strncmp(file[i], input, number) == 0 && strcmp(file[i] + number, "_average") == 0)
            return true;
    return false;
}

static void add_chip(struct sensors *s, const struct chip *chip)
{
    char path[SENSOR_PATH_MAX], **file;
    int n;

    if (file_path(path, sizeof(path), CLASS "/%s", chip->directory) < 0)
        return;
    n = sensors_list(s, path, "power", &file);
    for (int i = 0; i < n; i++)
        if (ends_with(file[i], "_average") ||
            (ends_with(file[i], "_input") && !has_average(file, n, file[i])))
            add_file(s, chip, file[i]);
    sensors_list_free(file, n);
    n = sensors_list(s, path, "energy", &file);
    for (int i = 0; i < n; i++)
        if (ends_with(file[i], "_input"))
            add_file(s, chip, file[i]);
    sensors_list_free(file, n);
}

/* Fills in name and identity. Returns 0 or -errno: no chip. */
static int identify(const struct sensors *s, struct chip *chip)
{
    char path[SENSOR_PATH_MAX], device[SENSOR_NAME_MAX / 2] = "";
    int r = file_path(path, sizeof(path), CLASS "/%s/name", chip->directory);

    if (r == 0)
        r = sensors_line(s, chip->name, sizeof(chip->name), path);
    if (r == 0 && file_path(path, sizeof(path), CLASS "/%s/device", chip->directory) == 0)
        sensors_link(s, device, sizeof(device), path);
    snprintf(chip->identity, sizeof(chip->identity), "%.30s %.30s", chip->name, device);
    return r;
}

int sensor_hwmon_locate(const struct sensors *s, struct sensor *sensor)
{
    const char *own = sensor->path + strlen(CLASS "/"), *last = strrchr(sensor->path, '/');
    char **directory, file[SENSOR_NAME_MAX];
    int n = sensors_list(s, CLASS, "hwmon", &directory), found = -1, r = -ENOENT;

    snprintf(file, sizeof(file), "%s", last ? last + 1 : "");
    for (int i = 0; i < n; i++) { /* its own number, if it is still such a chip; else the first */
        struct chip chip = {.directory = directory[i]};
        bool same_number = strlen(directory[i]) == strcspn(own, "/") &&
                           strncmp(own, directory[i], strlen(directory[i])) == 0;

        if ((found < 0 || same_number) && identify(s, &chip) == 0 &&
            strcmp(chip.identity, sensor->chip) == 0)
            found = i;
    }
    if (found >= 0)
        r = file_path(sensor->path, sizeof(sensor->path), CLASS "/%s/%s", directory[found], file);
    sensors_list_free(directory, n);
    return r;
}

static int find(struct sensors *s, const char *argument, struct error *err)
{
    char **directory;
    int n = sensors_list(s, CLASS, "hwmon", &directory);

    for (int i = 0; i < n; i++) {
        struct chip chip = {.directory = directory[i]};

        if (identify(s, &chip) < 0)
            continue;
        chip.machine = argument && strcmp(argument, chip.name) == 0;
        if (!argument || chip.machine)
            add_chip(s, &chip);
    }
    sensors_list_free(directory, n);
    return 0;
}

const struct sensor_kind_ops sensor_hwmon = {.name = "hwmon", .find = find};
