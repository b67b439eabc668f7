/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `tide doctor` without a process: the installation, as a list of results. Starts one
 * short-lived child (to try whether the agent loads); changes nothing. Single-threaded; used by
 * cmd_doctor.c.
 */
#pragma once

#include "cli/doctor/diagnose.h"
#include "host/cgroup/cgroup.h"

#include <stddef.h>

#define DOCTOR_CHECKS_MAX 12

enum check_level { CHECK_OK, CHECK_NOTE, CHECK_PROBLEM, CHECK_LEVEL_MAX };

struct check {
    const char *name; /* "agent", "daemon", … */
    enum check_level level;
    char text[DIAGNOSE_TEXT_MAX];
    char fix[DIAGNOSE_TEXT_MAX]; /* what to do; empty: nothing */
};

struct checks {
    size_t n;
    struct check check[DOCTOR_CHECKS_MAX];
};

/* Runs every check; @cg may be NULL when the cgroups could not be read. */
void doctor_check_installation(int root, const struct cgroup *cg, struct checks *ret);
