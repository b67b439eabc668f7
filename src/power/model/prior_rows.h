/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written by scripts/power-prior.py; do not edit. Medians and mean curves of groups of results of
 * SPECpower_ssj2008 (spec.org), as collected at
 *   github.com/green-coding-solutions/spec-power-model 9739f29, data/spec_data.csv
 * Errors are those of results that were left out one by one. Private to this room.
 */
/* clang-format off */
#define PRIOR_SHAPES(ROW) /* first year, error, permille from idle to full at 10, 20, 40, 60, 80, 90 % */ \
    ROW(2004, 59, 118, 231, 446, 659, 849, 932) \
    ROW(2009, 125, 184, 273, 433, 608, 805, 905) \
    ROW(2011, 167, 143, 211, 350, 524, 745, 882) \
    ROW(2014, 158, 167, 239, 383, 526, 740, 877) \
    ROW(2017, 201, 181, 243, 362, 508, 724, 864) \
    ROW(2019, 214, 206, 278, 414, 558, 742, 857) \
    ROW(2021, 213, 152, 221, 352, 503, 706, 850)
#define PRIOR_ROWS(ROW) /* first year, sockets, idle and full in W, error in permille, results */ \
    ROW(2004, 1, 70, 119, 211, 19) \
    ROW(2004, 2, 155, 260, 358, 63) \
    ROW(2004, 4, 299, 524, 885, 11) \
    ROW(2009, 1, 42, 113, 422, 29) \
    ROW(2009, 2, 74, 242, 281, 78) \
    ROW(2009, 4, 198, 597, 959, 15) \
    ROW(2011, 1, 21, 71, 856, 22) \
    ROW(2011, 2, 59, 252, 439, 122) \
    ROW(2011, 4, 127, 580, 710, 23) \
    ROW(2014, 1, 27, 94, 937, 15) \
    ROW(2014, 2, 46, 269, 141, 25) \
    ROW(2014, 4, 101, 736, 400, 10) \
    ROW(2014, 8, 437, 1090, 964, 10) \
    ROW(2017, 1, 25, 124, 924, 11) \
    ROW(2017, 2, 55, 423, 242, 37) \
    ROW(2017, 4, 96, 930, 194, 16) \
    ROW(2017, 8, 437, 1090, 956, 10) \
    ROW(2019, 1, 59, 224, 778, 22) \
    ROW(2019, 2, 62, 412, 354, 42) \
    ROW(2019, 4, 119, 894, 301, 15) \
    ROW(2019, 8, 437, 1090, 972, 10) \
    ROW(2021, 1, 41, 157, 916, 26) \
    ROW(2021, 2, 119, 550, 302, 39) \
    ROW(2021, 4, 119, 894, 352, 15) \
    ROW(2021, 8, 439, 1096, 956, 10)
/* clang-format on */
