/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machines of this person's inventory, for the page: what `tide fleet` tells of each, and where
 * each is reached. A thread of its own reads the inventory, which may ask a name server, and where
 * the page wants to know, asks the machines: one round at a time. Event loop's thread; used by
 * tide-dashboard.
 */
#pragma once

#include "cli/remote/address.h"
#include "host/net/httpd.h"

#include <systemd/sd-event.h>

#define MACHINES_WAITING_MAX 4 /* requests that wait for a round */

struct machines;

/* Returns 0 or -errno. */
int machines_new(sd_event *event, struct machines **ret);

/* Takes NULL, returns NULL. A round that is under way ends with the process. */
struct machines *machines_free(struct machines *m);

/*
 * Answers @r with a round's outcome, a list as `tide fleet --json` prints it; without a usable
 * inventory with what is wrong. Requests that come during a round get its outcome.
 */
void machines_answer(struct machines *m, struct httpd_request *r);

/* The end of any request, whether or not machines_answer() has seen it. */
void machines_over(struct machines *m, const struct httpd_request *r);

/*
 * Where the machine @name is reached. Returns 0; -ENOENT: no machine of the inventory, as it was
 * some seconds ago, has the name; -EAGAIN: the inventory is being read; or -ENOMEM.
 */
int machines_find(struct machines *m, const char *name, struct address *ret);
