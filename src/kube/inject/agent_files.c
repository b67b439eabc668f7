/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/agent_files.h"

#include "base/cleanup.h"
#include "base/preload.h"
#include "kube/api/base64.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "agent-not-spread"

/* As scripts/agent-tree.sh lays them out: an entry for each value that ld.so gives to $LIB. */
const struct agent_file agent_files[] = {
#ifdef __x86_64__
    {AGENT_KEY, "lib/x86_64-linux-gnu/" PRELOAD_FILE},
    {AGENT_KEY, "lib64/" PRELOAD_FILE},
    {"agent-i386", "lib/i386-linux-gnu/" PRELOAD_FILE},
    {"agent-i386", "lib32/" PRELOAD_FILE},
#else
    {AGENT_KEY, "lib/aarch64-linux-gnu/" PRELOAD_FILE},
    {AGENT_KEY, "lib64/" PRELOAD_FILE},
#endif
};
const size_t agent_files_count = ARRAY_LEN(agent_files);

/* Follows links: the folder of the agent has some. Returns the length or -errno. */
static ssize_t read_whole(const char *path, unsigned char *buf, size_t max)
{
    _cleanup_file_ FILE *f = fopen(path, "re");
    size_t n;

    if (!f)
        return -errno;
    n = fread(buf, 1, max, f);
    if (ferror(f))
        return -EIO;
    return n == max ? -EFBIG : (ssize_t)n;
}

/* Adds the bytes of @file to @data. Returns how many these are, or -errno. */
static ssize_t add_file(const char *dir, const struct agent_file *file, json_t *data,
                        unsigned char *buf, size_t max)
{
    char path[PATH_MAX];
    ssize_t n;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file->path) >= sizeof(path))
        return -ENAMETOOLONG;
    n = read_whole(path, buf, max);
    if (n < 0)
        return n;
    return json_object_set_new(data, file->key, base64_value(buf, (size_t)n)) < 0 ? -ENOMEM : n;
}

int agent_files_read(const char *dir, const char *name, json_t **ret, struct error *err)
{
    _cleanup_free_ unsigned char *buf = malloc(AGENT_FILES_MAX + 1);
    json_t *data = json_object(), *made;
    size_t left = AGENT_FILES_MAX + 1;
    ssize_t n = buf && data ? 0 : -ENOMEM;

    for (size_t i = 0; n >= 0 && i < agent_files_count; i++) {
        if (json_object_get(data, agent_files[i].key))
            continue;
        n = add_file(dir, &agent_files[i], data, buf, left);
        left -= n > 0 ? (size_t)n : 0;
        if (n == -ENOENT && i > 0)
            n = 0;
    }
    if (n < 0) {
        json_decref(data);
        return error_set(err, (int)n,
                         n == -EFBIG ? "the agent in %s is too large for a ConfigMap (%s): strip it"
                                     : "cannot read the agent in %s: %s",
                         dir, strerror((int)-n));
    }
    made = json_pack("{s:s,s:s,s:{s:s,s:{s:s}},s:o}", "apiVersion", "v1", "kind", "ConfigMap",
                     "metadata", "name", name, "labels", "app.kubernetes.io/part-of", "threadtide",
                     "binaryData", data);
    if (!made)
        return error_set(err, -ENOMEM, "out of memory");
    *ret = made;
    return 0;
}
