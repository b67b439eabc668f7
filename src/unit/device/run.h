/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program for a kind of meter, with a time limit, and hands on what it printed. The program
 * has this one's user and nothing of its descriptors; its whole process group ends with it. The
 * event loop's thread; private to this room.
 */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#define RUN_BYTES_MAX 8192 /* of output; the rest is dropped */

struct run;

/* When it has ended. @status: the exit status, 128 and more for a signal, or -ETIMEDOUT. @text:
 * both outputs, borrowed. The run is freed afterwards. */
typedef void run_done(void *arg, int status, const char *text);

/* @argv: found along PATH. Takes back an ignored SIGCHLD. Returns 0, or -errno: nothing runs, and
 * @done is not called. */
int run_start(sd_event *event, char *const argv[], unsigned timeout_ms, run_done *done, void *arg,
              struct run **ret);

/* Whether its time was over: it was killed, and has not ended yet. */
bool run_late(const struct run *r);

/* Kills it without a call of done. Takes NULL, returns NULL. */
struct run *run_free(struct run *r);
