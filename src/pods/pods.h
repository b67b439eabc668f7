/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The containers of pods that the runtime has told of, as an engine would list them. Event loop's
 * thread; written by nri.c, read by engine_api.c.
 */
#pragma once

#include "pods/choose.h"

#define PODS_CONTAINERS_MAX 4096 /* as many as tided takes in one list (host/engine/engine.h) */
#define PODS_EVENTS_MAX     1024 /* of the past, for a reader that comes back */
#define PODS_IMAGE_MAX      256

struct pod_container {
    struct pod_container *next;
    char id[CONTAINER_KEY_MAX + 1];
    char name[CHOOSE_NAME_MAX];
    char image[PODS_IMAGE_MAX];
    enum nri_state state;
    pid_t pid;
    int64_t started_ns;
    int exit_code;
    struct nri_limits limits;
    json_t *labels;
    uint64_t heard; /* the last synchronization that named it */
    /*
     * The runtime's client, which is the kubelet, has changed a limit since tided looked last: what
     * tided wants now, it wants of old limits.
     */
    bool unseen;
    bool placed; /* the kubelet itself names its CPUs: its CPU manager places containers */
};

struct pods;

/* An event was added: readers may go on. */
typedef void pods_news_fn(void *arg);

struct pods *pods_new(const struct choice *choice, pods_news_fn *news,
                      void *arg);       /* NULL: no memory */
struct pods *pods_free(struct pods *p); /* takes NULL, returns NULL */

struct pod_container *pods_find(const struct pods *p, const char *id);
struct pod_container *pods_first(const struct pods *p);

/*
 * Takes over what a message says of a container; a new one is added unless the table is full.
 * Returns it or NULL.
 */
struct pod_container *pods_learn(struct pods *p, const struct nri_pod *pod,
                                 const struct nri_container *said, struct chosen *ret);

/* The kubelet changes limits: what @resources names. */
void pods_resize(struct pods *p, struct pod_container *c, const struct nri_limits *now);

void pods_started(struct pods *p, struct pod_container *c);
void pods_stopped(struct pods *p, struct pod_container *c, int exit_code);
void pods_removed(struct pods *p, struct pod_container *c);
/* tided has updated it, and expects an event for each update of its own. @cpus NULL: unchanged. */
void pods_updated(struct pods *p, struct pod_container *c, const char *cpus);

/* A list of all containers begins, and ends: those that it did not name are gone. */
void pods_list_begins(struct pods *p);
void pods_list_ends(struct pods *p);

/* ---- events, each a line in the engine's form ---- */

/* The number of the oldest event that is kept, and of the next one to come. */
uint64_t pods_oldest(const struct pods *p);
uint64_t pods_next(const struct pods *p);
const char *pods_event(const struct pods *p, uint64_t number); /* borrowed until control returns */

/* The first event at or after @since_ns, of CLOCK_REALTIME. */
uint64_t pods_since(const struct pods *p, uint64_t since_ns);
