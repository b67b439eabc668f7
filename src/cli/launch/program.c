/* SPDX-License-Identifier: Apache-2.0 */
/* The program of a job: found, and executed in place of tide. */
#include "cli/launch/launch.h"

#include <string.h>
#include <sys/stat.h>

/* As execvp(3) searches: the first executable in PATH, else why the last one is none. */
static int try_program(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOTDIR ? -ENOENT : -errno;
    if (!S_ISREG(st.st_mode) || access(path, X_OK) < 0)
        return -EACCES;
    return 0;
}

static int find_in_path(const char *program)
{
    const char *path = getenv("PATH");
    char candidate[PATH_MAX];
    int result = -ENOENT;

    for (const char *at = path ? path : "/bin:/usr/bin";; at++) {
        size_t len = strcspn(at, ":");
        int n = snprintf(candidate, sizeof(candidate), "%.*s%s%s", (int)len, at, len ? "/" : "",
                         program);
        int r = n < (int)sizeof(candidate) ? try_program(candidate) : -ENOENT;

        if (r == 0)
            return 0;
        if (r == -EACCES)
            result = r;
        at += len;
        if (!*at)
            return result;
    }
}

static int cannot_run(const struct launch *l, int code)
{
    return cli_error_as(l->cmd, code == ENOENT ? CLI_NO_PROGRAM : CLI_CANNOT_RUN,
                        code == ENOENT ? "no-program" : "program-cannot-run", NULL, "%s: %s",
                        l->argv[0], strerror(code));
}

int launch_find(const struct launch *l)
{
    const char *program = l->argv[0];
    int r = strchr(program, '/') ? try_program(program) : find_in_path(program);

    return r < 0 ? cannot_run(l, -r) : CLI_OK;
}

int launch_exec(const struct launch *l)
{
    int r = docker_launch(l->argv);

    if (r >= 0)
        return r;
    execvp(l->argv[0], l->argv);
    return cannot_run(l, errno);
}
