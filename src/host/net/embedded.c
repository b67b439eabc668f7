/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/embedded.h"

#include "base/cleanup.h"

#include <string.h>

static const struct {
    const char *name, *value;
} protection[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

int embedded_protect(struct httpd_request *r)
{
    for (size_t i = 0; i < ARRAY_LEN(protection); i++) {
        int error = httpd_add_header(r, protection[i].name, protection[i].value);

        if (error < 0)
            return error;
    }
    return 0;
}

static const struct embedded_file *find(const struct embedded_file *files, const char *path)
{
    const struct embedded_file *f = files;

    if (strcmp(path, "/") == 0)
        return files->path ? files : NULL;
    while (f->path && strcmp(f->path, path) != 0)
        f++;
    return f->path ? f : NULL;
}

bool embedded_answer(const struct embedded_file *files, struct httpd_request *r)
{
    const struct embedded_file *f = find(files, r->path);
    const char *known = f ? httpd_header(r, "If-None-Match") : NULL;

    if (!f)
        return false;
    /* "no-cache" has the browser ask each time: a new program brings a new page at once. */
    if (httpd_add_header(r, "ETag", f->etag) < 0 ||
        httpd_add_header(r, "Cache-Control", "no-cache") < 0)
        httpd_answer(r, 500, "text/plain", NULL, true);
    else if (known && strcmp(known, f->etag) == 0)
        httpd_answer(r, 304, f->type, strdup(""), false);
    else
        httpd_answer(r, 200, f->type, strndup(f->text, f->len), false);
    return true;
}
