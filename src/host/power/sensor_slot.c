/* SPDX-License-Identifier: Apache-2.0 */
/* The list of sensors, to which each kind adds its own, and how one is read. */
#include "base/cleanup.h"
#include "host/power/sensor_kind.h"
#include "host/proc/file.h"
#include "power/measure/amount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define READING_MAX 128                   /* bytes of a sensor's file */
#define STALE_NS    UINT64_C(30000000000) /* a file that nobody writes any more */

static int open_slot(const struct sensors *s, struct sensor_slot *slot)
{
    struct statfs fs;
    int fd = file_open(s->root, slot->sensor.path, O_RDONLY | O_NONBLOCK);

    if (fd >= 0)
        slot->replaceable = fstatfs(fd, &fs) < 0 || fs.f_type != SYSFS_MAGIC;
    return fd;
}

/* Later: what is at the path now may be another sensor. */
static int reopen_slot(const struct sensors *s, struct sensor_slot *slot)
{
    int r = slot->sensor.kind == SENSOR_HWMON ? sensor_hwmon_locate(s, &slot->sensor) : 0;

    return r < 0 ? r : open_slot(s, slot);
}

void sensors_add(struct sensors *s, const struct sensor *sensor)
{
    struct sensor_slot *slot = &s->slot[s->n];

    if (s->n == SENSORS_MAX)
        return;
    *slot = (struct sensor_slot){.sensor = *sensor};
    slot->fd = open_slot(s, slot);
    slot->error = slot->fd < 0 ? slot->fd : 0;
    if (slot->fd < 0)
        slot->fd = -1;
    s->n++;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

int sensors_list(const struct sensors *s, const char *path, const char *prefix, char ***ret)
{
    int fd = file_open(s->root, path, O_RDONLY | O_DIRECTORY), n = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char **names = dir ? calloc(SENSORS_MAX, sizeof(*names)) : NULL;

    *ret = NULL;
    if (fd >= 0 && !dir)
        close_fd(fd);
    for (struct dirent *e; names && n < SENSORS_MAX && (e = readdir(dir));)
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 && e->d_name[0] != '.' &&
            (names[n] = strdup(e->d_name)))
            n++;
    if (dir)
        closedir(dir);
    if (names)
        qsort(names, (size_t)n, sizeof(*names), compare_names);
    *ret = names;
    return n;
}

char **sensors_list_free(char **names, int n)
{
    while (n > 0)
        free(names[--n]);
    free(names);
    return NULL;
}

int sensors_line(const struct sensors *s, char *buf, size_t size, const char *path)
{
    int r = file_read(s->root, path, buf, size);

    if (r < 0)
        return r;
    buf[strcspn(buf, "\n")] = '\0';
    return 0;
}

void sensors_link(const struct sensors *s, char *buf, size_t size, const char *path)
{
    char target[SENSOR_PATH_MAX];
    ssize_t n = readlinkat(s->root, path, target, sizeof(target) - 1);
    const char *last;

    target[n < 0 ? 0 : n] = '\0';
    last = strrchr(target, '/');
    snprintf(buf, size, "%s", last ? last + 1 : target);
}

/* ---- reading ---- */

/*
 * A file that is none of sysfs may have been replaced, and its writer may have died: the text is
 * then old, and an old text is no reading.
 */
static int look_at_file(const struct sensors *s, struct sensor_slot *slot, uint64_t now_ns)
{
    struct stat st;
    int64_t written;

    if (fstat(slot->fd, &st) < 0)
        return -errno;
    if (st.st_nlink == 0) {
        close_fd(slot->fd);
        slot->fd = reopen_slot(s, slot);
        if (slot->fd < 0 || fstat(slot->fd, &st) < 0)
            return slot->fd < 0 ? slot->fd : -errno;
    }
    written = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    slot->again = slot->seen_ns && written == slot->written_ns;
    if (!slot->again) {
        slot->written_ns = written;
        slot->seen_ns = now_ns;
    }
    return slot->sensor.kind == SENSOR_FILE && now_ns - slot->seen_ns > STALE_NS ? -ESTALE : 0;
}

/* A file's unit says what it is; sysfs has none, and is in µW or µJ. */
static int parse(struct sensor_slot *slot, const char *text, uint64_t *ret)
{
    enum amount_kind kind;
    int r;

    if (slot->sensor.kind == SENSOR_FILE) {
        r = amount_parse(text, ret, &kind);
        if (r == 0)
            slot->sensor.counts = kind == AMOUNT_ENERGY;
        return r;
    }
    r = text_scan_u64(&text, ret);
    return r < 0 ? r : *text && strcmp(text, "\n") != 0 ? -EINVAL : 0;
}

int sensor_slot_read(const struct sensors *s, struct sensor_slot *slot, uint64_t now_ns,
                     uint64_t *ret)
{
    char text[READING_MAX];
    uint64_t value = 0;
    ssize_t n;
    int r;

    if (slot->fd < 0) { /* it appeared later, or its rights have changed */
        r = reopen_slot(s, slot);
        if (r < 0)
            return r;
        slot->fd = r;
    }
    r = slot->replaceable ? look_at_file(s, slot, now_ns) : 0;
    if (r < 0)
        return r;
    n = pread(slot->fd, text, sizeof(text) - 1, 0);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    r = parse(slot, text, &value);
    /* No machine that runs this draws 0 W: the driver or the writer of the file knows nothing. */
    if (r == 0 && value == 0 && !slot->sensor.counts && slot->sensor.part == SENSOR_MACHINE)
        r = -ENODATA;
    if (r == 0)
        *ret = value;
    return r;
}
