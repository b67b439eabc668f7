/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a stranger in the process could have changed: identity, threads, handlers, files. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void show_status(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];

    while (f && fgets(line, sizeof(line), f))
        if (!strncmp(line, "Threads:", 8) || !strncmp(line, "SigBlk:", 7) ||
            !strncmp(line, "SigIgn:", 7) || !strncmp(line, "SigCgt:", 7))
            fputs(line, stdout);
    if (f)
        fclose(f);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static int is_mapped(const char *name)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[4400];
    int found = 0;

    while (f && fgets(line, sizeof(line), f))
        found |= strstr(line, name) != NULL;
    if (f)
        fclose(f);
    return found;
}

int main(int argc, char **argv)
{
    printf("uid %d euid %d\n", (int)getuid(), (int)geteuid());
    show_status();
    printf("tasks %d files %d\n", count_entries("/proc/self/task"), count_entries("/proc/self/fd"));
    /* To the caller's file, so that the output is the same with and without the agent. */
    if (argc > 1) {
        FILE *f = fopen(argv[1], "w");

        if (f) {
            fprintf(f, "%s\n", is_mapped("libtide-agent") ? "mapped" : "absent");
            fclose(f);
        }
    }
    return 42;
}
