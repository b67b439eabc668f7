/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the watches have told, as plain structs: the objects of one kind by namespace and name, in
 * an array that a kube_world can point to. Event loop's thread; called by controller.c.
 */
#pragma once

#include "kube/object/object.h"

enum cache_kind { CACHE_NODES, CACHE_PODS, CACHE_ETJS, CACHE_QUOTAS, CACHE_PDBS, CACHE_KIND_MAX };

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

/* An object came or changed. When it cannot be read, it is not in the cache any more: 0 or -errno.
 */
int cache_put(struct cache *c, const json_t *object, struct error *err);
void cache_remove(struct cache *c, const json_t *object);

void *cache_find(const struct cache *c, const char *name_space, const char *name); /* NULL: none */
