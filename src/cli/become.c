/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cli_become(const struct command *cmd, const char *program, char **argv)
{
    char path[PATH_MAX + NAME_MAX];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash;

    if (n < 0 || n == PATH_MAX)
        return cli_error(cmd, CLI_FAILED, NULL, "cannot find %s: /proc/self/exe: %s", program,
                         n < 0 ? strerror(errno) : "too long");
    path[n] = '\0';
    slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, NAME_MAX, "%s", program);
    execv(path, argv);
    return cli_error(cmd, CLI_FAILED, NULL, "cannot run %s: %s", path, strerror(errno));
}
