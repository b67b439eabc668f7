/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failpoint.h"

#include "base/cleanup.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [FAILPOINT_NONE] = "",
    [FAILPOINT_STORE_WRITTEN] = "store-written",
    [FAILPOINT_STORE_RENAMED] = "store-renamed",
    [FAILPOINT_SOCKET_BOUND] = "socket-bound",
    [FAILPOINT_JOB_BEGUN] = "job-begun",
    [FAILPOINT_GUARDIAN_NOTED] = "guardian-noted",
    [FAILPOINT_GROUP_MADE] = "group-made",
    [FAILPOINT_TARGET_LOWERED] = "target-lowered",
    [FAILPOINT_ACK_RECEIVED] = "ack-received",
    [FAILPOINT_PROCESS_FENCED] = "process-fenced",
    [FAILPOINT_CORES_NARROWED] = "cores-narrowed",
    [FAILPOINT_CORES_WIDENED] = "cores-widened",
    [FAILPOINT_QUOTA_SET] = "quota-set",
    [FAILPOINT_TARGET_RAISED] = "target-raised",
    [FAILPOINT_WEIGHT_SET] = "weight-set",
    [FAILPOINT_CONTAINER_NOTED] = "container-noted",
    [FAILPOINT_CONTAINER_TAKEN] = "container-taken",
    [FAILPOINT_CONTAINER_ENDED] = "container-ended",
    [FAILPOINT_ENGINE_SERVED] = "engine-served",
    [FAILPOINT_UPDATE_ASKED] = "update-asked",
    [FAILPOINT_UPDATE_ANSWERED] = "update-answered",
    [FAILPOINT_PAUSE_ASKED] = "pause-asked",
    [FAILPOINT_PAUSE_ANSWERED] = "pause-answered",
    [FAILPOINT_UNPAUSE_ASKED] = "unpause-asked",
    [FAILPOINT_UNPAUSE_ANSWERED] = "unpause-answered",
};

static_assert(ARRAY_LEN(names) == FAILPOINT_MAX, "a failpoint has a name");

enum failpoint failpoint_armed;
static unsigned long left; /* passages until the end */

void failpoint_arm(void)
{
    const char *text = secure_getenv("TIDE_FAILPOINT");
    size_t len = text ? strcspn(text, ":") : 0;

    for (unsigned i = 1; len > 0 && i < ARRAY_LEN(names); i++)
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0)
            failpoint_armed = (enum failpoint)i;
    left = failpoint_armed && text[len] ? strtoul(text + len + 1, NULL, 10) : 1;
}

void failpoint_disarm(void)
{
    failpoint_armed = FAILPOINT_NONE;
}

void failpoint_passed(void)
{
    if (left > 0 && --left == 0)
        kill(getpid(), SIGKILL);
}
