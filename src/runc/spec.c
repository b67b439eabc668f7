/* SPDX-License-Identifier: Apache-2.0 */
#include "runc/spec.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "runc/sizes.h"

#include <string.h>

#define ERROR_WORD "container-unchanged"

/* The agent's mount lacks noexec, with which ld.so could not map the agent. */
#define AGENT_OPTIONS   "[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"rprivate\"]"
#define CONTROL_OPTIONS "[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"noexec\",\"rprivate\"]"

/* Finds the member, or makes it with the text @empty if it is missing or null. 0 or -errno. */
static int member_made(struct jsontext *json, struct json_span object, const char *name,
                       const char *empty, struct json_span *ret)
{
    _cleanup_free_ char *member = NULL;
    int r = jsontext_member(json, object, name, ret);

    if (r == 0 && !jsontext_null(json, *ret))
        return jsontext_opens(json, *ret, *empty) ? 0 : -EINVAL;
    if (r == 0) {
        r = jsontext_replace(json, *ret, empty);
    } else if (r == -ENOENT) {
        if (asprintf(&member, "\"%s\":%s", name, empty) < 0) {
            member = NULL;
            return -ENOMEM;
        }
        r = jsontext_append(json, object, member);
    }
    return r < 0 ? r : jsontext_member(json, object, name, ret);
}

static int append_mount(struct jsontext *json, struct json_span mounts, const char *destination,
                        const char *source, const char *options)
{
    _cleanup_free_ char *quoted = jsontext_quote(source);
    _cleanup_free_ char *mount = NULL;

    if (!quoted || asprintf(&mount,
                            "{\"destination\":\"%s\",\"type\":\"bind\",\"source\":%s,"
                            "\"options\":%s}",
                            destination, quoted, options) < 0) {
        mount = NULL;
        return -ENOMEM;
    }
    return jsontext_append(json, mounts, mount);
}

/* True when the container already has one of our mounts. */
static bool is_elastic(const struct jsontext *json, struct json_span mounts)
{
    struct json_item mount = {0};
    struct json_span to;

    while (jsontext_next(json, mounts, &mount))
        if (jsontext_member(json, mount.value, "destination", &to) == 0 &&
            (jsontext_is(json, to, CONTAINER_AGENT_DIR) ||
             jsontext_is(json, to, CONTAINER_CONTROL_DIR)))
            return true;
    return false;
}

/*
 * Appends the agent to the LD_PRELOAD in @variable. Returns 1, 0 (the agent is in it already, or
 * the variable would become too long for execve), or -ENOMEM.
 */
static int extend_preload(struct jsontext *json, struct json_span variable, size_t value_start)
{
    const char *file = "/" PRELOAD_FILE;
    size_t end = variable.end - 1; /* the closing quote */
    const char *separator = end > value_start ? ":" : "";
    char addition[sizeof(CONTAINER_PRELOAD) + 1];

    if (memmem(json->text + value_start, end - value_start, file, strlen(file)) ||
        end - variable.start + sizeof(addition) > PRELOAD_VARIABLE_MAX)
        return 0;
    snprintf(addition, sizeof(addition), "%s%s", separator, CONTAINER_PRELOAD);
    return jsontext_replace(json, (struct json_span){end, end}, addition) < 0 ? -ENOMEM : 1;
}

/*
 * Edits the last LD_PRELOAD, the one that counts: runtimes set the variables one by one.
 * Returns 1, 0 or -errno.
 */
static int edit_environment(struct jsontext *json, struct json_span process)
{
    struct json_item item = {0};
    struct json_span env, preload = {0};
    bool have_socket = false;
    size_t value_start = 0;
    int r = member_made(json, process, "env", "[]", &env);

    if (r < 0)
        return r;
    while (jsontext_next(json, env, &item)) {
        have_socket |= jsontext_begins(json, item.value, "TIDE_SOCKET=", NULL);
        if (jsontext_begins(json, item.value, "LD_PRELOAD=", &value_start))
            preload = item.value;
    }
    if (!have_socket) /* is appended, so that the variables before keep their positions */
        r = jsontext_append(json, env, "\"TIDE_SOCKET=" CONTAINER_SOCKET "\"");
    if (r < 0)
        return r;
    if (preload.end) {
        jsontext_begins(json, preload, "LD_PRELOAD=", &value_start);
        r = extend_preload(json, preload, value_start);
        return r < 0 ? r : r || !have_socket;
    }
    r = jsontext_append(json, env, "\"LD_PRELOAD=" CONTAINER_PRELOAD "\"");
    return r < 0 ? r : 1;
}

