/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/model.h"

#include "power/model/prior.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-power-model"

#define POINTS_MAX   4
#define UW_PER_W     UINT64_C(1000000)
#define ERROR_POINTS 76 /* permille: p90 of SPECpower results against their own four points */
#define FORMS                                                                                      \
    "points:IDLE,FULL or points:W,W,W,W (at no load, a tenth, half and all) or "                   \
    "assumed:YEAR:SOCKETS"

/* Watts with up to six decimals; "-" and "+" are none. */
static int read_watts(const char **at, uint64_t *ret_uw)
{
    uint64_t uw = 0;
    const char *p = *at;
    int decimals = -1;

    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p) || (*p == '.' && decimals < 0); p++) {
        if (*p == '.') {
            decimals = 0;
            continue;
        }
        if (decimals == 6)
            return -EINVAL;
        decimals += decimals >= 0;
        uw = uw * 10 + (uint64_t)(*p - '0');
        if (uw > POWER_UW_MAX)
            return -EINVAL;
    }
    for (int i = decimals < 0 ? 0 : decimals; i < 6; i++)
        uw *= 10;
    *at = p;
    *ret_uw = uw;
    return uw <= POWER_UW_MAX ? 0 : -EINVAL;
}

static int read_points(const char *text, uint32_t cores, struct watts *ret, struct error *err)
{
    static const uint32_t percent[POINTS_MAX] = {0, 10, 50, 100};
    uint64_t uw[POINTS_MAX];
    size_t n = 0;

    for (const char *at = text;; at++) {
        if (n == POINTS_MAX || read_watts(&at, &uw[n]) < 0)
            return error_set(err, -EINVAL, "'points:%.60s' is not two or four numbers of watts",
                             text);
        if (n > 0 && uw[n] < uw[n - 1])
            return error_set(err, -EINVAL, "points:%.60s: watts must not fall with the load", text);
        n++;
        if (*at == '\0')
            break;
        if (*at != ',')
            return error_set(err, -EINVAL, "'points:%.60s' is not two or four numbers of watts",
                             text);
    }
    if (n == 2)
        return prior_shape(UINT32_MAX, uw[0], uw[1], cores, ret);
    if (n != POINTS_MAX)
        return error_set(err, -EINVAL, "points:%.60s: there must be two or four", text);
    *ret = (struct watts){
        .count = POINTS_MAX, .error_permille = ERROR_POINTS, .basis = POWER_MODELLED};
    for (size_t i = 0; i < POINTS_MAX; i++)
        ret->point[i] = (struct watts_point){percent[i] * 10 * cores, uw[i]};
    snprintf(ret->source, sizeof(ret->source), "four points of the configuration");
    return 0;
}

static int read_assumed(const char *text, uint32_t cores, struct watts *ret, struct error *err)
{
    unsigned year, sockets;
    int end = 0;

    if (sscanf(text, "%4u:%2u%n", &year, &sockets, &end) != 2 || text[end] != '\0' ||
        !isdigit((unsigned char)text[0]))
        return error_set(err, -EINVAL, "'assumed:%.60s' is not YEAR:SOCKETS", text);
    if (prior_watts(year, sockets, cores, ret) < 0)
        return error_set(err, -EINVAL,
                         "assumed:%.60s: nothing is known of machines of that year with that many "
                         "sockets (from %u on; 1, 2, 4, 8 sockets)",
                         text, PRIOR_YEAR_FIRST);
    return 0;
}

int model_parse(const char *text, uint32_t cores, struct watts *ret, struct error *err)
{
    struct watts w = {0};
    int r = 0;

    if (strncmp(text, "points:", 7) == 0)
        r = read_points(text + 7, cores, &w, err);
    else if (strncmp(text, "assumed:", 8) == 0)
        r = read_assumed(text + 8, cores, &w, err);
    else if (*text)
        r = error_set(err, -EINVAL, "'%.60s' is none of " FORMS, text);
    if (r == 0)
        *ret = w;
    return r;
}
