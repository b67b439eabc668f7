/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/patch.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/startup.h"
#include "kube/inject/agent_files.h"
#include "kube/object/quantity.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIRROR "kubernetes.io/config.mirror" /* a static pod: kubelet says what it is */

/* The patch in the making, and the text of the annotation. */
struct edit {
    json_t *operations;
    char said[INJECT_SAID_MAX];
    bool failed; /* out of memory */
};

__attribute__((format(printf, 2, 3))) static void say(struct edit *e, const char *fmt, ...)
{
    size_t used = strlen(e->said);
    va_list args;

    va_start(args, fmt);
    vsnprintf(e->said + used, sizeof(e->said) - used, fmt, args);
    va_end(args);
}

/* Takes @value over. */
static void add(struct edit *e, const char *path, json_t *value)
{
    json_t *operation =
        value ? json_pack("{s:s,s:s,s:o}", "op", "add", "path", path, "value", value) : NULL;

    if (!operation || json_array_append_new(e->operations, operation) < 0)
        e->failed = true;
}

/* Appends to the list at @path, which may be missing in the pod: then it becomes @value alone. */
static void append(struct edit *e, const char *path, const json_t *list, json_t *value)
{
    char end[96];

    if (json_array_size(list) == 0) {
        add(e, path, json_pack("[o]", value));
        return;
    }
    snprintf(end, sizeof(end), "%s/-", path);
    add(e, end, value);
}

/* ---- reading ---- */

static const char *text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is(const json_t *object, const char *key, const char *wanted)
{
    const char *found = text(object, key);

    return found && strcmp(found, wanted) == 0;
}

/* Whether @name is one of @list, which has commas and perhaps blanks between. */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    while (list && *list) {
        size_t word;

        list += strspn(list, ", ");
        word = strcspn(list, ", ");
        if (word == n && n > 0 && strncmp(list, name, n) == 0)
            return true;
        list += word;
    }
    return false;
}

/* ---- environment ---- */

/* The last entry of a variable counts. Returns its place in the list or -1. */
static int find(const json_t *env, const char *name)
{
    for (size_t i = json_array_size(env); i-- > 0;)
        if (is(json_array_get(env, i), "name", name))
            return (int)i;
    return -1;
}

/* A container's own variables, and those that it gets. */
struct variables {
    const json_t *env;
    json_t *added;
};

/*
 * Tells startup_apply() of a container's variables: one whose value is read from elsewhere is
 * there, whatever it will be, and so is one that is empty on purpose.
 */
static const char *look(const void *arg, const char *name)
{
    const struct variables *v = arg;
    int at = find(v->env, name);
    const char *value;

    if (at < 0)
        return NULL;
    value = text(json_array_get(v->env, (size_t)at), "value");
    return value ? value : "";
}

/*
 * Options that the image gives to Java would be lost with JDK_JAVA_OPTIONS, since the pod's
 * variables replace the image's; and Java reads the limit by itself.
 */
static int put(void *arg, const char *name, const char *value)
{
    struct variables *v = arg;
    const struct startup_row *row = startup_row_of(name);
    json_t *entry;

    if (row && row->added)
        return 1;
    entry = json_pack("{s:s,s:s}", "name", name, "value", value);
    return entry && json_array_append_new(v->added, entry) == 0 ? 0 : -ENOMEM;
}

/* The container's CPU limit, else the pod's, in thousandths of a core; 0: none. */
static unsigned limit_mcpu(const json_t *pod, const json_t *container)
{
    const json_t *own = json_object_get(json_object_get(container, "resources"), "limits");
    const json_t *whole =
        json_object_get(json_object_get(json_object_get(pod, "spec"), "resources"), "limits");
    const char *cpu = text(own, "cpu") ? text(own, "cpu") : text(whole, "cpu");
    int64_t mcpu;

    if (!cpu || kube_quantity_milli(cpu, &mcpu) < 0 || mcpu < 1 ||
        mcpu > INT64_C(1000) * STARTUP_NUMBER_MAX)
        return 0;
    return (unsigned)mcpu;
}

/*
 * Adds the variables for the container's CPU limit. The cores of the node are not known yet: a
 * limit above them sizes pools above them, and docs/kubernetes.md says so. Nothing is set where a
 * list of variables comes from elsewhere (envFrom), which may have the same ones. Returns the size,
 * 0: none.
 */
static unsigned add_sizes(struct edit *e, const json_t *pod, const json_t *container, json_t *added)
{
    const json_t *env = json_object_get(container, "env");
    const struct startup_container c = {.limit_mcpu = limit_mcpu(pod, container),
                                        .cores = UINT32_MAX};
    struct variables v = {env, added};
    struct startup s;

    if (c.limit_mcpu == 0 || json_array_size(json_object_get(container, "envFrom")) > 0 ||
        find(env, STARTUP_MARK) >= 0)
        return 0;
    s = startup_of_container(&c, look, &v);
    if (startup_apply(&s, look, put, &v) < 0)
        e->failed = true;
    return startup_sized(&s) ? s.size : 0;
}

