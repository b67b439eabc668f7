/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/prior.h"

#include "base/muldiv.h"
#include "power/model/prior_rows.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define CORE_MCPU 1000
#define UW_PER_W  UINT64_C(1000000)

struct shape {
    uint16_t year, error_permille;
    uint16_t permille[WATTS_POINTS - 2]; /* from idle to full, at the loads below */
};

struct row {
    uint16_t year, sockets, idle_w, full_w, error_permille, results;
};

#define SHAPE(year, error, ...) {year, error, {__VA_ARGS__}},
#define ROW(...)                {__VA_ARGS__},

static const uint32_t load_percent[WATTS_POINTS] = {0, 10, 20, 40, 60, 80, 90, 100};
static const struct shape shapes[] = {PRIOR_SHAPES(SHAPE)};
static const struct row rows[] = {PRIOR_ROWS(ROW)};

static const struct shape *shape_of(uint32_t year)
{
    const struct shape *ret = NULL;

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (shapes[i].year <= year)
            ret = &shapes[i];
    return ret;
}

static const struct row *row_of(uint32_t year, uint32_t sockets)
{
    const struct shape *group = shape_of(year);

    for (size_t i = 0; group && i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].year == group->year && rows[i].sockets == sockets)
            return &rows[i];
    return NULL;
}

/* Pure code has no strlen(): literals know their length. */
#define PUT_TEXT(at, literal) put_bytes(at, "" literal, sizeof(literal))

static char *put_bytes(char *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size - 1;
}

static char *put_number(char *at, uint32_t number)
{
    char digits[12];
    size_t n = sizeof(digits);

    digits[--n] = '\0';
    do
        digits[--n] = (char)('0' + number % 10);
    while (number /= 10);
    return put_bytes(at, digits + n, sizeof(digits) - n);
}

static int draw(const struct shape *shape, uint64_t idle_uw, uint64_t full_uw, uint32_t cores,
                struct watts *ret)
{
    if (cores == 0 || cores > WATTS_LOAD_MAX / CORE_MCPU || full_uw < idle_uw ||
        full_uw > POWER_UW_MAX)
        return -EINVAL;
    memset(ret, 0, sizeof(*ret));
    ret->count = WATTS_POINTS;
    ret->error_permille = shape->error_permille;
    for (uint32_t i = 0; i < WATTS_POINTS; i++) {
        uint32_t permille = i == 0 ? 0 : i == WATTS_POINTS - 1 ? 1000 : shape->permille[i - 1];

        ret->point[i].load_mcpu = load_percent[i] * (CORE_MCPU / 100) * cores;
        ret->point[i].uw = idle_uw + mul_div(full_uw - idle_uw, permille, 1000);
    }
    return 0;
}

int prior_shape(uint32_t year, uint64_t idle_uw, uint64_t full_uw, uint32_t cores,
                struct watts *ret)
{
    const struct shape *shape = shape_of(year);
    int r;

    if (!shape)
        return -ENOENT;
    r = draw(shape, idle_uw, full_uw, cores, ret);
    if (r < 0)
        return r;
    ret->basis = POWER_MODELLED;
    put_number(PUT_TEXT(ret->source, "idle and full, SPECpower's curve of "), shape->year);
    return 0;
}

int prior_watts(uint32_t year, uint32_t sockets, uint32_t cores, struct watts *ret)
{
    const struct row *row = row_of(year, sockets);
    char *at;
    int r;

    if (!row)
        return -ENOENT;
    r = draw(shape_of(year), row->idle_w * UW_PER_W, row->full_w * UW_PER_W, cores, ret);
    if (r < 0)
        return r;
    ret->basis = POWER_ASSUMED;
    ret->error_permille = row->error_permille;
    at = put_number(PUT_TEXT(ret->source, "SPECpower "), row->year);
    at = put_number(PUT_TEXT(at, ", sockets: "), row->sockets);
    PUT_TEXT(put_number(PUT_TEXT(at, ", "), row->results), " results");
    return 0;
}
