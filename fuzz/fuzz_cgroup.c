/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/PID/cgroup: looks up a v1 controller and v2 in it. */
#include "host/proc/proc.h"
#include "input.h"

static void ask(const char *text, const char *controller, size_t size)
{
    char *path = malloc(size);

    CHECK(path);
    if (proc_parse_cgroup(text, controller, path, size) == 0)
        CHECK(path[0] == '/' && memchr(path, '\0', size));
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);

    ask(text, "cpu", 64);
    ask(text, "cpuset", 8);
    ask(text, "", 4096);
    free(text);
    return 0;
}