/* ---- containers ---- */

/* The path without doubled, single-dot and final parts; false: it is odd, and may mean anything. */
static bool clean(const char *path, char *ret, size_t size)
{
    size_t used = 0;

    if (!path || *path != '/')
        return false;
    while (*path) {
        size_t n;

        path += strspn(path, "/");
        n = strcspn(path, "/");
        if (n == 2 && strncmp(path, "..", 2) == 0)
            return false;
        if (n > 0 && !(n == 1 && *path == '.')) {
            if (used + n + 2 > size)
                return false;
            ret[used++] = '/';
            memcpy(ret + used, path, n);
            used += n;
        }
        path += n;
    }
    ret[used] = '\0';
    return true;
}

/*
 * Whether a mount at @path is at our place, around it or inside: the folder to mount on would have
 * to be made in a volume of the user's, which may be read-only, and then nothing starts.
 */
static bool in_the_way(const char *path)
{
    char cleaned[512];
    size_t own = strlen(CONTAINER_AGENT_DIR), n;

    if (!clean(path, cleaned, sizeof(cleaned)))
        return true;
    n = strlen(cleaned);
    return strncmp(cleaned, CONTAINER_AGENT_DIR, n < own ? n : own) == 0 &&
           (n == own || (n < own ? CONTAINER_AGENT_DIR[n] : cleaned[own]) == '/');
}

static bool place_is_taken(const json_t *container)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(container, "volumeMounts"), i, one)
        if (in_the_way(text(one, "mountPath")))
            return true;
    json_array_foreach (json_object_get(container, "volumeDevices"), i, one)
        if (in_the_way(text(one, "devicePath")))
            return true;
    return false;
}

/* Why the container stays as it is; NULL: nothing speaks against it. */
static const char *why_not(const json_t *container, const char *except)
{
    const json_t *env = json_object_get(container, "env"), *one;
    const char *name = text(container, "name");
    size_t i, found = 0;

    if (!name)
        return "it has no name";
    if (listed(except, name))
        return "named in " INJECT_EXCEPT;
    if (json_is_true(json_object_get(json_object_get(container, "securityContext"), "privileged")))
        return "privileged";
    if (place_is_taken(container))
        return "a volume is mounted at " CONTAINER_AGENT_DIR;
    json_array_foreach (env, i, one) {
        const char *value = text(one, "value");

        if (!is(one, "name", "LD_PRELOAD"))
            continue;
        if (json_object_get(one, "valueFrom"))
            return "its LD_PRELOAD comes from elsewhere";
        if (value && strstr(value, "/" PRELOAD_FILE))
            return "it has an agent";
        if (value && strlen(value) + sizeof(CONTAINER_PRELOAD) + 64 > PRELOAD_VARIABLE_MAX)
            return "its LD_PRELOAD is too long";
        if (++found > 1)
            return "it has LD_PRELOAD twice";
    }
    return NULL;
}

static void preload(struct edit *e, const char *path, const json_t *env, json_t *added)
{
    int at = find(env, "LD_PRELOAD");
    const char *present = at < 0 ? NULL : text(json_array_get(env, (size_t)at), "value");
    _cleanup_free_ char *value = NULL;
    char to[128];

    if (preload_value(present, CONTAINER_AGENT_DIR, &value) < 0) {
        value = NULL;
        e->failed = true;
    } else if (at >= 0) {
        snprintf(to, sizeof(to), "%s/env/%d/value", path, at);
        add(e, to, json_string(value));
    } else if (json_array_append_new(
                   added, json_pack("{s:s,s:s}", "name", "LD_PRELOAD", "value", value)) < 0) {
        e->failed = true;
    }
}

static void add_variables(struct edit *e, const char *path, const json_t *env, json_t *added)
{
    char to[96];
    json_t *one;
    size_t i;

    snprintf(to, sizeof(to), "%s/env", path);
    if (json_array_size(env) == 0) {
        add(e, to, json_incref(added));
        return;
    }
    json_array_foreach (added, i, one)
        append(e, to, env, json_incref(one));
}

static void inject(struct edit *e, const json_t *pod, size_t index, const json_t *container,
                   bool sizes)
{
    const json_t *env = json_object_get(container, "env");
    json_t *added = json_array();
    char path[64], to[96];
    unsigned size = 0;

    if (!added) {
        e->failed = true;
        return;
    }
    snprintf(path, sizeof(path), "/spec/containers/%zu", index);
    snprintf(to, sizeof(to), "%s/volumeMounts", path);
    append(e, to, json_object_get(container, "volumeMounts"),
           json_pack("{s:s,s:s,s:b}", "name", INJECT_CONFIG_MAP, "mountPath", CONTAINER_AGENT_DIR,
                     "readOnly", 1));
    preload(e, path, env, added);
    if (sizes)
        size = add_sizes(e, pod, container, added);
    if (json_array_size(added) > 0)
        add_variables(e, path, env, added);
    json_decref(added);
    say(e, "%s%s: agent", *e->said ? "; " : "", text(container, "name"));
    if (size)
        say(e, ", sized for %u", size);
}

