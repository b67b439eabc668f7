/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resources of Redfish (DSP0266, schemas of DSP8010) that tell a machine's power. They come
 * from a management controller: hostile. Pure; any thread; used by redfish.c and tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDFISH_PATH_MAX    128
#define REDFISH_MEMBERS_MAX 8

struct redfish_members {
    size_t n;
    char path[REDFISH_MEMBERS_MAX][REDFISH_PATH_MAX];
};

/* Where a chassis tells its power, best first. */
struct redfish_chassis {
    size_t n;
    char path[2][REDFISH_PATH_MAX]; /* EnvironmentMetrics, Power */
};

struct redfish_reading {
    bool has_uw, has_uj;
    uint64_t uw, uj;
};

/* Each returns 0, -EBADMSG (no JSON object), or -ENOENT (it has no such member). */
int redfish_members(const char *text, size_t len, struct redfish_members *ret);
int redfish_chassis(const char *text, size_t len, struct redfish_chassis *ret);

/* EnvironmentMetrics or Power. Numbers that are negative or too large are none. */
int redfish_reading(const char *text, size_t len, struct redfish_reading *ret);
