/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler in one page: lists the jobs of this machine's daemon, holds one at one thread and at
 * two, hands it back to the policy, lends a core of it and takes it back; says how long each took.
 *
 *   controller [JOB]      JOB: id, name or pid; without: the first of the list
 */
#include <tide/tide.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int print_job(const struct tide_job *job, void *arg)
{
    char *first = arg;

    printf("%-6s %-16s %-9s target %u active %u max %u cores %s lent %u borrowed %u %" PRIu64
           " %s\n",
           job->id, job->name, job->state, job->target, job->active, job->max, job->cores,
           job->lent, job->borrowed, job->progress_done, job->unit);
    if (!*first)
        memcpy(first, job->id, TIDE_ID_MAX);
    return 0;
}

/* Prints how a call went; returns 1 for a failure, else 0. */
static int report(const tide_ctl *ctl, const char *what, int r, double since_us,
                  const struct tide_result *result)
{
    double took_us = now_us() - since_us;

    if (r < 0) {
        printf("%-12s failed: %s\n", what, tide_ctl_message(ctl));
        return 1;
    }
    printf("%-12s %u -> %u%s, acknowledged after %.1f us, call took %.1f us\n", what, result->from,
           result->to, r == TIDE_PARTIAL ? " (partly)" : "", (double)result->latency_ns / 1e3,
           took_us);
    return 0;
}

/* One request without an answer: the cost of the call alone. */
static int send_only(tide_ctl *ctl, const char *job)
{
    double since_us = now_us();
    int r = tide_ctl_set(ctl, job, 2, 0, TIDE_ASYNC, NULL);
    double took_us = now_us() - since_us;

    if (r < 0) {
        printf("%-12s failed: %s\n", "set (async)", tide_ctl_message(ctl));
        return 1;
    }
    printf("%-12s call took %.1f us\n", "set (async)", took_us);
    return 0;
}

static int drive(tide_ctl *ctl, const char *job)
{
    struct tide_result result = {.size = sizeof(result)};
    double since_us = now_us();
    int failed;

    failed = report(ctl, "set 1", tide_ctl_set(ctl, job, 1, 0, 0, &result), since_us, &result);
    failed += send_only(ctl, job);
    since_us = now_us();
    failed += report(ctl, "set 2", tide_ctl_set(ctl, job, 2, 0, 0, &result), since_us, &result);
    since_us = now_us();
    failed += report(ctl, "automatic", tide_ctl_set(ctl, job, 0, 0, 0, &result), since_us, &result);
    since_us = now_us();
    failed += report(ctl, "lend 1", tide_ctl_lend(ctl, job, 1, 0, &result), since_us, &result);
    since_us = now_us();
    failed += report(ctl, "reclaim", tide_ctl_reclaim(ctl, job, 0, &result), since_us, &result);
    return failed;
}

int main(int argc, char **argv)
{
    char first[TIDE_ID_MAX] = "";
    tide_ctl *ctl = NULL;
    int failed = 0;
    int r = tide_ctl_open(NULL, &ctl);

    if (r < 0) {
        fprintf(stderr, "controller: %s\n", tide_strerror(r));
        return 1;
    }
    r = tide_ctl_list(ctl, print_job, first);
    if (r < 0) {
        fprintf(stderr, "controller: %s\n", tide_ctl_message(ctl));
        failed = 1;
    } else if (argc > 1 || *first) {
        failed = drive(ctl, argc > 1 ? argv[1] : first);
    } else {
        printf("no jobs: start one with `tide run -- PROGRAM`\n");
    }
    tide_ctl_close(ctl);
    return failed ? 1 : 0;
}
