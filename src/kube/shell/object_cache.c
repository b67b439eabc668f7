/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/object_cache.h"

#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define ERROR_WORD "cluster-refused"

#define KEY_MAX (2 * (KUBE_NAME_MAX + 1))

static int parse_node(const json_t *json, void **ret, struct error *err)
{
    return kube_node_parse(json, (struct kube_node **)ret, err);
}

static int parse_pod(const json_t *json, void **ret, struct error *err)
{
    return kube_pod_parse(json, (struct kube_pod **)ret, err);
}

static int parse_etj(const json_t *json, void **ret, struct error *err)
{
    return kube_etj_parse(json, (struct kube_etj **)ret, err);
}

static int parse_quota(const json_t *json, void **ret, struct error *err)
{
    return kube_quota_parse(json, (struct kube_quota **)ret, err);
}

static int parse_pdb(const json_t *json, void **ret, struct error *err)
{
    return kube_pdb_parse(json, (struct kube_pdb **)ret, err);
}

static int parse_workload(const json_t *json, void **ret, struct error *err)
{
    return kube_workload_parse(json, (struct kube_workload **)ret, err);
}

static int parse_flavor(const json_t *json, void **ret, struct error *err)
{
    return kube_flavor_parse(json, (struct kube_flavor **)ret, err);
}

static int parse_class(const json_t *json, void **ret, struct error *err)
{
    return kube_class_parse(json, (struct kube_class **)ret, err);
}

static void free_workload(void *item)
{
    kube_workload_free(item);
}

static void free_flavor(void *item)
{
    kube_flavor_free(item);
}

static void free_class(void *item)
{
    kube_class_free(item);
}

static void free_node(void *item)
{
    kube_node_free(item);
}

static void free_pod(void *item)
{
    kube_pod_free(item);
}

static void free_etj(void *item)
{
    kube_etj_free(item);
}

static void free_quota(void *item)
{
    kube_quota_free(item);
}

static void free_pdb(void *item)
{
    kube_pdb_free(item);
}

static const struct {
    int (*parse)(const json_t *json, void **ret, struct error *err);
    void (*free)(void *item);
} kinds[] = {
    [CACHE_NODES] = {parse_node, free_node},
    [CACHE_PODS] = {parse_pod, free_pod},
    [CACHE_ETJS] = {parse_etj, free_etj},
    [CACHE_QUOTAS] = {parse_quota, free_quota},
    [CACHE_PDBS] = {parse_pdb, free_pdb},
    [CACHE_WORKLOADS] = {parse_workload, free_workload},
    [CACHE_FLAVORS] = {parse_flavor, free_flavor},
    [CACHE_QUEUE_CLASSES] = {parse_class, free_class},
    [CACHE_CLASSES] = {parse_class, free_class},
};
static_assert(ARRAY_LEN(kinds) == CACHE_KIND_MAX, "an entry for each kind");

static int make_key(const json_t *object, char key[KEY_MAX])
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *space = json_string_value(json_object_get(meta, "namespace"));
    const char *name = json_string_value(json_object_get(meta, "name"));

    if (!name || snprintf(key, KEY_MAX, "%s/%s", space ? space : "", name) >= KEY_MAX)
        return -EINVAL;
    return 0;
}

/* The object's place, or -1. */
static long find(const struct cache *c, const char *key)
{
    const json_t *place = json_object_get(c->index, key);

    return place ? (long)json_integer_value(place) : -1;
}

/* Removes an entry; the last one takes its place. */
static void remove_at(struct cache *c, size_t i)
{
    size_t last = c->count - 1;

    json_object_del(c->index, c->keys[i]);
    kinds[c->kind].free(c->items[i]);
    free(c->keys[i]);
    if (i != last) {
        c->items[i] = c->items[last];
        c->keys[i] = c->keys[last];
        json_integer_set(json_object_get(c->index, c->keys[i]), (json_int_t)i);
    }
    c->count = last;
}

static int grow(struct cache *c)
{
    size_t size = c->size ? c->size * 2 : 64;
    void **items;
    char **keys;

    if (c->count < c->size)
        return 0;
    items = realloc(c->items, size * sizeof(*items));
    if (!items)
        return -ENOMEM;
    c->items = items;
    keys = realloc(c->keys, size * sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    c->keys = keys;
    c->size = size;
    return 0;
}

static int add(struct cache *c, const char *key, void *item)
{
    char *copy = grow(c) == 0 ? strdup(key) : NULL;

    if (!copy || json_object_set_new(c->index, key, json_integer((json_int_t)c->count)) < 0) {
        free(copy);
        return -ENOMEM;
    }
    c->items[c->count] = item;
    c->keys[c->count++] = copy;
    return 0;
}

int cache_put(struct cache *c, const json_t *object, struct error *err)
{
    char key[KEY_MAX];
    void *item;
    long i;
    int r;

    if (make_key(object, key) < 0)
        return error_set(err, -EINVAL, "the API server sent an object without a name");
    i = find(c, key);
    r = kinds[c->kind].parse(object, &item, err);
    if (r < 0) {
        if (i >= 0)
            remove_at(c, (size_t)i);
        return r;
    }
    if (i >= 0) {
        kinds[c->kind].free(c->items[i]);
        c->items[i] = item;
        return 0;
    }
    if (add(c, key, item) < 0) {
        kinds[c->kind].free(item);
        return error_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

void cache_remove(struct cache *c, const json_t *object)
{
    char key[KEY_MAX];
    long i = make_key(object, key) == 0 ? find(c, key) : -1;

    if (i >= 0)
        remove_at(c, (size_t)i);
}

void *cache_find(const struct cache *c, const char *name_space, const char *name)
{
    char key[KEY_MAX];
    long i;

    if (snprintf(key, sizeof(key), "%s/%s", name_space, name) >= KEY_MAX)
        return NULL;
    i = find(c, key);
    return i >= 0 ? c->items[i] : NULL;
}

int cache_init(struct cache *c, enum cache_kind kind)
{
    *c = (struct cache){.kind = kind, .index = json_object()};
    return c->index ? 0 : -ENOMEM;
}

void cache_done(struct cache *c)
{
    while (c->count > 0)
        remove_at(c, c->count - 1);
    json_decref(c->index);
    free(c->items);
    free(c->keys);
    *c = (struct cache){.kind = c->kind};
}
