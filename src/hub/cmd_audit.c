/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/moment.h"
#include "hub/command.h"
#include "hub/conf.h"
#include "hub/people/audit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "hub-state"

static const char usage[] =
    "Usage: tide-hub audit [--since TIME] [--limit N] [--state DIR]\n"
    "\n"
    "Prints who asked for which change, when, from where, and what came of it, newest last. The "
    "log\n"
    "is append-only: no command changes it, and rows go after --keep-audit of 'tide-hub serve'.\n"
    "\n"
    "  --since TIME   as 1d, 2026-11-23 or 08:00; default: from the beginning\n"
    "  --limit N      the newest N rows; default 100, at most 1000\n"
    "  --state DIR    the hub's directory; default /var/lib/tide-hub\n"
    "  --config FILE  that names it; default /etc/tide/tide-hub.conf\n";

static const struct option more[] = {
    {"since", required_argument, NULL, 't'}, {"limit", required_argument, NULL, 'n'}, {0}};

struct asked {
    uint64_t since_ms, limit;
};

static int take(void *arg, int option)
{
    struct asked *a = arg;
    char *end;

    if (option == 't' && moment_past(optarg, clock_real_ms(), &a->since_ms) < 0) {
        error_print("usage", "tide-hub: --since '%s': use a time as 1d, 2026-11-23 or 08:00",
                    optarg);
        return HUB_EXIT_USAGE;
    }
    if (option == 'n') {
        a->limit = strtoul(optarg, &end, 10);
        if (!*optarg || *end || a->limit < 1 || a->limit > AUDIT_LIST_MAX) {
            error_print("usage", "tide-hub: --limit '%s': use a number from 1 to %d", optarg,
                        AUDIT_LIST_MAX);
            return HUB_EXIT_USAGE;
        }
    }
    return 0;
}

struct rows {
    struct audit_row *row;
    size_t count;
};

static void keep(void *arg, const struct audit_row *row)
{
    struct rows *rows = arg;

    rows->row[rows->count++] = *row;
}

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

static int print(struct people *p, const struct asked *a, struct error *err)
{
    struct rows rows = {calloc(a->limit, sizeof(*rows.row)), 0};
    int r = rows.row ? audit_list(p, (int64_t)a->since_ms, 0, (uint32_t)a->limit, keep, &rows, err)
                     : error_set(err, -ENOMEM, "out of memory");

    printf("%-19s  %-16s  %-16s  %-26s  %-24s  %s\n", "TIME", "USER", "FROM", "WHAT", "TARGET",
           "OUTCOME");
    while (r == 0 && rows.count > 0) {
        const struct audit_row *row = &rows.row[--rows.count];
        time_t at = row->time_ms / 1000;
        struct tm tm;
        char when[32];

        strftime(when, sizeof(when), "%F %T", localtime_r(&at, &tm));
        printf("%-19s  %-16s  %-16s  %-26s  %-24s  %s\n", when, or_dash(row->user), row->from,
               row->what, or_dash(row->target), row->outcome);
    }
    free(rows.row);
    return r;
}

int cmd_audit(int argc, char **argv)
{
    static struct conf conf;
    struct asked asked = {.limit = 100};
    const struct conf_command command = {usage, more, take, &asked, 0, HUB_EXIT_USAGE};
    int r = conf_options(&conf, argc, argv, &command);
    struct people *p = NULL;
    struct error err = {0};
    char path[PATH_MAX];

    if (r)
        return r < 0 ? 0 : r;
    r = conf_path(&conf, PEOPLE_FILE, path, sizeof(path), &err);
    if (r == 0 && access(path, F_OK) < 0)
        r = error_set(&err, -errno, "%.200s: %s", path, strerror(errno));
    if (r == 0)
        r = people_open(path, &(struct people_options){0}, &p, &err);
    if (r == 0)
        r = print(p, &asked, &err);
    people_close(p);
    return command_end(r, &err);
}
