/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failpoint.h"

#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    [FAILPOINT_CAP_STORED] = "cap-stored",
    [FAILPOINT_CAP_PLACED] = "cap-placed",
    [FAILPOINT_BACKSTOP_NOTED] = "backstop-noted",
    [FAILPOINT_POLICY_STORED] = "policy-stored",
    [FAILPOINT_POLICY_SENT] = "policy-sent",
    [FAILPOINT_LEASES_STORED] = "leases-stored",
    [FAILPOINT_LEASE_SENT] = "lease-sent",
    [FAILPOINT_UNIT_POLICY_STORED] = "unit-policy-stored",
    [FAILPOINT_ORDER_NOTED] = "unit-order-noted",
    [FAILPOINT_TENURE_STORED] = "unit-tenure-stored",
    [FAILPOINT_ENERGY_PUT] = "energy-put",
    [FAILPOINT_ENERGY_STORED] = "energy-stored",
    [FAILPOINT_ENERGY_TOLD] = "energy-told",
    [FAULT_STORE_OPEN] = "store-open",
    [FAULT_STORE_WRITE] = "store-write",
    [FAULT_STORE_RENAME] = "store-rename",
    [FAULT_ACCEPT] = "accept",
    [FAULT_PEER_MEMORY] = "peer-memory",
    [FAULT_JOB_MEMORY] = "job-memory",
    [FAULT_PROCESS_MEMORY] = "process-memory",
    [FAULT_SEND] = "send",
    [FAULT_AFFINITY] = "affinity",
    [FAULT_GROUP_MAKE] = "group-make",
    [FAULT_GROUP_REMOVE] = "group-remove",
    [FAULT_GROUP_QUOTA] = "group-quota",
    [FAULT_WEIGHT_WRITE] = "weight-write",
    [FAULT_FREEZER_LIST] = "freezer-list",
    [FAULT_POLICY_STORE] = "unit-policy-store",
    [FAULT_ORDER_STORE] = "unit-order-store",
    [FAULT_TENURE_STORE] = "unit-tenure-store",
};

static_assert(ARRAY_LEN(names) == FAILPOINT_MAX, "a failpoint has a name");
static_assert((int)FAILPOINT_MAX <= 64, "… and a bit");

uint64_t failpoints_armed;

static struct {
    unsigned long left; /* passages until it happens; 0: it has happened */
    bool lasting;       /* it happens again at each later passage */
    int error;
    unsigned long delay_ms;
} wanted[FAILPOINT_MAX];

static int error_number(const char *text)
{
    static const struct {
        const char *name;
        int number;
    } errors[] = {{"ENOSPC", ENOSPC}, {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM},
                  {"EIO", EIO},       {"EROFS", EROFS},   {"EAGAIN", EAGAIN}};

    for (size_t i = 0; i < ARRAY_LEN(errors); i++)
        if (strcmp(errors[i].name, text) == 0)
            return errors[i].number;
    return 0;
}

/* Reads NAME:N[+][:WHAT]. An unknown name has no effect. */
static void arm(char *text)
{
    char *save = NULL, *end = "";
    const char *name = strtok_r(text, ":", &save);
    const char *passage = strtok_r(NULL, ":", &save);
    const char *what = strtok_r(NULL, ":", &save);

    for (unsigned i = 1; name && i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        failpoints_armed |= 1ull << i;
        wanted[i].left = passage ? strtoul(passage, &end, 10) : 1;
        wanted[i].lasting = *end == '+';
        if (what && strncmp(what, "delay=", 6) == 0)
            wanted[i].delay_ms = strtoul(what + 6, NULL, 10);
        else if (what)
            wanted[i].error = error_number(what);
    }
}

void failpoint_arm(void)
{
    const char *given = secure_getenv("TIDE_FAILPOINT");
    char *text = given ? strdup(given) : NULL, *save = NULL;

    for (char *one = text ? strtok_r(text, ",", &save) : NULL; one;
         one = strtok_r(NULL, ",", &save))
        arm(one);
    free(text);
}

void failpoint_disarm(void)
{
    failpoints_armed = 0;
}

int failpoint_passed(enum failpoint here)
{
    struct timespec pause = {.tv_sec = (time_t)(wanted[here].delay_ms / 1000),
                             .tv_nsec = (long)(wanted[here].delay_ms % 1000) * 1000000};

    if (wanted[here].left > 1 || (wanted[here].left == 0 && !wanted[here].lasting)) {
        wanted[here].left -= wanted[here].left > 0;
        return 0;
    }
    wanted[here].left = 0;
    if (!wanted[here].delay_ms && !wanted[here].error)
        kill(getpid(), SIGKILL);
    nanosleep(&pause, NULL);
    if (wanted[here].error)
        errno = wanted[here].error;
    return -wanted[here].error;
}
