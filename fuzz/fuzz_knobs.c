/* SPDX-License-Identifier: Apache-2.0 */
/* The one-line and key-value files of cgroups and schedstat. */
#include "host/cgroup/cgroup.h"
#include "host/proc/proc.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);
    struct cgroup_throttle throttle;
    uint64_t cpu_ns, wait_ns;
    uint32_t mcpu;

    if (cgroup_parse_cpu_max(text, &mcpu) == 0)
        CHECK(mcpu > 0);
    cgroup_parse_cpu_stat(text, &throttle);
    proc_parse_schedstat(text, &cpu_ns, &wait_ns);
    free(text);
    return 0;
}
