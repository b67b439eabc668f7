/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers the containers of pods to tided, as the part of Docker's API that host/engine uses: the
 * list, one container, events, and a new set of CPUs. Whatever else limits a container is the
 * kubelet's, and is neither written nor paused; the header Tide-Pods says so.
 *
 *   GET  /_ping
 *   GET  /v1.41/containers/json, /v1.41/containers/ID/json, /v1.41/events?since=
 *   POST /v1.41/containers/ID/update      {"CpusetCpus": "0-3"}
 *
 * Event loop's thread; called by main.c.
 */
#pragma once

#include "base/error.h"
#include "pods/nri.h"

#define ENGINE_API_HEADER                                                                          \
    "Tide-Pods" /* names this engine in answers (host/engine/engine_text.c)                        \
                 */

struct engine_api;

/*
 * Listens on @path, for root alone or whoever runs this. @manager is the state file of kubelet's
 * CPU manager: while its policy is another than "none", CPUs are the kubelet's and stay. *err says
 * why not.
 */
int engine_api_new(sd_event *event, const char *path, const char *manager, struct pods *pods,
                   struct nri *nri, struct engine_api **ret, struct error *err);
struct engine_api *engine_api_free(struct engine_api *e); /* takes NULL, returns NULL */

/* There is news for readers of events. */
void engine_api_news(struct engine_api *e);

/* The table is of no use until it is ready again: readers of events have to list anew. */
void engine_api_away(struct engine_api *e);

/* When a reader of events was there last, which is tided or its guardian; by CLOCK_MONOTONIC. */
uint64_t engine_api_watched_ns(const struct engine_api *e);