/* ---- pods ---- */

static bool stores_little(const json_t *pod)
{
    const json_t *one;
    int64_t bytes;
    size_t i;

    json_array_foreach (json_object_get(json_object_get(pod, "spec"), "containers"), i, one) {
        const char *limit =
            text(json_object_get(json_object_get(one, "resources"), "limits"), "ephemeral-storage");

        if (limit && (kube_quantity_whole(limit, &bytes) < 0 || bytes < INJECT_STORAGE_MIN))
            return true;
    }
    return false;
}

static bool has_volume(const json_t *spec)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(spec, "volumes"), i, one)
        if (is(one, "name", INJECT_CONFIG_MAP))
            return true;
    return false;
}

/* Why the pod stays as it is; NULL: nothing speaks against it. */
static const char *why_not_pod(const json_t *pod)
{
    const json_t *spec = json_object_get(pod, "spec");
    const char *arch = text(json_object_get(spec, "nodeSelector"), "kubernetes.io/arch");

    if (is(json_object_get(spec, "os"), "name", "windows") ||
        is(json_object_get(spec, "nodeSelector"), "kubernetes.io/os", "windows"))
        return "it runs on Windows";
    if (arch && strcmp(arch, AGENT_ARCH) != 0)
        return "the agent that is here is for " AGENT_ARCH;
    if (json_is_true(json_object_get(spec, "hostPID")))
        return "it shares the node's processes";
    if (has_volume(spec))
        return "it has a volume named " INJECT_CONFIG_MAP;
    if (stores_little(pod))
        return "its limit of ephemeral storage is small";
    return NULL;
}

/* Whether nothing at all is to be done, not even said. */
static bool is_left_alone(const json_t *pod)
{
    const json_t *metadata = json_object_get(pod, "metadata");
    const json_t *notes = json_object_get(metadata, "annotations"), *note;
    const json_t *labels = json_object_get(metadata, "labels");
    const char *key;
    size_t used = 0;

    if (!json_is_object(metadata) ||
        !json_is_array(json_object_get(json_object_get(pod, "spec"), "containers")))
        return true;
    if (is(notes, INJECT_KEY, "false") || is(labels, INJECT_KEY, "false") ||
        json_object_get(notes, INJECT_DONE) || json_object_get(notes, MIRROR) ||
        json_object_get(labels, INJECT_JOB))
        return true;
    json_object_foreach ((json_t *)notes, key, note)
        used += strlen(key) + json_string_length(note);
    return used + strlen(INJECT_DONE) + INJECT_SAID_MAX > INJECT_NOTES_MAX;
}

json_t *inject_volume(void)
{
    json_t *items = json_array();

    for (size_t i = 0; items && i < agent_files_count; i++)
        if (json_array_append_new(items, json_pack("{s:s,s:s}", "key", agent_files[i].key, "path",
                                                   agent_files[i].path)) < 0) {
            json_decref(items);
            return NULL;
        }
    return json_pack("{s:s,s:{s:s,s:o,s:b}}", "name", INJECT_CONFIG_MAP, "configMap", "name",
                     INJECT_CONFIG_MAP, "items", items, "optional", 1);
}

static void edit_containers(struct edit *e, const json_t *pod, bool sizes)
{
    const json_t *spec = json_object_get(pod, "spec"), *container;
    const json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");
    const char *except = text(notes, INJECT_EXCEPT), *why;
    size_t i, done = 0;

    sizes &= !is(notes, INJECT_SIZES, "false");
    json_array_foreach (json_object_get(spec, "containers"), i, container) {
        why = why_not(container, except);
        if (why) {
            say(e, "%s%s: no, %s", *e->said ? "; " : "",
                text(container, "name") ? text(container, "name") : "?", why);
            continue;
        }
        done++;
        inject(e, pod, i, container, sizes);
    }
    if (done > 0)
        append(e, "/spec/volumes", json_object_get(spec, "volumes"), inject_volume());
}

json_t *inject_patch(const json_t *pod, bool sizes, const char *note)
{
    struct edit e = {.operations = json_array()};
    const json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");

    if (!e.operations || is_left_alone(pod)) {
        json_decref(e.operations);
        return NULL;
    }
    if (!note)
        note = why_not_pod(pod);
    if (note)
        say(&e, "no: %s", note);
    else
        edit_containers(&e, pod, sizes);
    if (json_object_size(notes) > 0)
        add(&e, "/metadata/annotations/threadtide.io~1injected", json_string(e.said));
    else
        add(&e, "/metadata/annotations", json_pack("{s:s}", INJECT_DONE, e.said));
    if (e.failed || !*e.said) { /* half a patch is worse than none */
        json_decref(e.operations);
        return NULL;
    }
    return e.operations;
}
