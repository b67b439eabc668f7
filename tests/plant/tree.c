// SPDX-License-Identifier: Apache-2.0
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASS        "sys/class/powercap"
#define DEVICES      "sys/devices/virtual/powercap/intel-rapl"
#define CPU          "sys/devices/system/cpu"
#define PACKAGES_MAX 8

enum zone_of { OF_PACKAGE, OF_CORE, OF_DRAM, OF_PSYS };

struct zone {
    enum zone_of of;
    int energy, limit, enabled; /* descriptors; the latter two of packages alone */
};

struct tree {
    struct tree_options options;
    struct zone zone[3 * PACKAGES_MAX + 1];
    uint32_t zones, cores;
    int speed[PLANT_CORES_MAX];
};

/* The path below the tree's directory; made of parts that are ours and short. */
__attribute__((format(printf, 2, 3))) static const char *at(const struct tree *t,
                                                            const char *format, ...)
{
    static char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/", t->options.path);
    va_list args;

    va_start(args, format);
    vsnprintf(path + n, sizeof path - (size_t)n, format, args);
    va_end(args);
    return path;
}

static int make_folders(const char *path)
{
    char copy[PATH_MAX];

    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = copy + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    return mkdir(copy, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

static int write_value(int fd, uint64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRIu64 "\n", value);
    struct stat st;

    if (pwrite(fd, text, (size_t)n, 0) != n)
        return errno ? -errno : -EIO;
    /* After a wrap it is shorter. */
    if (fstat(fd, &st) == 0 && st.st_size > n && ftruncate(fd, n) < 0)
        return -errno;
    return 0;
}

/* Returns the descriptor, or -errno. */
static int make_file(const char *path, mode_t mode, const char *text)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    size_t n = strlen(text);

    if (fd < 0)
        return -errno;
    if (fchmod(fd, mode) < 0 || pwrite(fd, text, n, 0) != (ssize_t)n) {
        close(fd);
        return -EIO;
    }
    return fd;
}

static int make_constant(const char *path, const char *text)
{
    int fd = make_file(path, 0444, text);

    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

static int make_constant_u64(const char *path, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64 "\n", value);
    return make_constant(path, text);
}

/* The long-term limit of a package, at first far above what it can draw. */
static int make_limit(struct tree *t, struct zone *zone, const char *folder, uint64_t most_uw)
{
    char text[24];
    int r;

    snprintf(text, sizeof text, "%" PRIu64 "\n", most_uw);
    zone->limit = make_file(at(t, "%s/constraint_0_power_limit_uw", folder), 0644, text);
    zone->enabled = make_file(at(t, "%s/enabled", folder), 0644, "1\n");
    if (zone->limit < 0 || zone->enabled < 0)
        return zone->limit < 0 ? zone->limit : zone->enabled;
    r = make_constant(at(t, "%s/constraint_0_name", folder), "long_term\n");
    if (r == 0)
        r = make_constant(at(t, "%s/constraint_0_time_window_us", folder), "999424\n");
    if (r == 0)
        r = make_constant_u64(at(t, "%s/constraint_0_max_power_uw", folder), most_uw);
    return r;
}

/* @inside: the zone that this one lies in, NULL for one of the top. */
static int make_zone(struct tree *t, enum zone_of of, const char *inside, const char *id,
                     const char *name, uint64_t most_uw)
{
    struct zone *zone = &t->zone[t->zones];
    char folder[256], text[64], target[320];
    int r;

    snprintf(folder, sizeof folder, DEVICES "%s%s/%s", inside ? "/" : "", inside ? inside : "", id);
    *zone = (struct zone){of, -1, -1, -1};
    t->zones++;
    r = make_folders(at(t, "%s", folder));
    if (r < 0)
        return r;
    zone->energy = make_file(at(t, "%s/energy_uj", folder), 0400, "0\n");
    if (zone->energy < 0)
        return zone->energy;
    snprintf(text, sizeof text, "%s\n", name);
    r = make_constant(at(t, "%s/name", folder), text);
    if (r == 0)
        r = make_constant_u64(at(t, "%s/max_energy_range_uj", folder), t->options.wrap_uj);
    if (r == 0 && of == OF_PACKAGE)
        r = make_limit(t, zone, folder, most_uw);
    snprintf(target, sizeof target, "../../%s", folder + strlen("sys/"));
    if (r == 0 && symlink(target, at(t, CLASS "/%s", id)) < 0)
        r = -errno;
    return r;
}

static int make_package(struct tree *t, uint32_t number, uint64_t most_uw)
{
    char id[32], inner[40], name[32];
    int r;

    snprintf(id, sizeof id, "intel-rapl:%u", number);
    snprintf(name, sizeof name, "package-%u", number);
    r = make_zone(t, OF_PACKAGE, NULL, id, name, most_uw);
    snprintf(inner, sizeof inner, "%s:0", id);
    if (r == 0)
        r = make_zone(t, OF_CORE, id, inner, "core", 0);
    snprintf(inner, sizeof inner, "%s:1", id);
    if (r == 0 && t->options.dram)
        r = make_zone(t, OF_DRAM, id, inner, "dram", 0);
    return r;
}

