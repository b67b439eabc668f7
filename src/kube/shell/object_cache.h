/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects that a watch has brought, as plain structs: those of one kind, by namespace and name,
 * in an array that a kube_world can point to. Event loop's thread; called by controller.c.
 */
#pragma once

#include "kube/object/object.h"

enum cache_kind {
    CACHE_NODES,
    CACHE_PODS,
    CACHE_ETJS,
    CACHE_QUOTAS,
    CACHE_PDBS,
    CACHE_WORKLOADS, /* this and the following only where there is Kueue */
    CACHE_FLAVORS,
    CACHE_QUEUE_CLASSES,
    CACHE_CLASSES,
    CACHE_KIND_MAX
};

struct cache {
    void **items; /* pointers to structs of the kind */
    size_t count;
    size_t size;   /* of both arrays */
    char **keys;   /* "namespace/name" of each */
    json_t *index; /* key → place */
    enum cache_kind kind;
};

int cache_init(struct cache *c, enum cache_kind kind);
void cache_done(struct cache *c);

/* Adds or replaces an object. One that cannot be read leaves the cache. Returns 0 or -errno. */
int cache_put(struct cache *c, const json_t *object, struct error *err);
void cache_remove(struct cache *c, const json_t *object);

void *cache_find(const struct cache *c, const char *name_space, const char *name); /* NULL: none */
