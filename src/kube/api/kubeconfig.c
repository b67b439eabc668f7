/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/error.h"
#include "kube/api/access.h"
#include "kube/api/base64.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#define ERROR_WORD "bad-kubeconfig"

/* One file as a tree. An alias is a reference in it, so a small file cannot become a huge tree. */
struct source {
    yaml_document_t doc;
    const struct kubeconfig_file *file;
};

/* A mapping of a file; node NULL: there is none. */
struct at {
    struct source *source;
    yaml_node_t *node;
};

static int wrong(struct error *err, struct at at, const char *what)
{
    return error_set(err, -EINVAL, "%s:%zu: %s", at.source->file->path,
                     at.node ? at.node->start_mark.line + 1 : 1, what);
}

static const char *scalar(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static struct at get(struct at map, const char *key)
{
    struct at found = {map.source, NULL};

    if (!map.node || map.node->type != YAML_MAPPING_NODE)
        return found;
    for (yaml_node_pair_t *p = map.node->data.mapping.pairs.start;
         p < map.node->data.mapping.pairs.top; p++) {
        const char *name = scalar(yaml_document_get_node(&map.source->doc, p->key));

        if (name && strcmp(name, key) == 0)
            found.node = yaml_document_get_node(&map.source->doc, p->value);
    }
    return found;
}

/* NULL: the key is absent or its value is empty, which means the same in these files. */
static const char *get_text(struct at map, const char *key)
{
    const char *text = scalar(get(map, key).node);

    return text && *text && strcmp(text, "~") != 0 && strcmp(text, "null") != 0 ? text : NULL;
}

/* The mapping @inner of the entry with the name in the list @list, of the first file that has it.
 */
static int find(struct source *sources, size_t n, const char *list, const char *name,
                const char *inner, struct at *ret, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct source *s = &sources[i];
        struct at all = get((struct at){s, yaml_document_get_root_node(&s->doc)}, list);

        if (!all.node || all.node->type != YAML_SEQUENCE_NODE)
            continue;
        for (yaml_node_item_t *item = all.node->data.sequence.items.start;
             item < all.node->data.sequence.items.top; item++) {
            struct at entry = {s, yaml_document_get_node(&s->doc, *item)}, found;
            const char *its = get_text(entry, "name");

            if (!its || strcmp(its, name) != 0)
                continue;
            found = get(entry, inner);
            if (!found.node || found.node->type != YAML_MAPPING_NODE)
                return error_set(err, -EINVAL, "%s:%zu: '%s' in %s has no '%s'", s->file->path,
                                 entry.node->start_mark.line + 1, name, list, inner);
            *ret = found;
            return 0;
        }
    }
    return error_set(err, -ENOENT, "%s: there is no '%s' in %s", sources[0].file->path, name, list);
}

/* ---- values ---- */

static int copy(char **ret, const char *text)
{
    *ret = strdup(text);
    return *ret ? 0 : -ENOMEM;
}

/* A relative path in a kubeconfig begins at the folder of that file. */
static int copy_path(char **ret, const struct kubeconfig_file *file, const char *path)
{
    const char *slash = strrchr(file->path, '/');

    if (path[0] == '/' || !slash)
        return copy(ret, path);
    if (asprintf(ret, "%.*s/%s", (int)(slash - file->path), file->path, path) < 0) {
        *ret = NULL;
        return -ENOMEM;
    }
    return 0;
}

static int decode(struct at map, const char *key, const char *base64, char **ret, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    int r = base64_decode(base64, &text, &n);

    if (r == -EINVAL || (r == 0 && memchr(text, '\0', n)))
        return error_set(err, -EINVAL, "%s:%zu: %s is no text in base64", map.source->file->path,
                         get(map, key).node->start_mark.line + 1, key);
    if (r == 0)
        *ret = TAKE_PTR(text);
    return r;
}

/* KEY-data holds the text, KEY the name of a file with it; the data win, as with kubectl. */
static int take(struct at map, const char *key, struct access_text *ret, struct error *err)
{
    const char *path = get_text(map, key), *data;
    char data_key[48];

    snprintf(data_key, sizeof(data_key), "%s-data", key);
    data = get_text(map, data_key);
    if (data)
        return decode(map, data_key, data, &ret->text, err);
    return path ? copy_path(&ret->file, map.source->file, path) : 0;
}

static int take_token(struct at user, struct access_text *ret)
{
    const char *file = get_text(user, "tokenFile"), *token = get_text(user, "token");

    if (file)
        return copy_path(&ret->file, user.source->file, file);
    return token ? copy(&ret->text, token) : 0;
}

