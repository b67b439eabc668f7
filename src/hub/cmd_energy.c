/* SPDX-License-Identifier: Apache-2.0 */
#include "base/moment.h"
#include "base/wallclock.h"
#include "hub/command.h"
#include "hub/store/store.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ERROR_WORD "nothing-stored"

#define STRETCHES_MAX 4096
#define UJ_PER_KWH    3.6e12

static const char usage[] =
    "Usage: tide-hub energy [--state DIR] [--store WHERE]\n"
    "       tide-hub energy UNIT POINT [--since TIME] [--step TIME] [--state DIR] [--store WHERE]\n"
    "\n"
    "The energy that the hub has stored: every point of every unit; or one point over time.\n"
    "Energy in kWh, its bounds in brackets, how it is known, and how many seconds are unknown.\n"
    "\n"
    "  --since TIME   1d (ago), 2026-11-23, 08:00; default 1d\n"
    "  --step TIME    default 15min\n"
    "  --state DIR    default /var/lib/tide-hub\n"
    "  --store WHERE  the file or postgresql:// address of 'tide-hub serve'; default DIR/hub.db\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'}, {"since", required_argument, NULL, 't'},
    {"step", required_argument, NULL, 'p'},  {"store", required_argument, NULL, 'w'},
    {"help", no_argument, NULL, 'h'},        {0}};

/* Unknown energy is told as that, never as 0. */
static void tell(const struct energy_range *e, uint64_t gap_ms)
{
    if (e->basis == POWER_UNKNOWN)
        printf("%12s %25s %-10s", "-", "", "unknown");
    else
        printf("%12.6f [%10.6f, %10.6f] %-10s", (double)e->uj / UJ_PER_KWH,
               (double)e->low_uj / UJ_PER_KWH, (double)e->high_uj / UJ_PER_KWH,
               power_basis_name(e->basis));
    printf(" %8.1f\n", (double)gap_ms / 1000);
}

static void tell_time(int64_t ms)
{
    time_t at = ms / 1000;
    struct tm tm;
    char text[32];

    strftime(text, sizeof(text), "%F %T", localtime_r(&at, &tm));
    printf("%s ", text);
}

static bool tell_point(void *arg, const struct store_point *p)
{
    printf("%-20s %-20s ", p->unit, p->point);
    tell_time(p->last_ms);
    tell(&p->energy, p->gap_ms);
    return true;
}

static int tell_all(struct store *s, struct error *err)
{
    printf("%-20s %-20s %-20s%12s %25s %-10s %8s\n", "UNIT", "POINT", "LAST", "KWH", "BOUNDS",
           "BASIS", "GAP_S");
    return store_points(s, tell_point, NULL, err);
}

static int tell_series(struct store *s, const char *unit, const char *point, uint64_t since_ms,
                       uint64_t step_ms, struct error *err)
{
    static struct store_stretch stretch[STRETCHES_MAX];
    size_t n = 0;
    int r = store_series(s, unit, point, (int64_t)since_ms, INT64_MAX, (int64_t)step_ms, stretch,
                         STRETCHES_MAX, &n, err);

    if (r < 0)
        return r;
    if (n == 0)
        return error_set(err, -ENOENT, "nothing is stored of %s of %s in that time", point, unit);
    printf("%-20s%12s %25s %-10s %8s\n", "FROM", "KWH", "BOUNDS", "BASIS", "GAP_S");
    for (size_t i = 0; i < n; i++) {
        tell_time(stretch[i].from_ms);
        tell(&stretch[i].energy, stretch[i].gap_ms);
    }
    return 0;
}

static int complain(const char *name, const char *wanted)
{
    error_print("usage", "tide-hub: --%s '%s': use %s", name, optarg, wanted);
    return HUB_EXIT_USAGE;
}

/* Does not make a file: there would be nothing in it. */
static int open_store(const char *dir, const char *where, struct store **ret, struct error *err)
{
    struct state s = {.dir = dir};
    char path[PATH_MAX];
    int r = where ? 0 : state_path(&s, "hub.db", path, sizeof(path), err);

    if (r < 0)
        return r;
    where = where ? where : path;
    if (!strstr(where, "://") && access(where, F_OK) < 0)
        return error_set(err, -errno, "%s: %s", where, strerror(errno));
    return store_open(where, ret, err);
}

struct asked {
    const char *dir, *where;
    uint64_t now_ms, since_ms, step_ms;
};

static int take(void *arg, int option)
{
    struct asked *a = arg;

    if (option == 's')
        a->dir = optarg;
    else if (option == 'w')
        a->where = optarg;
    else if (option == 't' && moment_past(optarg, a->now_ms, &a->since_ms) < 0)
        return complain("since", "a time as 1d, 2026-11-23 or 08:00");
    else if (option == 'p' && moment_duration(optarg, &a->step_ms) < 0)
        return complain("step", "a time as 15min");
    return 0;
}

int cmd_energy(int argc, char **argv)
{
    uint64_t now_ms = wallclock_ms();
    struct asked a = {
        .dir = STATE_DIR, .now_ms = now_ms, .since_ms = now_ms - 86400000, .step_ms = 900000};
    struct store *s = NULL;
    struct error err = {0};
    int r = command_options(argc, argv, usage, options, take, &a);

    if (r)
        return r < 0 ? 0 : r;
    if (argc - optind != 0 && argc - optind != 2)
        return command_wrong(usage);
    r = open_store(a.dir, a.where, &s, &err);
    if (r == 0)
        r = optind == argc
                ? tell_all(s, &err)
                : tell_series(s, argv[optind], argv[optind + 1], a.since_ms, a.step_ms, &err);
    store_close(s);
    return command_end(r, &err);
}
