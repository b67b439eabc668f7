/* SPDX-License-Identifier: Apache-2.0 */
#include "host/cgroup/cgroup_ops.h"

#include "host/proc/file.h"

#include <stdio.h>
#include <string.h>

#define PERIOD_US  100000u /* the kernel's default */
#define SHARES_STD 1024u   /* v1's default */
#define SHARES_MIN 2u
#define SHARES_MAX 262144u

static int knob_u64(int root, const char *dir, const char *file, uint64_t *ret)
{
    char path[FILE_PATH_MAX];
    int r = file_path(path, sizeof(path), "%s/%s", dir, file);

    return r < 0 ? r : file_read_u64(root, path, ret);
}

static int knob_text(int root, const char *dir, const char *file, char *buf, size_t size)
{
    char path[FILE_PATH_MAX];
    int r = file_path(path, sizeof(path), "%s/%s", dir, file);

    return r < 0 ? r : file_read(root, path, buf, size);
}

static int knob_write(int root, const char *dir, const char *file, const char *text)
{
    char path[FILE_PATH_MAX];
    int r = file_path(path, sizeof(path), "%s/%s", dir, file);

    return r < 0 ? r : file_write(root, path, text);
}

static int knob_write_u64(int root, const char *dir, const char *file, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return knob_write(root, dir, file, text);
}

int cgroup_read_cpus(int root, const char *dir, const char *file, struct cpuset *ret)
{
    char buf[CPUSET_TEXT_MAX];
    int r = knob_text(root, dir, file, buf, sizeof(buf));

    return r < 0 ? r : cpuset_parse(buf, ret);
}

static uint32_t quota_mcpu(uint64_t quota_us, uint64_t period_us)
{
    uint64_t mcpu;

    if (period_us == 0 || __builtin_mul_overflow(quota_us, 1000, &mcpu))
        return CGROUP_NO_QUOTA;
    mcpu /= period_us;
    if (mcpu == 0)
        return 1; /* never 0: a limit of 0 cores would stop the program */
    return mcpu < CGROUP_NO_QUOTA ? (uint32_t)mcpu : CGROUP_NO_QUOTA;
}

/* ---- version 1 ---- */

static uint32_t weight_to_shares(uint32_t weight)
{
    uint32_t shares = weight * SHARES_STD / CGROUP_WEIGHT_STD;

    return shares < SHARES_MIN ? SHARES_MIN : shares;
}

static int v1_get_weight(int root, const char *dir, uint32_t *ret)
{
    uint64_t shares;
    int r = knob_u64(root, dir, "cpu.shares", &shares);

    if (r < 0)
        return r;
    *ret = (uint32_t)((shares * CGROUP_WEIGHT_STD + SHARES_STD / 2) / SHARES_STD);
    return 0;
}

static int v1_set_weight(int root, const char *dir, uint32_t weight)
{
    uint64_t held;
    int r = knob_write_u64(root, dir, "cpu.shares", weight_to_shares(weight));

    if (r == 0)
        r = knob_u64(root, dir, "cpu.shares", &held);
    return r < 0 ? r : held == weight_to_shares(weight) ? 0 : -EIO;
}

static int v1_get_quota(int root, const char *dir, uint32_t *ret_mcpu)
{
    uint64_t quota, period;
    char text[32];
    int r = knob_text(root, dir, "cpu.cfs_quota_us", text, sizeof(text));

    if (r < 0)
        return r;
    if (text[0] == '-') {
        *ret_mcpu = CGROUP_NO_QUOTA;
        return 0;
    }
    r = knob_u64(root, dir, "cpu.cfs_quota_us", &quota);
    if (r == 0)
        r = knob_u64(root, dir, "cpu.cfs_period_us", &period);
    if (r < 0)
        return r;
    *ret_mcpu = quota_mcpu(quota, period);
    return 0;
}

static int v1_set_quota(int root, const char *dir, uint32_t mcpu)
{
    char text[24] = "-1";
    int r;

    if (mcpu != CGROUP_NO_QUOTA) {
        snprintf(text, sizeof(text), "%llu", (unsigned long long)mcpu * (PERIOD_US / 1000));
        r = knob_write_u64(root, dir, "cpu.cfs_period_us", PERIOD_US);
        if (r < 0)
            return r;
    }
    return knob_write(root, dir, "cpu.cfs_quota_us", text);
}

static int v1_get_frost(int root, const char *dir, enum cgroup_frost *ret)
{
    char text[16];
    int r = knob_text(root, dir, "freezer.state", text, sizeof(text));

    if (r < 0)
        return r;
    *ret = strncmp(text, "FROZEN", 6) == 0     ? CGROUP_FROZEN
           : strncmp(text, "FREEZING", 8) == 0 ? CGROUP_FREEZING
                                               : CGROUP_THAWED;
    return 0;
}

