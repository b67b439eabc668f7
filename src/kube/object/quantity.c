/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/object/quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DIGITS_MAX   18 /* before the point, and behind it: 10^36 is below 2^128 */
#define EXPONENT_MAX 24
#define NS           INT64_C(1000000000)

__extension__ typedef unsigned __int128 wide;

/* ---- quantities ------------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number value / 10^decimals; `more`: digits that are not kept were not all zero. */
struct number {
    wide value;
    int decimals;
    bool more;
};

/* Returns where the number ends, or NULL. */
static const char *read_number(const char *at, struct number *ret, int *ret_code)
{
    struct number n = {0};
    int whole = 0, seen = 0;

    *ret_code = -EINVAL;
    for (; is_digit(*at); at++, seen++) {
        whole += whole || *at != '0';
        if (whole > DIGITS_MAX) {
            *ret_code = -ERANGE;
            return NULL;
        }
        n.value = n.value * 10 + (wide)(*at - '0');
    }
    if (*at == '.')
        for (at++; is_digit(*at); at++, seen++) {
            if (n.decimals == DIGITS_MAX) {
                n.more |= *at != '0';
                continue;
            }
            n.value = n.value * 10 + (wide)(*at - '0');
            n.decimals++;
        }
    if (seen == 0)
        return NULL;
    for (; n.decimals && n.value % 10 == 0; n.decimals--)
        n.value /= 10;
    *ret = n;
    return at;
}

/* The suffix as @ret_factor, a power of two, times 10^@ret_tens. */
static int read_suffix(const char *at, uint64_t *ret_factor, int *ret_tens)
{
    static const char binary[] = "KMGTPE";
    static const struct {
        char letter;
        int tens;
    } decimal[] = {{'n', -9}, {'u', -6}, {'m', -3}, {'k', 3},  {'M', 6},
                   {'G', 9},  {'T', 12}, {'P', 15}, {'E', 18}, {'\0', 0}};
    const char *found = *at ? strchr(binary, *at) : NULL;
    int sign = 1, tens = 0;

    *ret_factor = 1;
    if (found && at[1] == 'i' && at[2] == '\0') {
        *ret_tens = 0;
        *ret_factor = UINT64_C(1) << (10 * (found - binary + 1));
        return 0;
    }
    if (*at == '\0' || at[1] == '\0')
        for (size_t i = 0; i < sizeof(decimal) / sizeof(decimal[0]); i++)
            if (*at == decimal[i].letter) {
                *ret_tens = decimal[i].tens;
                return 0;
            }
    if (*at != 'e' && *at != 'E')
        return -EINVAL;
    at++;
    if (*at == '+' || *at == '-')
        sign = *at++ == '-' ? -1 : 1;
    if (!is_digit(*at))
        return -EINVAL;
    for (; is_digit(*at); at++)
        tens = tens > EXPONENT_MAX ? tens : tens * 10 + (*at - '0');
    if (*at)
        return -EINVAL;
    *ret_tens = sign * tens;
    return tens > EXPONENT_MAX ? -ERANGE : 0;
}

static int quantity(const char *text, int tens_more, int64_t max, int64_t *ret)
{
    struct number n = {0};
    uint64_t factor;
    int tens, code;
    const char *at = read_number(text + (*text == '+'), &n, &code);
    int r = at ? read_suffix(at, &factor, &tens) : code;

    if (r)
        return r;
    if (__builtin_mul_overflow(n.value, (wide)factor, &n.value))
        return -ERANGE;
    for (tens += tens_more - n.decimals; tens > 0 && n.value; tens--)
        if (__builtin_mul_overflow(n.value, (wide)10, &n.value))
            return -ERANGE;
    for (; tens < 0 && n.value; tens++) {
        n.more |= n.value % 10 != 0;
        n.value /= 10;
    }
    if (n.value >= (wide)max + !n.more)
        return -ERANGE;
    *ret = (int64_t)n.value + n.more;
    return 0;
}

int kube_quantity_milli(const char *text, int64_t *ret_milli)
{
    return quantity(text, 3, KUBE_MCPU_MAX, ret_milli);
}