/* Refuses what people use and we do not support: the server would refuse it without a reason. */
static int refuse_unknown(struct at cluster, struct at user, struct error *err)
{
    static const char *const of_user[] = {"exec", "auth-provider", "username"};
    static const char *const of_cluster[] = {"proxy-url", "tls-server-name"};

    for (size_t i = 0; i < ARRAY_LEN(of_user); i++)
        if (get(user, of_user[i]).node)
            return error_set(err, -ENOTSUP,
                             "%s:%zu: '%s' is not supported: use a client certificate, token or "
                             "tokenFile (kubectl create token ACCOUNT makes one)",
                             user.source->file->path,
                             get(user, of_user[i]).node->start_mark.line + 1, of_user[i]);
    for (size_t i = 0; i < ARRAY_LEN(of_cluster); i++)
        if (get_text(cluster, of_cluster[i]))
            return error_set(err, -ENOTSUP, "%s:%zu: '%s' is not supported",
                             cluster.source->file->path,
                             get(cluster, of_cluster[i]).node->start_mark.line + 1, of_cluster[i]);
    return 0;
}

static int take_server(struct at cluster, struct access *a, struct error *err)
{
    const char *server = get_text(cluster, "server");
    size_t len;

    if (!server)
        return wrong(err, cluster, "this cluster has no 'server'");
    len = strlen(server);
    while (len > 0 && server[len - 1] == '/')
        len--;
    if (strncmp(server, "https://", strlen("https://")) != 0 || len <= strlen("https://"))
        return wrong(err, get(cluster, "server"), "'server' has to begin with https:// and a host");
    a->server = strndup(server, len);
    return a->server ? 0 : -ENOMEM;
}

static int take_all(struct at context, struct at cluster, struct at user, struct access *a,
                    struct error *err)
{
    const char *space = get_text(context, "namespace");
    const char *insecure = get_text(cluster, "insecure-skip-tls-verify");
    int r = refuse_unknown(cluster, user, err);

    if (r == 0)
        r = take_server(cluster, a, err);
    if (r == 0)
        r = copy(&a->name_space, space ? space : "default");
    if (r == 0)
        r = take(cluster, "certificate-authority", &a->ca, err);
    if (r == 0)
        r = take(user, "client-certificate", &a->cert, err);
    if (r == 0)
        r = take(user, "client-key", &a->key, err);
    if (r == 0)
        r = take_token(user, &a->token);
    a->insecure = insecure && strcmp(insecure, "true") == 0;
    if (r == 0 && (a->cert.text || a->cert.file) != (a->key.text || a->key.file))
        return wrong(err, user, "client-certificate and client-key need each other");
    return r;
}

/* ---- files ---- */

static const char *current_context(struct source *sources, size_t n)
{
    const char *name = NULL;

    for (size_t i = 0; i < n && !name; i++)
        name = get_text((struct at){&sources[i], yaml_document_get_root_node(&sources[i].doc)},
                        "current-context");
    return name;
}

static int resolve(struct source *sources, size_t n, const char *name, struct access *ret,
                   struct error *err)
{
    struct at context = {0}, cluster = {0}, user = {0};
    const char *of_cluster, *of_user;
    int r;

    if (!name)
        name = current_context(sources, n);
    if (!name)
        return error_set(err, -ENOENT, "%s: there is no current-context: choose one with --context",
                         sources[0].file->path);
    r = find(sources, n, "contexts", name, "context", &context, err);
    if (r < 0)
        return r;
    of_cluster = get_text(context, "cluster");
    of_user = get_text(context, "user");
    if (!of_cluster || !of_user)
        return wrong(err, context, "a context needs 'cluster' and 'user'");
    r = find(sources, n, "clusters", of_cluster, "cluster", &cluster, err);
    if (r == 0)
        r = find(sources, n, "users", of_user, "user", &user, err);
    if (r == 0)
        r = take_all(context, cluster, user, ret, err);
    return r == -ENOMEM ? error_set(err, r, "out of memory") : r;
}

static int parse(struct source *s, struct error *err)
{
    yaml_parser_t parser;
    int r = 0;

    if (!yaml_parser_initialize(&parser))
        return error_set(err, -ENOMEM, "out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)s->file->text, s->file->len);
    if (!yaml_parser_load(&parser, &s->doc))
        r = error_set(err, -EINVAL, "%s:%zu: %s", s->file->path, parser.problem_mark.line + 1,
                      parser.problem ? parser.problem : "no YAML");
    yaml_parser_delete(&parser);
    return r;
}

int kubeconfig_resolve(const struct kubeconfig_file *files, size_t n, const char *context,
                       struct access *ret, struct error *err)
{
    struct source sources[ACCESS_FILES_MAX];
    struct access found = {0};
    size_t parsed = 0;
    int r = n > 0 && n <= ACCESS_FILES_MAX ? 0 : error_set(err, -EINVAL, "no kubeconfig");

    while (r == 0 && parsed < n) {
        sources[parsed].file = &files[parsed];
        r = parse(&sources[parsed], err);
        parsed += r == 0;
    }
    if (r == 0)
        r = resolve(sources, n, context, &found, err);
    while (parsed > 0)
        yaml_document_delete(&sources[--parsed].doc);
    if (r < 0)
        access_done(&found);
    else
        *ret = found;
    return r;
}
