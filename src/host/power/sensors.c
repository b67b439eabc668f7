/* SPDX-License-Identifier: Apache-2.0 */
#include "host/power/sensors.h"

#include "base/cleanup.h"
#include "host/power/sensor_kind.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "bad-sensor"

static const char *const kind_names[] = {"powercap", "hwmon", "file", "handed", "model"};
static_assert(ARRAY_LEN(kind_names) == SENSOR_KIND_MAX, "a name for each kind");

static const char *const part_names[] = {"machine", "package", "core", "uncore",
                                         "dram",    "psys",    "other"};
static_assert(ARRAY_LEN(part_names) == SENSOR_PART_MAX, "a name for each part");

static const struct sensor_kind_ops *const kinds[] = {&sensor_powercap, &sensor_hwmon,
                                                      &sensor_file};

const char *sensor_kind_name(enum sensor_kind kind)
{
    return (unsigned)kind < SENSOR_KIND_MAX ? kind_names[kind] : "?";
}

const char *sensor_part_name(enum sensor_part part)
{
    return (unsigned)part < SENSOR_PART_MAX ? part_names[part] : "?";
}

/* ---- finding ---- */

/* The next word of @*p, cut at a blank. Returns 0, -ENOENT (no more) or -EINVAL (no kind). */
static int next_word(const char **p, char *word, size_t size, const struct sensor_kind_ops **ret,
                     const char **ret_argument, struct error *err)
{
    const char *begin = *p + strspn(*p, " \t");
    size_t len = strcspn(begin, " \t"), name;

    if (len == 0)
        return -ENOENT;
    *p = begin + len;
    if (len >= size)
        return error_set(err, -EINVAL, "'%.40s…' is too long for a sensor", begin);
    memcpy(word, begin, len);
    word[len] = '\0';
    name = strcspn(word, ":");
    *ret_argument = word[name] ? word + name + 1 : NULL;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strlen(kinds[i]->name) == name && strncmp(word, kinds[i]->name, name) == 0) {
            *ret = kinds[i];
            break;
        }
    if (!*ret || (*ret == &sensor_powercap && *ret_argument) ||
        (*ret == &sensor_file && (!*ret_argument || **ret_argument != '/')))
        return error_set(err, -EINVAL,
                         "'%s' is no sensor: use auto, none, powercap, hwmon, hwmon:CHIP or "
                         "file:/PATH",
                         word);
    return 0;
}

static bool is_word(const char *text, const char *word)
{
    size_t len = strlen(word);

    text += strspn(text, " \t");
    return strncmp(text, word, len) == 0 && text[len + strspn(text + len, " \t")] == '\0';
}

/* Calls each kind that is @wanted; @s NULL: only checks the words. */
static int each_wanted(struct sensors *s, const char *wanted, struct error *err)
{
    char word[SENSOR_PATH_MAX];
    int r = 0;

    if (is_word(wanted, "none"))
        return 0;
    if (is_word(wanted, "auto"))
        wanted = "powercap hwmon";
    for (unsigned n = 0; r == 0; n++) {
        const struct sensor_kind_ops *kind = NULL;
        const char *argument = NULL;

        r = next_word(&wanted, word, sizeof(word), &kind, &argument, err);
        if (r == -ENOENT && n == 0)
            return error_set(err, -EINVAL, "no sensor is named: write \"none\" for none");
        if (r == 0 && s)
            r = kind->find(s, argument, err);
    }
    return r == -ENOENT ? 0 : r;
}

int sensors_check(const char *wanted, struct error *err)
{
    return each_wanted(NULL, wanted, err);
}

int sensors_find(int root, const char *wanted, struct sensors **ret, struct error *err)
{
    struct sensors *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->root = fcntl(root, F_DUPFD_CLOEXEC, 3);
    r = s->root < 0 ? error_set(err, -errno, "out of file descriptors")
                    : each_wanted(s, wanted, err);
    if (r < 0) {
        sensors_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

size_t sensors_count(const struct sensors *s)
{
    return s->n;
}

const struct sensor *sensors_at(const struct sensors *s, size_t i)
{
    return &s->slot[i].sensor;
}

struct sensors *sensors_free(struct sensors *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        close_fd(s->slot[i].fd);
    close_fd(s->root);
    free(s);
    return NULL;
}

/* ---- reading ---- */

void sensors_read(struct sensors *s, uint64_t now_ns, struct sensor_reading *ret)
{
    for (size_t i = 0; i < s->n; i++) {
        struct sensor_slot *slot = &s->slot[i];

        ret[i] = (struct sensor_reading){.time_ns = now_ns};
        slot->error = ret[i].error = sensor_slot_read(s, slot, now_ns, &ret[i].value);
        ret[i].old = slot->again && slot->sensor.kind == SENSOR_FILE && !slot->sensor.counts;
        if (slot->error == -ENODEV || slot->error == -EIO)
            slot->fd = close_fd(slot->fd); /* the zone went with its driver, and may come back */
    }
}

/* ---- the machine ---- */

static size_t of_part(const struct sensors *s, uint32_t kind, uint32_t part, uint32_t *ret_index,
                      size_t n, size_t max)
{
    for (uint32_t i = 0; i < s->n && n < max; i++)
        if (s->slot[i].sensor.kind == kind && s->slot[i].sensor.part == part)
            ret_index[n++] = i;
    return n;
}

static bool all_read(const struct sensors *s, const uint32_t *index, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s->slot[index[i]].error < 0)
            return false;
    return n > 0;
}

size_t sensors_packages(const struct sensors *s, uint32_t *ret_index, size_t max)
{
    static const uint32_t by_package[] = {SENSOR_POWERCAP, SENSOR_HWMON};
    size_t n;

    for (size_t i = 0; i < ARRAY_LEN(by_package); i++) {
        n = of_part(s, by_package[i], SENSOR_PACKAGE, ret_index, 0, max);
        if (n > 0)
            n = of_part(s, by_package[i], SENSOR_DRAM, ret_index, n, max);
        if (all_read(s, ret_index, n))
            return n;
    }
    return 0;
}

size_t sensors_machine(const struct sensors *s, uint32_t *ret_index, size_t max)
{
    /* A file was named by a person, and a board's own sensor sees the power supply. */
    static const uint32_t order[][2] = {{SENSOR_FILE, SENSOR_MACHINE},
                                        {SENSOR_HWMON, SENSOR_MACHINE},
                                        {SENSOR_POWERCAP, SENSOR_PSYS}};

    for (uint32_t i = 0; max > 0 && i < ARRAY_LEN(order); i++)
        for (uint32_t k = 0; k < s->n; k++)
            if (s->slot[k].sensor.kind == order[i][0] && s->slot[k].sensor.part == order[i][1] &&
                s->slot[k].error == 0) {
                ret_index[0] = k;
                return 1;
            }
    return sensors_packages(s, ret_index, max);
}
