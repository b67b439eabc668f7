/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/docker/docker_config.h"

#include "base/container.h"

#include <string.h>

#define ERROR_WORD "bad-json-file"

static int explain(int r, struct error *err)
{
    if (r == -EEXIST)
        return error_set(err, r, "the file has 'runtimes' twice");
    if (r == -EINVAL)
        return error_set(err, r, "the file, or 'runtimes' in it, is not a JSON object");
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory");
    return r; /* jsontext_check() has filled in *err */
}

/* Finds the member "runtimes". Returns 0, -ENOENT, or another -errno. */
static int find_runtimes(const struct jsontext *config, struct json_span *ret_whole,
                         struct json_span *ret, struct error *err)
{
    int r = jsontext_check(config, ret_whole, err);

    if (r == 0)
        r = jsontext_member(config, *ret_whole, "runtimes", ret);
    return r == 0 && !jsontext_opens(config, *ret, '{') ? -EINVAL : r;
}

static bool runs(const struct jsontext *config, struct json_span runtime, const char *quoted)
{
    struct json_span path;

    return jsontext_member(config, runtime, "path", &path) == 0 &&
           path.end - path.start == strlen(quoted) &&
           memcmp(config->text + path.start, quoted, strlen(quoted)) == 0;
}

int docker_config_add(struct jsontext *config, const char *program, struct error *err)
{
    _cleanup_free_ char *quoted = jsontext_quote(program);
    _cleanup_free_ char *runtime = NULL;
    _cleanup_free_ char *runtimes = NULL;
    struct json_span whole, all, ours;
    int r;

    if (!quoted || asprintf(&runtime, "{\"path\": %s}", quoted) < 0 ||
        asprintf(&runtimes, "\"runtimes\": {\"" CONTAINER_RUNTIME "\": %s}", runtime) < 0)
        return explain(-ENOMEM, err);
    r = find_runtimes(config, &whole, &all, err);
    if (r == -ENOENT) {
        r = jsontext_append(config, whole, runtimes);
        return r < 0 ? explain(r, err) : 1;
    }
    if (r == 0)
        r = jsontext_member(config, all, CONTAINER_RUNTIME, &ours);
    if (r == 0 && runs(config, ours, quoted))
        return 0;
    if (r == 0) {
        r = jsontext_replace(config, ours, runtime);
        return r < 0 ? explain(r, err) : 2;
    }
    if (r == -ENOENT) {
        char *member = runtimes + strlen("\"runtimes\": {");

        member[strlen(member) - 1] = '\0'; /* drops the closing brace */
        r = jsontext_append(config, all, member);
        return r < 0 ? explain(r, err) : 1;
    }
    return explain(r, err);
}

int docker_config_remove(struct jsontext *config, struct error *err)
{
    struct json_span whole, all, usual;
    int r = find_runtimes(config, &whole, &all, err);

    if (r == 0 && jsontext_member(config, whole, "default-runtime", &usual) == 0 &&
        jsontext_is(config, usual, CONTAINER_RUNTIME))
        return error_set(err, -EBUSY, "'default-runtime' is '" CONTAINER_RUNTIME "'");
    if (r == 0)
        r = jsontext_remove(config, all, CONTAINER_RUNTIME);
    return r == 0 ? 1 : r == -ENOENT ? 0 : explain(r, err);
}

int docker_config_tidy(struct jsontext *config, bool *ret_empty, struct error *err)
{
    struct json_item item = {0};
    struct json_span whole, all;
    int r = find_runtimes(config, &whole, &all, err);

    if (r == 0 && !jsontext_next(config, all, &item))
        r = jsontext_remove(config, whole, "runtimes");
    if (r < 0 && r != -ENOENT)
        return explain(r, err);
    item = (struct json_item){0};
    *ret_empty = !jsontext_next(config, whole, &item);
    return 0;
}
