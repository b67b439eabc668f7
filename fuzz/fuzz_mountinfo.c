/* SPDX-License-Identifier: Apache-2.0 */
/* A line of /proc/self/mountinfo. */
#include "host/cgroup/cgroup.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *line = input_text(data, size);
    struct cgroup_mount mount;

    if (cgroup_parse_mountinfo_line(line, &mount) == 0) {
        CHECK(mount.point[0] == '/' && memchr(mount.point, '\0', sizeof(mount.point)));
        CHECK(mount.version == CGROUP_NONE || mount.root[0] == '/');
        CHECK(mount.version == CGROUP_V1 || (!mount.cpu && !mount.cpuset));
    }
    free(line);
    return 0;
}