int kube_quantity_whole(const char *text, int64_t *ret_whole)
{
    return quantity(text, 0, KUBE_BYTES_MAX, ret_whole);
}

void kube_milli_text(int64_t milli, char ret[KUBE_QUANTITY_MAX])
{
    if (milli % 1000 == 0)
        snprintf(ret, KUBE_QUANTITY_MAX, "%" PRId64, milli / 1000);
    else
        snprintf(ret, KUBE_QUANTITY_MAX, "%" PRId64 "m", milli);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Days since 1970 of a date in the Gregorian calendar, years beginning in March. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, in_era = y % 400;
    int64_t in_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

static void date_of(int64_t days, int *year, int *month, int *day)
{
    int64_t z = days + 719468, era = z / 146097, in_era = z % 146097;
    int64_t y = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int64_t in_year = in_era - (365 * y + y / 4 - y / 100);
    int64_t m = (5 * in_year + 2) / 153;

    *day = (int)(in_year - (153 * m + 2) / 5 + 1);
    *month = (int)(m < 10 ? m + 3 : m - 9);
    *year = (int)(y + era * 400 + (*month <= 2));
}

/* @count digits at *at, which goes on behind them and the character @then (0: none). */
static bool digits(const char **at, int count, char then, int64_t *ret)
{
    int64_t value = 0;

    for (; count; count--, (*at)++) {
        if (!is_digit(**at))
            return false;
        value = value * 10 + (**at - '0');
    }
    *ret = value;
    if (then && **at != then)
        return false;
    *at += then != 0;
    return true;
}

/* "Z" or "+01:30", as seconds, and the end of the text. */
static bool offset(const char *at, int64_t *ret_s)
{
    int64_t hours, minutes, sign = *at == '-' ? -1 : 1;

    *ret_s = 0;
    if (*at == 'Z' || *at == 'z')
        return at[1] == '\0';
    if (*at != '+' && *at != '-')
        return false;
    at++;
    if (!digits(&at, 2, ':', &hours) || !digits(&at, 2, 0, &minutes) || hours > 23 || minutes > 59)
        return false;
    *ret_s = sign * (hours * 3600 + minutes * 60);
    return *at == '\0';
}

int kube_time(const char *text, int64_t *ret_ns)
{
    int64_t year, month, day, hour, minute, second, zone, fraction = 0;
    const char *at = text;

    if (!digits(&at, 4, '-', &year) || !digits(&at, 2, '-', &month) || !digits(&at, 2, 'T', &day) ||
        !digits(&at, 2, ':', &hour) || !digits(&at, 2, ':', &minute) || !digits(&at, 2, 0, &second))
        return -EINVAL;
    if (*at == '.') {
        int64_t unit = NS / 10;

        for (at++; is_digit(*at); at++, unit /= 10)
            fraction += unit * (*at - '0');
    }
    if (!offset(at, &zone) || year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 ||
        day > 31 || hour > 23 || minute > 59 || second > 60)
        return -EINVAL;
    second += days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 - zone;
    *ret_ns = second * NS + fraction;
    return 0;
}

static int seconds_text(int64_t ns, char ret[KUBE_TIME_TEXT])
{
    int64_t second = ns / NS, of_day = second % 86400;
    int year, month, day;

    date_of(second / 86400, &year, &month, &day);
    return snprintf(ret, KUBE_TIME_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d", year, month, day,
                    (int)(of_day / 3600), (int)(of_day / 60 % 60), (int)(of_day % 60));
}

void kube_time_text(int64_t ns, char ret[KUBE_TIME_TEXT])
{
    int length = seconds_text(ns > 0 ? ns : 0, ret);

    snprintf(ret + length, KUBE_TIME_TEXT - (size_t)length, "Z");
}

void kube_micro_time_text(int64_t ns, char ret[KUBE_TIME_TEXT])
{
    int length = seconds_text(ns > 0 ? ns : 0, ret);

    snprintf(ret + length, KUBE_TIME_TEXT - (size_t)length, ".%06dZ",
             (int)((ns > 0 ? ns : 0) % NS / 1000));
}