static int edit_config(struct jsontext *json, struct json_span config, const char *agent_dir,
                       const char *control_dir, unsigned cores, struct startup *ret)
{
    struct json_span mounts, process, env;
    int r = jsontext_member(json, config, "process", &process);

    if (r == 0 && !jsontext_opens(json, process, '{'))
        r = -EINVAL;
    if (r == 0)
        r = member_made(json, config, "mounts", "[]", &mounts);
    if (r < 0 || is_elastic(json, mounts))
        return r;
    r = append_mount(json, mounts, CONTAINER_AGENT_DIR, agent_dir, AGENT_OPTIONS);
    if (r == 0)
        r = append_mount(json, mounts, CONTAINER_CONTROL_DIR, control_dir, CONTROL_OPTIONS);
    if (r == 0) /* looks it up again: a change of the mounts may have moved it */
        r = jsontext_member(json, config, "process", &process);
    if (r == 0)
        r = edit_environment(json, process);
    if (r >= 0)
        r = jsontext_member(json, process, "env", &env);
    if (r < 0)
        return r;
    *ret = sizes_read(json, config, env, cores);
    r = sizes_add(json, env, ret);
    return r < 0 ? r : 1;
}

static int edit_process(struct jsontext *json, struct json_span process, const struct startup *size)
{
    struct startup s = *size;
    struct json_span env;
    int changed = edit_environment(json, process);
    int r = changed < 0 ? changed : jsontext_member(json, process, "env", &env);

    if (r < 0)
        return r;
    sizes_own(json, env, &s);
    r = sizes_add(json, env, &s);
    return r < 0 ? r : changed || r;
}

static int explain(int r, struct error *err)
{
    switch (r) {
    case -EEXIST:
        return error_set(err, r, "the engine's JSON has process, env or mounts twice");
    case -ENOMEM:
        return error_set(err, r, "out of memory");
    case -EBADMSG: /* jsontext_check() has set *err */
        return r;
    default:
        return r < 0 ? error_set(err, r,
                                 "in the engine's JSON, process, env or mounts is missing or has a "
                                 "wrong type")
                     : r;
    }
}

static int copy(const struct jsontext *from, struct jsontext *ret, struct json_span *ret_whole,
                struct error *err)
{
    int r = jsontext_check(from, ret_whole, err);

    if (r < 0)
        return r;
    ret->text = strndup(from->text, from->len);
    ret->len = from->len;
    return ret->text ? 0 : -ENOMEM;
}

/* Takes over a finished edit. It was made on a copy, so that the caller never sees half of one. */
static int settle(int r, struct jsontext *edited, struct jsontext *json)
{
    if (r > 0) {
        struct jsontext before = *json;

        *json = *edited;
        *edited = before;
    }
    free(edited->text);
    return r;
}

int spec_edit_config(struct jsontext *config, const char *agent_dir, const char *control_dir,
                     unsigned cores, struct startup *ret, struct error *err)
{
    struct jsontext edited = {0};
    struct json_span whole;
    int r = copy(config, &edited, &whole, err);

    if (r == 0)
        r = edit_config(&edited, whole, agent_dir, control_dir, cores, ret);
    return explain(settle(r, &edited, config), err);
}

int spec_edit_process(struct jsontext *process, const struct startup *size, struct error *err)
{
    struct jsontext edited = {0};
    struct json_span whole;
    int r = copy(process, &edited, &whole, err);

    if (r == 0)
        r = jsontext_opens(&edited, whole, '{') ? edit_process(&edited, whole, size) : -EINVAL;
    return explain(settle(r, &edited, process), err);
}