static int make_cpus(struct tree *t, uint64_t turbo_permille)
{
    for (uint32_t i = 0; i < t->cores; i++) {
        char folder[64], text[24];
        int r;

        snprintf(folder, sizeof folder, CPU "/cpu%u/cpufreq", i);
        r = make_folders(at(t, "%s", folder));
        if (r == 0)
            r = make_constant_u64(at(t, "%s/base_frequency", folder), t->options.base_khz);
        if (r == 0)
            r = make_constant_u64(at(t, "%s/cpuinfo_max_freq", folder),
                                  t->options.base_khz * turbo_permille / 1000);
        if (r == 0)
            r = make_constant_u64(at(t, "%s/cpuinfo_min_freq", folder),
                                  t->options.base_khz * PLANT_SPEED_MIN / 1000);
        if (r < 0)
            return r;
        snprintf(text, sizeof text, "%" PRIu64 "\n", t->options.base_khz);
        t->speed[i] = make_file(at(t, "%s/scaling_cur_freq", folder), 0444, text);
        if (t->speed[i] < 0)
            return t->speed[i];
    }
    return 0;
}

int tree_new(const struct tree_options *options, const struct plant *plant, struct tree **ret)
{
    const struct plant_params *q = &plant->params;
    struct tree *t;
    uint64_t most_uw;
    char id[32];
    int r;

    if (options->packages < 1 || options->packages > PACKAGES_MAX || options->wrap_uj == 0 ||
        options->wrap_uj == UINT64_MAX)
        return -EINVAL;
    t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->options = *options;
    t->cores = plant->cores;
    memset(t->speed, -1, sizeof t->speed);
    /* Twice full power at the fastest clock: a thermal design power that never binds. */
    most_uw = 2 * (q->package_idle_uw +
                   (q->core_uw * plant->cores + q->uncore_uw) * q->turbo_permille / 1000);
    r = make_folders(at(t, CLASS));
    if (r == 0)
        r = make_folders(at(t, DEVICES));
    if (r == 0)
        r = make_constant(at(t, DEVICES "/enabled"), "1\n");
    if (r == 0 && symlink("../../devices/virtual/powercap/intel-rapl", at(t, CLASS "/intel-rapl")))
        r = -errno;
    for (uint32_t i = 0; r == 0 && i < options->packages; i++)
        r = make_package(t, i, most_uw / options->packages);
    snprintf(id, sizeof id, "intel-rapl:%u", options->packages);
    if (r == 0 && options->psys)
        r = make_zone(t, OF_PSYS, NULL, id, "psys", 0);
    if (r == 0)
        r = make_cpus(t, q->turbo_permille);
    if (r < 0) {
        tree_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct tree *tree_free(struct tree *t)
{
    if (!t)
        return NULL;
    for (uint32_t i = 0; i < t->zones; i++) {
        close(t->zone[i].energy);
        if (t->zone[i].of == OF_PACKAGE) {
            close(t->zone[i].limit);
            close(t->zone[i].enabled);
        }
    }
    for (uint32_t i = 0; i < t->cores; i++)
        close(t->speed[i]);
    free(t);
    return NULL;
}

static uint64_t zone_uj(const struct tree *t, enum zone_of of, const struct plant_energy *total)
{
    switch (of) {
    case OF_PSYS:
        return total->wall_uj;
    case OF_CORE:
        return total->core_uj / t->options.packages;
    case OF_DRAM:
        return total->dram_uj / t->options.packages;
    default:
        return total->package_uj / t->options.packages;
    }
}

int tree_write(struct tree *t, const struct plant *plant, const uint32_t *speed_permille)
{
    int r = 0;

    for (uint32_t i = 0; i < t->zones && r == 0; i++)
        r = write_value(t->zone[i].energy,
                        zone_uj(t, t->zone[i].of, &plant->total) % (t->options.wrap_uj + 1));
    for (uint32_t i = 0; i < t->cores && r == 0; i++)
        r = write_value(t->speed[i], t->options.base_khz * speed_permille[i] / 1000);
    return r;
}

static uint64_t read_value(int fd)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);

    return n > 0 ? strtoull(text, NULL, 10) : 0;
}

uint64_t tree_limit_uw(const struct tree *t)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < t->zones; i++) {
        if (t->zone[i].of != OF_PACKAGE)
            continue;
        uint64_t limit = read_value(t->zone[i].limit);

        if (limit == 0 || read_value(t->zone[i].enabled) == 0)
            return 0;
        sum += limit;
    }
    return sum;
}
