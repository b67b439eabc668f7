/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a Kubernetes cluster how much CPU this node's power cap allows: two annotations of the
 * node, which tide-kube reads. They are written when the figure changes and before they end; when
 * nobody writes them any more, they end by themselves. The event loop's thread; nothing blocks but
 * the reading of two small files. Used by machine.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "base/error.h"
#include "unit/config.h"

#define KUBERNETES_CPU    "threadtide.io/power-cpu"
#define KUBERNETES_UNTIL  "threadtide.io/power-until"
#define KUBERNETES_CAP    "threadtide.io/power-cap"
#define KUBERNETES_DRAW   "threadtide.io/power-draw"
#define KUBERNETES_NO_CAP (-1)

struct kubernetes;

/*
 * Resolves what the configuration leaves to the pod's environment. Returns 0 or -errno with what is
 * missing. Borrows @config.
 */
int kubernetes_new(sd_event *event, const struct kubernetes_config *config, struct kubernetes **ret,
                   struct error *err);
struct kubernetes *kubernetes_free(struct kubernetes *k); /* takes NULL, returns NULL */

struct kubernetes_news {
    int64_t mcpu; /* busy, that the cap leaves to all of the node; or KUBERNETES_NO_CAP */
    uint64_t cap_uw, draw_uw; /* 0: not known */
};

void kubernetes_tell(struct kubernetes *k, const struct kubernetes_news *news);

/* ---- pure, for tests ---- */

#define KUBERNETES_UNTOLD INT64_MIN /* an earlier process may have written anything */

struct kubernetes_told {
    int64_t mcpu;   /* the annotation; KUBERNETES_NO_CAP: there is none; or KUBERNETES_UNTOLD */
    uint64_t at_ns; /* when it was written */
};

/*
 * Whether @mcpu is to be written now. Less goes out at once, more only after ten seconds and for a
 * quarter of a core, so that a figure which moves with each reading costs the cluster little. At
 * half of its time an annotation is written again.
 */
bool kubernetes_due(const struct kubernetes_told *told, int64_t mcpu, uint64_t now_ns,
                    uint32_t valid_s);
