/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/watch_delta.h"

#include "base/cleanup.h"
#include "kube/api/lenient_json.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "cluster-refused"

#define KEY_MAX     520 /* namespace/name, each of at most 253 bytes */
#define VERSION_MAX 64
#define UID_MAX     64

struct watch_delta {
    watch_fn *fn;
    void *arg;
    json_t *objects; /* key → "UID VERSION" */
    json_t *listed;  /* keys of the list that is under way; NULL: none is */
    char version[VERSION_MAX], list_version[VERSION_MAX];
};

/* The parts that identify an object. */
struct identity {
    const char *uid, *version;
    char key[KEY_MAX];
};

static int identify(const json_t *object, struct identity *ret)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *space = json_string_value(json_object_get(meta, "namespace"));
    const char *name = json_string_value(json_object_get(meta, "name"));

    ret->uid = json_string_value(json_object_get(meta, "uid"));
    ret->version = json_string_value(json_object_get(meta, "resourceVersion"));
    if (!name || !ret->uid || !ret->version || !*ret->version ||
        strlen(ret->version) >= VERSION_MAX || strlen(ret->uid) >= UID_MAX)
        return -EBADMSG;
    if (snprintf(ret->key, sizeof(ret->key), "%s/%s", space ? space : "", name) >= KEY_MAX)
        return -EBADMSG;
    return 0;
}

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text) && text[0] != '0';
}

/* Whether version @a is known to be older than @b. */
static bool is_older(const char *a, const char *b)
{
    size_t len_a = strlen(a), len_b = strlen(b);

    if (!is_number(a) || !is_number(b))
        return false;
    return len_a != len_b ? len_a < len_b : strcmp(a, b) < 0;
}

static void keep_version(char to[VERSION_MAX], const char *version)
{
    if (version && *version && strlen(version) < VERSION_MAX)
        strcpy(to, version);
}

/* ---- what the consumer is told ---- */

static void tell_deleted(struct watch_delta *k, const char *key, const char *entry)
{
    const char *slash = strchr(key, '/'), *blank = strchr(entry, ' ');
    json_t *object =
        json_pack("{s:{s:s%,s:s,s:s%}}", "metadata", "namespace", key, (size_t)(slash - key),
                  "name", slash + 1, "uid", entry, (size_t)(blank - entry));

    if (object)
        k->fn(k->arg, WATCH_DELETED, object);
    json_decref(object);
}

static int store(struct watch_delta *k, const struct identity *id)
{
    char entry[UID_MAX + 1 + VERSION_MAX];

    snprintf(entry, sizeof(entry), "%s %s", id->uid, id->version);
    return json_object_set_new(k->objects, id->key, json_string(entry)) < 0 ? -ENOMEM : 0;
}

/* Whether an entry is of this object, not of another with its name. */
static bool is_of(const char *entry, const char *uid)
{
    size_t len = strlen(uid);

    return strncmp(entry, uid, len) == 0 && entry[len] == ' ';
}

/* An object that exists, in some version: new, changed, or nothing new. */
static int see(struct watch_delta *k, json_t *object, const struct identity *id)
{
    const char *entry = json_string_value(json_object_get(k->objects, id->key));
    const char *its_version = entry ? strchr(entry, ' ') + 1 : NULL;
    bool same =
        entry && strncmp(entry, id->uid, strlen(id->uid)) == 0 && entry[strlen(id->uid)] == ' ';
    int r;

    if (entry &&
        (is_older(id->version, its_version) || (same && !strcmp(its_version, id->version))))
        return 0;
    if (entry && !same) { /* a new object of this name: the watch missed the end of the old one */
        char old[UID_MAX + 1 + VERSION_MAX];

        snprintf(old, sizeof(old), "%s", entry);
        json_object_del(k->objects, id->key);
        tell_deleted(k, id->key, old);
    }
    r = store(k, id);
    if (r == 0)
        k->fn(k->arg, same ? WATCH_CHANGED : WATCH_ADDED, object);
    return r;
}

static void see_deleted(struct watch_delta *k, json_t *object, const struct identity *id)
{
    const char *entry = json_string_value(json_object_get(k->objects, id->key));

    if (!entry || !is_of(entry, id->uid))
        return; /* the consumer knows it, or it was an older object of this name */
    json_object_del(k->objects, id->key);
    k->fn(k->arg, WATCH_DELETED, object);
}

/* ---- lists ---- */

void watch_delta_list_begin(struct watch_delta *k)
{
    json_decref(k->listed);
    k->listed = json_object();
    k->list_version[0] = '\0';
}

int watch_delta_list_page(struct watch_delta *k, json_t *list, const char **ret_continue,
                          struct error *err)
{
    const json_t *meta = json_object_get(list, "metadata"), *items = json_object_get(list, "items");
    const char *next = json_string_value(json_object_get(meta, "continue"));
    struct identity id;
    json_t *item;
    size_t i;
    int r = 0;

