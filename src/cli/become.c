/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "broken-installation"

int cli_folder(char ret[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX);
    char *slash;

    if (n < 0 || n == PATH_MAX)
        return n < 0 ? -errno : -ENAMETOOLONG;
    ret[n] = '\0';
    slash = strrchr(ret, '/');
    if (!slash)
        return -ENOENT;
    *slash = '\0';
    return 0;
}

int cli_become(const struct command *cmd, const char *program, char **argv)
{
    char folder[PATH_MAX], path[PATH_MAX + NAME_MAX];
    int r = cli_folder(folder);

    if (r < 0)
        return cli_error(cmd, CLI_FAILED, NULL, "cannot find %s: /proc/self/exe: %s", program,
                         strerror(-r));
    snprintf(path, sizeof(path), "%s/%s", folder, program);
    execv(path, argv);
    return cli_error(cmd, CLI_FAILED, NULL, "cannot run %s: %s", path, strerror(errno));
}
