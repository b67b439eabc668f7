/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lends idle cores as extra threads (policy/core/extras.h, and docs/design/61-idle-cores.md):
 * measures which cores are idle and whose threads wait, asks the stage, and changes the threads of
 * the jobs that it names. Looks several times a second while something is lent or could be, else
 * once a second at what others have measured. Daemon's event loop only; called by the top level
 * and the views.
 */
#pragma once

#include <stdint.h>

struct daemon;
struct idle;

/* Returns 0 or -errno. */
int idle_new(struct daemon *d, struct idle **ret);
struct idle *idle_free(struct idle *i); /* takes NULL, returns NULL */

/* Once a second: begins to look where some job uses its share and could use more. */
void idle_tick(struct idle *i);