    if (!k->listed)
        return error_set(err, -ENOMEM, "out of memory");
    if (!json_is_array(items) && !json_is_null(items))
        return error_set(err, -EBADMSG, "the answer is no list");
    json_array_foreach (items, i, item) {
        r = identify(item, &id);
        if (r < 0)
            return error_set(err, r, "an object without name, uid or version is listed");
        if (json_object_set_new(k->listed, id.key, json_true()) < 0 || see(k, item, &id) < 0)
            return error_set(err, -ENOMEM, "out of memory");
    }
    /* All pages have the version of the first, whatever later pages say. */
    if (!k->list_version[0])
        keep_version(k->list_version, json_string_value(json_object_get(meta, "resourceVersion")));
    if (!k->list_version[0])
        return error_set(err, -EBADMSG, "a list without a version");
    *ret_continue = next ? next : "";
    return 0;
}

void watch_delta_list_end(struct watch_delta *k)
{
    json_t *value;
    const char *key;
    void *next;

    json_object_foreach_safe(k->objects, next, key, value)
    {
        const char *entry = json_string_value(value);
        char old[UID_MAX + 1 + VERSION_MAX], name[KEY_MAX];

        if (json_object_get(k->listed, key) ||
            is_older(k->list_version,
                     strchr(entry, ' ') + 1)) /* newer than the list: it is not gone */
            continue;
        snprintf(old, sizeof(old), "%s", entry);
        snprintf(name, sizeof(name), "%s", key);
        json_object_del(k->objects, name);
        tell_deleted(k, name, old);
    }
    json_decref(k->listed);
    k->listed = NULL;
    strcpy(k->version, k->list_version);
    k->fn(k->arg, WATCH_SYNCED, NULL);
}

/* ---- events ---- */

/* The server sent a Status instead of an object. */
static int refused(const json_t *status, struct error *err)
{
    const char *message = json_string_value(json_object_get(status, "message"));
    const char *reason = json_string_value(json_object_get(status, "reason"));
    json_int_t code = json_integer_value(json_object_get(status, "code"));
    bool stale = code == 410 || (reason && strcmp(reason, "Expired") == 0) ||
                 (reason && strcmp(reason, "Gone") == 0);

    return error_set(err, stale ? -ESTALE : -EREMOTEIO, "the server ends the watch: %s",
                     message  ? message
                     : reason ? reason
                              : "no reason given");
}

static int apply(struct watch_delta *k, const char *type, json_t *object, struct error *err)
{
    struct identity id;
    int r = 0;

    if (strcmp(type, "ERROR") == 0)
        return refused(object, err);
    if (strcmp(type, "BOOKMARK") == 0) {
        const json_t *meta = json_object_get(object, "metadata");
        const char *version = json_string_value(json_object_get(meta, "resourceVersion"));

        if (!version)
            return error_set(err, -EBADMSG, "a bookmark without a version");
        keep_version(k->version, version);
        return 0;
    }
    if (identify(object, &id) < 0)
        return error_set(err, -EBADMSG, "an event about an object without name, uid or version");
    if (strcmp(type, "DELETED") == 0)
        see_deleted(k, object, &id);
    else if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0)
        r = see(k, object, &id);
    else
        return error_set(err, -EBADMSG, "an event of the unknown kind '%.32s'", type);
    if (r < 0)
        return error_set(err, r, "out of memory");
    keep_version(k->version, id.version);
    return 0;
}

int watch_delta_event(struct watch_delta *k, const char *line, size_t len, struct error *err)
{
    json_t *event = lenient_json_load(line, len);
    const char *type = json_string_value(json_object_get(event, "type"));
    json_t *object = json_object_get(event, "object");
    int r;

    if (type && json_is_object(object))
        r = apply(k, type, object, err);
    else
        r = error_set(err, -EBADMSG, event ? "a line that is no event" : "a line that is no JSON");
    json_decref(event);
    return r;
}

void watch_delta_learn(struct watch_delta *k, json_t *object)
{
    struct identity id;

    if (identify(object, &id) == 0 && is_older(k->version, id.version))
        see(k, object, &id);
}

/* ---- the table ---- */

struct watch_delta *watch_delta_new(watch_fn *fn, void *arg)
{
    struct watch_delta *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->fn = fn;
    k->arg = arg;
    k->objects = json_object();
    return k->objects ? k : watch_delta_free(k);
}

struct watch_delta *watch_delta_free(struct watch_delta *k)
{
    if (!k)
        return NULL;
    json_decref(k->objects);
    json_decref(k->listed);
    free(k);
    return NULL;
}

size_t watch_delta_count(const struct watch_delta *k)
{
    return json_object_size(k->objects);
}

const char *watch_delta_version(const struct watch_delta *k)
{
    return k->version;
}
