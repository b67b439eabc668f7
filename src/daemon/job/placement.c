/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/placement.h"

#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const char *const placement_names[] = {
    [PLACEMENT_SHARED] = "shared",
    [PLACEMENT_EXCLUSIVE] = "exclusive",
    [PLACEMENT_QUOTA] = "quota",
};
static_assert(ARRAY_LEN(placement_names) == PLACEMENT_MAX, "a placement without a name");

const char *placement_name(enum placement placement)
{
    return placement_names[placement];
}

int placement_parse(const char *text, enum placement *ret)
{
    for (unsigned i = 0; i < PLACEMENT_MAX; i++)
        if (strcmp(text, placement_names[i]) == 0) {
            *ret = (enum placement)i;
            return 0;
        }
    return -EINVAL;
}
