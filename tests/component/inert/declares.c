/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has the agent among its own libraries, and asks it to begin as libtide does: prints "agent N
 * tasks M", whether it is there, and how many threads the process has within a second.
 */
#include <agent/program_api.h>

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

extern const struct agent_program_api tide_agent_program_api __attribute__((weak));

static int tasks(void)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

int main(void)
{
    const struct agent_program_api *api = &tide_agent_program_api;

    if (api)
        api->declare(4);
    for (int i = 0; i < 100 && tasks() == 1; i++)
        usleep(10000);
    printf("agent %d tasks %d\n", api != NULL, tasks());
    fflush(stdout);
    usleep(300000); /* its thread connects */
    return 0;
}
