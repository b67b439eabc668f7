/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon for the fuzz targets of its sockets: all of tided except the sockets, in a directory of
 * its own. That directory is also the root of its /proc.
 */
#pragma once

#include "daemon/confine/actuate.h"
#include "daemon/confine/balance.h"
#include "daemon/confine/guardian.h"
#include "daemon/daemon.h"
#include "daemon/energy/backstop.h"
#include "daemon/energy/cap.h"
#include "daemon/energy/meter.h"
#include "daemon/job/job.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/wait.h"
#include "daemon/record/chronicle.h"
#include "daemon/record/store.h"
#include "daemon/wake.h"
#include "input.h"

#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPUS 8

static struct daemon the_daemon;
static struct job_table jobs;
static char directory[32];

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static inline void remove_directory(void)
{
    nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void nobody_hears(void *arg, const char *type, json_t *data)
{
    json_decref(data);
}

/* Makes the directory and an empty proc/ in it. */
static inline void make_directory(void)
{
    char proc[64];

    strcpy(directory, "/dev/shm/tide-fuzz-XXXXXX");
    if (!mkdtemp(directory)) {
        strcpy(directory, "/tmp/tide-fuzz-XXXXXX");
        CHECK(mkdtemp(directory));
    }
    atexit(remove_directory);
    snprintf(proc, sizeof(proc), "%s/proc", directory);
    CHECK(mkdir(proc, 0700) == 0);
}

static inline void make_daemon(uid_t uid, const struct wake_handlers *handlers,
                               const struct job_observer *const *observers)
{
    struct daemon *d = &the_daemon;

    snprintf(d->dir, sizeof(d->dir), "%s", directory);
    d->root = d->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d->uid = uid;
    d->admin_gid = d->power_gid = CONFIG_NOBODY;
    d->epoch = 7;
    d->heartbeat_ms = DAEMON_HEARTBEAT_MS;
    d->topology.cpus = CPUS;
    for (unsigned c = 0; c < CPUS; c++)
        cpuset_add(&d->topology.online, c);
    d->cpus = d->usable = d->topology.online;
    config_init(&d->config);
    d->jobs = &jobs;
    jobs.observers = observers;
    jobs.confine = &process_confine;
    CHECK(sd_event_new(&d->event) >= 0);
    CHECK(wake_new(d, d->event, handlers, &d->wake) == 0);
    CHECK(plan_new(d, &d->plan) == 0 && waits_new(d, &d->waits) == 0);
    CHECK(store_new(&d->store) == 0 && chronicle_new(nobody_hears, NULL, &d->chronicle) == 0);
    CHECK(decision_new(&d->decision, NULL) == 0);
    CHECK(balance_new(d, &d->balance, NULL) == 0);
    CHECK(config_set(&d->config, "power", "none", NULL) == 0 && meter_new(d, &d->meter, NULL) == 0);
    CHECK(power_caps_new(d, &d->power_caps, NULL) == 0);
    CHECK(guardian_new(d->event, d->dir_fd, NULL, "none", NULL, "", &d->guardian, NULL) == 0);
    CHECK(backstop_new(d, &d->backstop) == 0);
}
