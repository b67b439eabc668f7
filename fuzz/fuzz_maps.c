/* SPDX-License-Identifier: Apache-2.0 */
/* A line of /proc/PID/maps: any user can choose the file names in it. */
#include "host/proc/proc.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *line = input_text(data, size), version[PROC_VERSION_MAX];
    const char *path;
    int runtime = proc_parse_maps_line(line, &path);

    if (runtime >= 0) {
        CHECK(runtime < PROC_RUNTIME_MAX);
        CHECK(path >= line && path < line + size && *path == '/');
        if (proc_library_version(path, version) == 0)
            CHECK(memchr(version, '\0', sizeof(version)) && *version);
    }
    free(line);
    return 0;
}
