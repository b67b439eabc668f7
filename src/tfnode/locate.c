/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/locate.h"

#include "base/cleanup.h"

#include <glob.h>
#include <stdbool.h>
#include <string.h>

/* The directories of packages below the PREFIX of a Python installation; Debian's is the last. */
static const char *const below_prefix[] = {
    "lib/python3.*/site-packages",
    "lib64/python3.*/site-packages",
    "lib/python3.*/dist-packages",
    "lib/python3/dist-packages",
};

struct search {
    const char *root;
    struct located *out;
};

static void remember(struct search *s, const char *pattern)
{
    size_t len = strlen(s->out->looked);

    snprintf(s->out->looked + len, sizeof(s->out->looked) - len, "  %s\n", pattern);
}

/* Takes the match of the newest Python; 3.10 is newer than 3.9. */
static bool take_newest(struct search *s, const glob_t *found)
{
    const char *best = NULL;

    for (size_t i = 0; i < found->gl_pathc; i++) {
        if (!best || strverscmp(found->gl_pathv[i], best) > 0)
            best = found->gl_pathv[i];
    }
    if (!best || strlen(best) >= sizeof(s->out->library))
        return false;
    strcpy(s->out->library, best);
    return true;
}

/* @directory may be a pattern. */
static bool look_in(struct search *s, const char *directory)
{
    char pattern[PATH_MAX];
    glob_t found;
    bool taken;
    int n = snprintf(pattern, sizeof(pattern), "%s%s/" LOCATE_LIBRARY, s->root, directory);

    if (n >= (int)sizeof(pattern))
        return false;
    remember(s, directory);
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    taken = take_newest(s, &found);
    globfree(&found);
    return taken;
}

static bool look_in_package(struct search *s, const char *packages, size_t len)
{
    char directory[PATH_MAX];
    int n = snprintf(directory, sizeof(directory), "%.*s/tensorflow", (int)len, packages);

    return n < (int)sizeof(directory) && look_in(s, directory);
}

static bool look_below(struct search *s, const char *prefix, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(below_prefix); i++) {
        char packages[PATH_MAX];
        int n = snprintf(packages, sizeof(packages), "%.*s/%s", (int)len, prefix, below_prefix[i]);

        if (n < (int)sizeof(packages) && look_in_package(s, packages, (size_t)n))
            return true;
    }
    return false;
}

static bool look_below_variable(struct search *s, const char *variable, const char *inside)
{
    const char *value = getenv(variable);
    char prefix[PATH_MAX];
    int n;

    if (!value || *value != '/')
        return false;
    n = snprintf(prefix, sizeof(prefix), "%s%s", value, inside);
    return n < (int)sizeof(prefix) && look_below(s, prefix, (size_t)n);
}

static bool look_in_pythonpath(struct search *s)
{
    const char *path = getenv("PYTHONPATH");

    while (path && *path) {
        size_t len = strcspn(path, ":");

        if (*path == '/' && look_in_package(s, path, len))
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

/* Looks below PREFIX of the first PREFIX/bin/python3: finds environments not activated, too. */
static bool look_beside_python(struct search *s)
{
    const char *path = getenv("PATH");

    while (path && *path) {
        size_t len = strcspn(path, ":");
        char program[PATH_MAX];
        int n = snprintf(program, sizeof(program), "%s%.*s/python3", s->root, (int)len, path);

        if (*path == '/' && n < (int)sizeof(program) && access(program, X_OK) == 0)
            return len > 4 && memcmp(path + len - 4, "/bin", 4) == 0 &&
                   look_below(s, path, len - 4);
        path += len + (path[len] == ':');
    }
    return false;
}

int locate_tensorflow(const char *given, const char *root, struct located *ret)
{
    struct search s = {.root = root, .out = ret};

    ret->library[0] = ret->looked[0] = '\0';
    if (given)
        return look_in(&s, given) || look_in_package(&s, given, strlen(given)) ? 0 : -ENOENT;
    return look_below_variable(&s, "VIRTUAL_ENV", "") ||
                   look_below_variable(&s, "CONDA_PREFIX", "") || look_in_pythonpath(&s) ||
                   look_beside_python(&s) || look_below_variable(&s, "HOME", "/.local") ||
                   look_below(&s, "/usr/local", strlen("/usr/local")) ||
                   look_below(&s, "/usr", strlen("/usr"))
               ? 0
               : -ENOENT;
}
