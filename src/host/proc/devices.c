/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/devices.h"

#include "base/cleanup.h"
#include "host/proc/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS_MAX  1024       /* of a process, that are looked at */
#define MAPS_MAX (1u << 20) /* bytes */
#define NODE_MAX 64         /* longest path that is read, of a node or of a directory */
#define DIGITS   "0123456789"

/* The nodes of a kind: their name before the number. */
static const struct {
    enum device_kind kind;
    const char *node;
} nodes[] = {
    {DEVICE_NVIDIA, "/dev/nvidia"},
    {DEVICE_RENDER, "/dev/dri/renderD"},
    {DEVICE_ACCEL, "/dev/accel/accel"},
    {DEVICE_ACCEL, "/dev/accel"},
    {DEVICE_UVERBS, "/dev/infiniband/uverbs"},
    {DEVICE_VFIO, "/dev/vfio/"},
};

/* Nodes of drivers that no program needs without a device of them. */
static const char *const controls[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/kfd",
                                       "/dev/infiniband/rdma_cm", "/dev/vfio/vfio"};

/*
 * Where the kernel lists the machine's devices, not those that the reader's /dev shows: tided's
 * service has a /dev of its own (PrivateDevices).
 */
static const struct {
    const char *dir, *prefix;
} lists[DEVICE_KINDS] = {
    [DEVICE_NVIDIA] = {"proc/driver/nvidia/gpus", ""},
    [DEVICE_RENDER] = {"sys/class/drm", "renderD"},
    [DEVICE_ACCEL] = {"sys/class/accel", "accel"},
    [DEVICE_UVERBS] = {"sys/class/infiniband_verbs", "uverbs"},
    [DEVICE_VFIO] = {"sys/class/vfio", ""},
};

bool proc_parse_device(const char *path, struct device *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        size_t length = strlen(nodes[i].node), digits;

        if (strncmp(path, nodes[i].node, length) != 0)
            continue;
        digits = strspn(path + length, DIGITS);
        if (digits < 1 || digits > 4 || path[length + digits])
            continue;
        *ret = (struct device){(uint16_t)nodes[i].kind, (uint16_t)atoi(path + length)};
        return true;
    }
    return false;
}

static bool is_control(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(controls); i++)
        if (strcmp(path, controls[i]) == 0)
            return true;
    return false;
}

static DIR *open_dir(int root, const char *path)
{
    int fd = file_open(root, path, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !dir)
        close(fd);
    if (fd < 0)
        errno = -fd;
    return dir;
}

int64_t proc_count_devices(int root)
{
    int64_t counts = 0;

    for (int kind = 0; kind < DEVICE_KINDS; kind++) {
        const char *prefix = lists[kind].prefix;
        DIR *dir = open_dir(root, lists[kind].dir);
        const struct dirent *entry;
        unsigned n = 0;

        while (dir && (entry = readdir(dir)))
            n += entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
        if (dir)
            closedir(dir);
        counts = devices_with(counts, kind, n);
    }
    return counts;
}

/* Adds devices that the process has mapped: a program may close a node and go on to use it. */
static void read_maps(int root, pid_t pid, struct device_set *set)
{
    _cleanup_free_ char *text = malloc(MAPS_MAX);
    _cleanup_fd_ int fd = -1;
    char path[NODE_MAX];
    size_t length = 0;
    ssize_t n = 1;

    snprintf(path, sizeof(path), "proc/%d/maps", (int)pid);
    fd = text ? file_open(root, path, O_RDONLY) : -1;
    if (fd < 0)
        return;
    while (length < MAPS_MAX - 1 && (n = read(fd, text + length, MAPS_MAX - 1 - length)) > 0)
        length += (size_t)n;
    text[length] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        const char *name = strchr(line, '/'); /* nothing before it has one */
        struct device device;

        if (name && proc_parse_device(name, &device))
            device_set_add(set, device);
    }
}

/*
 * In a mount namespace of its own, a user may give any file the name of a device, also one of a
 * file system of his own that never answers: its attributes are not asked for.
 */
static bool is_imitated(int dir_fd, const char *name)
{
    struct statx st;

    if (statx(dir_fd, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
        return errno != ENOENT;
    return !S_ISCHR(st.stx_mode);
}

int proc_read_devices(int root, pid_t pid, struct device_set *set)
{
    char path[NODE_MAX], node[NODE_MAX];
    const struct dirent *entry;
    bool control = false, found = false;
    DIR *dir;

    snprintf(path, sizeof(path), "proc/%d/fd", (int)pid);
    dir = open_dir(root, path);
    if (!dir)
        return errno == ENOENT ? -ESRCH : -errno;
    for (unsigned i = 0; i < FDS_MAX && (entry = readdir(dir)); i++) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, node, sizeof(node) - 1);
        struct device device;

        if (n < 5 || strncmp(node, "/dev/", 5) != 0)
            continue;
        node[n] = '\0';
        control |= is_control(node);
        if (proc_parse_device(node, &device) && !is_imitated(dirfd(dir), entry->d_name)) {
            device_set_add(set, device);
            found = true;
        }
    }
    closedir(dir);
    if (control && !found)
        read_maps(root, pid, set);
    return 0;
}

/* ---- sets ---- */

static int compare(struct device a, struct device b)
{
    return a.kind != b.kind ? a.kind - b.kind : a.number - b.number;
}

/* Returns the place of @device, or of the first behind it. */
static unsigned place(const struct device_set *set, struct device device)
{
    unsigned i = 0;

    while (i < set->n && compare(set->of[i], device) < 0)
        i++;
    return i;
}

static bool has(const struct device_set *set, struct device device)
{
    unsigned i = place(set, device);

    return i < set->n && compare(set->of[i], device) == 0;
}

void device_set_add(struct device_set *set, struct device device)
{
    unsigned i = place(set, device);

    if (set->n == DEVICES_SET_MAX || has(set, device))
        return;
    memmove(&set->of[i + 1], &set->of[i], (set->n - i) * sizeof(set->of[0]));
    set->of[i] = device;
    set->n++;
}

unsigned device_set_count(const struct device_set *set, enum device_kind kind,
                          const struct device_set *but)
{
    unsigned count = 0;

    for (unsigned i = 0; i < set->n; i++)
        count += set->of[i].kind == kind && !(but && has(but, set->of[i]));
    return count;
}

const char *device_set_text(const struct device_set *set, char *buf, size_t size)
{
    size_t n = 0;

    *buf = '\0';
    for (unsigned i = 0; i < set->n && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s%u", i ? ", " : "",
                              device_kind_name(set->of[i].kind), set->of[i].number);
    return buf;
}