static int v1_set_frozen(int root, const char *dir, bool frozen)
{
    return knob_write(root, dir, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

static int v1_enable(int root, const char *dir, unsigned controllers)
{
    return 0; /* a v1 hierarchy has its controllers in every group */
}

/* A v1 cpuset group starts empty and takes no process before both files are set. */
static int v1_populate(int root, const char *dir, const char *child, unsigned controllers)
{
    static const char *const knobs[] = {"cpuset.cpus", "cpuset.mems"};

    if (!(controllers & CGROUP_CPUSET))
        return 0;
    for (size_t i = 0; i < 2; i++) {
        char text[CPUSET_TEXT_MAX], held[CPUSET_TEXT_MAX];
        int r = knob_text(root, child, knobs[i], held, sizeof(held));

        if (r < 0)
            return r;
        if (held[0] && held[0] != '\n') /* the group was made earlier */
            continue;
        r = knob_text(root, dir, knobs[i], text, sizeof(text));
        if (r >= 0)
            r = knob_write(root, child, knobs[i], text);
        if (r < 0)
            return r;
    }
    return 0;
}

const struct cgroup_ops cgroup_ops_v1 = {
    .effective_cpus = "cpuset.effective_cpus",
    .memory_limit = "memory.limit_in_bytes",
    .memory_events = "memory.oom_control",
    .memory_current = "memory.usage_in_bytes",
    .memory_peak = "memory.max_usage_in_bytes",
    .file_pages = {"total_active_file", "total_inactive_file"},
    .unwritten = {"total_dirty", "total_writeback"},
    .units_file = "cpu.shares",
    .units = {SHARES_MIN, SHARES_STD, SHARES_MAX},
    .get_weight = v1_get_weight,
    .set_weight = v1_set_weight,
    .get_quota = v1_get_quota,
    .set_quota = v1_set_quota,
    .get_frost = v1_get_frost,
    .set_frozen = v1_set_frozen,
    .enable = v1_enable,
    .populate = v1_populate,
};

/* ---- version 2 ---- */

static int v2_get_weight(int root, const char *dir, uint32_t *ret)
{
    uint64_t weight;
    int r = knob_u64(root, dir, "cpu.weight", &weight);

    if (r < 0)
        return r;
    *ret = (uint32_t)weight;
    return 0;
}

static int v2_set_weight(int root, const char *dir, uint32_t weight)
{
    return knob_write_u64(root, dir, "cpu.weight", weight);
}

int cgroup_parse_cpu_max(const char *text, uint32_t *ret_mcpu)
{
    uint64_t quota = 0, period;
    bool unlimited = strncmp(text, "max ", 4) == 0;

    if (unlimited)
        text += 3;
    else if (text_scan_u64(&text, &quota) < 0)
        return -EINVAL;
    if (*text++ != ' ' || text_scan_u64(&text, &period) < 0 || period == 0)
        return -EINVAL;
    if (*text && strcmp(text, "\n") != 0)
        return -EINVAL;
    *ret_mcpu = unlimited ? CGROUP_NO_QUOTA : quota_mcpu(quota, period);
    return 0;
}

static int v2_get_quota(int root, const char *dir, uint32_t *ret_mcpu)
{
    char text[64];
    int r = knob_text(root, dir, "cpu.max", text, sizeof(text));

    return r < 0 ? r : cgroup_parse_cpu_max(text, ret_mcpu);
}

static int v2_set_quota(int root, const char *dir, uint32_t mcpu)
{
    char text[48];

    if (mcpu == CGROUP_NO_QUOTA)
        snprintf(text, sizeof(text), "max %u", PERIOD_US);
    else
        snprintf(text, sizeof(text), "%llu %u", (unsigned long long)mcpu * (PERIOD_US / 1000),
                 PERIOD_US);
    return knob_write(root, dir, "cpu.max", text);
}

/* cgroup.freeze holds this group's own setting; cgroup.events the state, whatever its cause. */
static int v2_get_frost(int root, const char *dir, enum cgroup_frost *ret)
{
    char events[128];
    uint64_t wish;
    int r = knob_text(root, dir, "cgroup.events", events, sizeof(events));

    if (r >= 0)
        r = knob_u64(root, dir, "cgroup.freeze", &wish);
    if (r < 0)
        return r;
    *ret = strstr(events, "frozen 1") ? CGROUP_FROZEN : wish ? CGROUP_FREEZING : CGROUP_THAWED;
    return 0;
}

static int v2_set_frozen(int root, const char *dir, bool frozen)
{
    return knob_write(root, dir, "cgroup.freeze", frozen ? "1" : "0");
}

/* A v2 group has a controller's files if its parent hands that controller down. */
static int v2_enable(int root, const char *dir, unsigned controllers)
{
    int r = 0;

    if (controllers & CGROUP_CPU)
        r = knob_write(root, dir, "cgroup.subtree_control", "+cpu");
    if (r == 0 && (controllers & CGROUP_CPUSET))
        r = knob_write(root, dir, "cgroup.subtree_control", "+cpuset");
    return r;
}

static int v2_populate(int root, const char *dir, const char *child, unsigned controllers)
{
    return 0; /* an empty cpuset.cpus means the parent's */
}

const struct cgroup_ops cgroup_ops_v2 = {
    .effective_cpus = "cpuset.cpus.effective",
    .memory_limit = "memory.max",
    .memory_events = "memory.events",
    .memory_current = "memory.current",
    .memory_peak = "memory.peak",
    .file_pages = {"active_file", "inactive_file"},
    .unwritten = {"file_dirty", "file_writeback"},
    .units_file = "cpu.weight",
    .units = {CGROUP_WEIGHT_MIN, CGROUP_WEIGHT_STD, CGROUP_WEIGHT_MAX},
    .get_weight = v2_get_weight,
    .set_weight = v2_set_weight,
    .get_quota = v2_get_quota,
    .set_quota = v2_set_quota,
    .get_frost = v2_get_frost,
    .set_frozen = v2_set_frozen,
    .enable = v2_enable,
    .populate = v2_populate,
};
