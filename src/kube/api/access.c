/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/access.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "bad-kubeconfig"

/* Follows links, since the files of a mounted Secret are links. */
static int read_text(const char *path, char **ret, size_t *ret_len, struct error *err)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len = 0;
    ssize_t n;

    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size > ACCESS_FILE_MAX)
        return error_set(err, -EINVAL, "%s is no file of at most %u bytes", path, ACCESS_FILE_MAX);
    text = malloc((size_t)status.st_size + 1);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    while (len < (size_t)status.st_size &&
           (n = read(fd, text + len, (size_t)status.st_size - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    *ret = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

static void trim(char *text)
{
    size_t start = strspn(text, " \t\r\n"), len = strlen(text);

    while (len > start && strchr(" \t\r\n", text[len - 1]))
        len--;
    memmove(text, text + start, len - start);
    text[len - start] = '\0';
}

static int refresh(struct access_text *t, bool *changed, struct error *err)
{
    char *text;
    size_t len;
    int r;

    if (!t->file)
        return 0;
    r = read_text(t->file, &text, &len, err);
    if (r < 0)
        return r;
    trim(text);
    if (t->text && strcmp(t->text, text) == 0) {
        free(text);
        return 0;
    }
    free(t->text);
    t->text = text;
    *changed = true;
    return 0;
}

int access_refresh(struct access *a, struct error *err)
{
    struct access_text *const all[] = {&a->ca, &a->cert, &a->key, &a->token};
    bool changed = false;
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(all) && r == 0; i++)
        r = refresh(all[i], &changed, err);
    /* The token becomes one line of a request's head. */
    if (r == 0 && a->token.text && strpbrk(a->token.text, "\r\n")) {
        free(a->token.text);
        a->token.text = NULL;
        r = error_set(err, -EINVAL, "%s holds more than one line: a token has one",
                      a->token.file ? a->token.file : "the token");
    }
    return r < 0 ? r : changed;
}

/* Takes ownership of @found. */
static int settle(struct access *found, struct access *ret, struct error *err)
{
    int r = access_refresh(found, err);

    if (r < 0) {
        access_done(found);
        return r;
    }
    *ret = *found;
    return 0;
}

static int default_files(char **ret)
{
    const char *named = getenv("KUBECONFIG"), *home = getenv("HOME");

    if (named && *named)
        *ret = strdup(named);
    else if (asprintf(ret, "%s/.kube/config", home ? home : "") < 0)
        *ret = NULL;
    return *ret ? 0 : -ENOMEM;
}

int access_load(const char *kubeconfig, const char *context, struct access *ret, struct error *err)
{
    struct kubeconfig_file files[ACCESS_FILES_MAX];
    char *texts[ACCESS_FILES_MAX];
    _cleanup_free_ char *paths = kubeconfig && *kubeconfig ? strdup(kubeconfig) : NULL;
    char *rest = NULL;
    struct access found = {0};
    size_t n = 0;
    int r = paths || default_files(&paths) == 0 ? 0 : error_set(err, -ENOMEM, "out of memory");
    bool many = r == 0 && strchr(paths, ':');

    for (char *path = r == 0 ? strtok_r(paths, ":", &rest) : NULL; path && r == 0;
         path = strtok_r(NULL, ":", &rest)) {
        struct kubeconfig_file *file = &files[n];

        if (n == ACCESS_FILES_MAX) {
            r = error_set(err, -E2BIG, "more than %d kubeconfig files", ACCESS_FILES_MAX);
            break;
        }
        file->path = path;
        r = read_text(path, &texts[n], &file->len, err);
        if (r == -ENOENT && many) {
            r = 0; /* kubectl, too, skips missing files if there are several */
            continue;
        }
        if (r == 0)
            file->text = texts[n++];
    }
    if (r == 0 && n == 0)
        r = error_set(err, -ENOENT, "none of the files in KUBECONFIG is there");
    if (r == 0)
        r = kubeconfig_resolve(files, n, context, &found, err);
    while (n > 0)
        free(texts[--n]);
    return r < 0 ? r : settle(&found, ret, err);
}

static int in_folder(char **ret, const char *dir, const char *name)
{
    if (asprintf(ret, "%s/%s", dir, name) < 0) {
        *ret = NULL;
        return -ENOMEM;
    }
    return 0;
}

int access_in_cluster(const char *dir, struct access *ret, struct error *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    struct access found = {0};
    _cleanup_free_ char *space = NULL;
    size_t len;
    int r;

    if (!host || !*host || !port || !*port)
        return error_set(err, -ENOENT,
                         "not in a pod (KUBERNETES_SERVICE_HOST and _PORT are not set): give "
                         "--kubeconfig");
    r = asprintf(&found.server, strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host,
                 port);
    if (r < 0) {
        found.server = NULL;
        r = -ENOMEM;
    } else {
        r = in_folder(&found.ca.file, dir, "ca.crt");
    }
    if (r == 0)
        r = in_folder(&found.token.file, dir, "token");
    if (r == 0)
        r = in_folder(&space, dir, "namespace");
    if (r == 0)
        r = read_text(space, &found.name_space, &len, err);
    if (r < 0) {
        access_done(&found);
        return r == -ENOMEM ? error_set(err, r, "out of memory") : r;
    }
    trim(found.name_space);
    return settle(&found, ret, err);
}

int access_find(const char *kubeconfig, const char *context, struct access *ret, struct error *err)
{
    bool in_pod = getenv("KUBERNETES_SERVICE_HOST") != NULL;
    struct error first = {0}, second = {0};
    int r;

    if (kubeconfig || context)
        return access_load(kubeconfig, context, ret, err);
    r = access_in_cluster(ACCESS_SERVICE_FILES, ret, &first);
    if (r == -ENOENT) {
        r = access_load(NULL, NULL, ret, &second);
        /* A pod without its account's files is told of these, not of a kubeconfig. */
        if (r != -ENOENT || !in_pod)
            first = second;
    }
    return r < 0 ? error_set(err, r, "%s", first.text) : r;
}

void access_done(struct access *a)
{
    struct access_text *const all[] = {&a->ca, &a->cert, &a->key, &a->token};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        free(all[i]->text);
        free(all[i]->file);
    }
    free(a->server);
    free(a->name_space);
    *a = (struct access){0};
}
