/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/redfish_json.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/cleanup.h"
#include "power/measure/range.h"

#define UJ_KWH 3.6e12
#define UJ_MAX 4e18

static json_t *object(const char *text, size_t len)
{
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);

    if (json_is_object(j))
        return j;
    json_decref(j);
    return NULL;
}

/* A path that can stand in a request: no blanks, no control characters, no other host. */
static bool take_path(const json_t *link, char ret[REDFISH_PATH_MAX])
{
    const char *path = json_string_value(json_object_get(link, "@odata.id"));
    size_t n = path ? strlen(path) : 0;

    if (n == 0 || n >= REDFISH_PATH_MAX || path[0] != '/' || path[1] == '/')
        return false;
    for (size_t i = 0; i < n; i++)
        if (path[i] <= ' ' || path[i] >= 0x7f)
            return false;
    memcpy(ret, path, n + 1);
    return true;
}

int redfish_members(const char *text, size_t len, struct redfish_members *ret)
{
    json_t *j = object(text, len);
    const json_t *member;
    size_t i;

    if (!j)
        return -EBADMSG;
    ret->n = 0;
    json_array_foreach (json_object_get(j, "Members"), i, member)
        if (ret->n < REDFISH_MEMBERS_MAX && take_path(member, ret->path[ret->n]))
            ret->n++;
    json_decref(j);
    return ret->n ? 0 : -ENOENT;
}

int redfish_chassis(const char *text, size_t len, struct redfish_chassis *ret)
{
    static const char *const members[] = {"EnvironmentMetrics", "Power"};
    json_t *j = object(text, len);

    if (!j)
        return -EBADMSG;
    ret->n = 0;
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (take_path(json_object_get(j, members[i]), ret->path[ret->n]))
            ret->n++;
    json_decref(j);
    return ret->n ? 0 : -ENOENT;
}

static bool take_number(const json_t *value, double scale, double most, uint64_t *ret)
{
    double n = json_number_value(value) * scale;

    if (!json_is_number(value) || !(n >= 0 && n <= most))
        return false;
    *ret = (uint64_t)(n + 0.5);
    return true;
}

int redfish_reading(const char *text, size_t len, struct redfish_reading *ret)
{
    struct redfish_reading r = {0};
    json_t *j = object(text, len);
    const json_t *control;

    if (!j)
        return -EBADMSG;
    control = json_array_get(json_object_get(j, "PowerControl"), 0);
    r.has_uw = take_number(json_object_get(json_object_get(j, "PowerWatts"), "Reading"), 1e6,
                           (double)POWER_UW_MAX, &r.uw) ||
               take_number(json_object_get(control, "PowerConsumedWatts"), 1e6,
                           (double)POWER_UW_MAX, &r.uw);
    r.has_uj = take_number(json_object_get(json_object_get(j, "EnergykWh"), "Reading"), UJ_KWH,
                           UJ_MAX, &r.uj);
    json_decref(j);
    if (!r.has_uw && !r.has_uj)
        return -ENOENT;
    *ret = r;
    return 0;
}
