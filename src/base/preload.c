/* SPDX-License-Identifier: Apache-2.0 */
#include "base/preload.h"

#include "base/cleanup.h"

#include <limits.h>
#include <string.h>

#define ERROR_WORD "agent-path"

/* The names that ld.so may put for $LIB in a 64-bit program of this machine. */
static const char *const lib_dirs[] = {"lib/x86_64-linux-gnu", "lib64", "lib",
                                       "lib/aarch64-linux-gnu"};

static bool holds_agent(const char *dir)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(lib_dirs); i++) {
        int n = snprintf(path, sizeof(path), "%s/%s/" PRELOAD_FILE, dir, lib_dirs[i]);

        if (n > 0 && (size_t)n < sizeof(path) && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static int directory_beside_program(char *ret_dir, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", ret_dir, size);
    char *slash;

    if (n < 0 || (size_t)n >= size)
        return -ENOENT;
    ret_dir[n] = '\0';
    slash = strrchr(ret_dir, '/');
    if (!slash || (size_t)(slash - ret_dir) + sizeof("/agent") > size)
        return -ENOENT;
    strcpy(slash, "/agent");
    return 0;
}

int preload_find(char *ret_dir, size_t size, struct error *err)
{
    const char *given = getenv("TIDE_AGENT_DIR");
    char dir[PATH_MAX];

    if (given && *given)
        snprintf(dir, sizeof(dir), "%s", given);
    else if (directory_beside_program(dir, sizeof(dir)) < 0 || !holds_agent(dir))
        snprintf(dir, sizeof(dir), "%s", TIDE_INSTALLED_AGENT_DIR);
    if (!holds_agent(dir))
        return error_word(err, error_set(err, -ENOENT, "there is no agent in %s", dir), "no-agent");
    if (strpbrk(dir, " \t\n:$"))
        return error_word(err,
                          error_set(err, -EINVAL,
                                    "LD_PRELOAD cannot name the agent in '%s' (blank, : or $)",
                                    dir),
                          "agent-path");
    if (strlen(dir) >= size)
        return error_set(err, -EINVAL, "the path of the agent is too long");
    strcpy(ret_dir, dir);
    return 0;
}

int preload_value(const char *present, const char *dir, char **ret_value)
{
    char *value;
    int n;

    if (present && strstr(present, "/" PRELOAD_FILE))
        n = asprintf(&value, "%s", present);
    else
        n = asprintf(&value, "%s%s%s/$LIB/" PRELOAD_FILE, present ? present : "",
                     present && *present ? ":" : "", dir);
    if (n < 0)
        return -ENOMEM;
    *ret_value = value;
    return 0;
}
