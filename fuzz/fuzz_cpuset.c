/* SPDX-License-Identifier: Apache-2.0 */
/* A CPU list: an accepted list can be written and read again as the same set. */
#include "base/cpuset.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), again[CPUSET_TEXT_MAX];
    struct cpuset set, same;

    if (cpuset_parse(text, &set) == 0) {
        CHECK(cpuset_format(&set, again, sizeof(again)) >= 0);
        CHECK(cpuset_parse(again, &same) == 0 && cpuset_equal(&set, &same));
    }
    free(text);
    return 0;
}
