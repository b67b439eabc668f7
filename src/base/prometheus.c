/* SPDX-License-Identifier: Apache-2.0 */
#include "base/prometheus.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

void prometheus_family(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prometheus_one(FILE *f, const char *name, const char *type, const char *help, double value)
{
    prometheus_family(f, name, type, help);
    fprintf(f, "%s %.15g\n", name, value);
}

void prometheus_label(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fprintf(f, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", f);
        else
            fputc((unsigned char)*text < 0x80 ? *text : '?', f);
    }
}

void prometheus_process(FILE *f, const char *program)
{
    _cleanup_file_ FILE *statm = fopen("/proc/self/statm", "re");
    struct rusage usage = {0};
    char help[128];
    long pages = 0;

    getrusage(RUSAGE_SELF, &usage);
    if (statm && fscanf(statm, "%*d %ld", &pages) != 1)
        pages = 0;
    snprintf(help, sizeof(help), "CPU time that %s has used.", program);
    prometheus_one(f, "process_cpu_seconds_total", "counter", help,
                   (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    snprintf(help, sizeof(help), "Memory of %s that is resident.", program);
    prometheus_one(f, "process_resident_memory_bytes", "gauge", help,
                   (double)pages * (double)sysconf(_SC_PAGESIZE));
}

char *prometheus_end(FILE *f, char **text)
{
    if (fclose(f) == 0)
        return *text;
    free(*text);
    return NULL;
}
