/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the JSON that the controller writes to Kueue: a training's Workload and changes of it. The
 * caller owns each result (json_decref); NULL: out of memory. Event loop's thread; called by act.c.
 */
#pragma once

#include "kube/shell/manifest.h"

/* Pod sets chief, ps and worker with as many pods as they may have at most; of the workers Kueue
 * may admit fewer, down to their minimum. */
json_t *kube_workload_json(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                           const struct kube_queueing *queueing);

/* Merge patches: of the Workload, of its status. The latter is meant for the version that was seen.
 */
json_t *kube_workload_turn_json(const struct kube_queueing *queueing);
json_t *kube_workload_news_json(const struct kube_queueing *queueing);
