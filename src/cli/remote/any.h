/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide submit --any`: the least loaded machine of an inventory takes the job. What starts it is
 * `tide submit` there, through ssh and as the user who logs in: no daemon executes anything. Used
 * by cmd_submit.c.
 */
#pragma once

#include "cli/cli.h"
#include "cli/remote/fleet.h"

#define ANY_DEADLINE_MS 30000 /* in which machines have to answer to be chosen */
#define ANY_COMMAND_MAX 65536 /* bytes of the command line that ssh is given */

/*
 * The machine on which a job that asks for @request cores (0: any number) meets the fewest jobs for
 * each core; of those that are alike the one with the least load for each core, then the first.
 * NULL: none was reached that has so many cores and is not behind a gateway. Pure.
 */
const struct fleet_answer *any_least_loaded(const struct fleet *f, long request);

struct any {
    const struct command *cmd;
    const char *inventory; /* NULL: the usual one */
    long request;
    bool quiet;        /* no note says which machine takes it */
    char *const *word; /* of `tide submit WORD…`, ended by NULL */
};

/* Becomes `ssh MACHINE …`. Returns an exit code after the message if it cannot. */
int any_submit(const struct any *a);
