/* SPDX-License-Identifier: Apache-2.0 */
#include "host/trust/served.h"

#include "base/cleanup.h"
#include "base/wholefile.h"
#include "host/trust/identity.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "bad-certificate"

#define PEM_MAX 65536

int served_read(const char *path, char **ret, struct timespec *ret_time, struct error *err)
{
    _cleanup_free_ char *real = realpath(path, NULL);
    struct stat status;
    size_t len;
    int r = real ? wholefile_read(real, PEM_MAX, ret, &len, &status) : -errno;

    if (r < 0)
        return error_set(err, r, "%.160s: %s", path, strerror(-r));
    *ret_time = status.st_mtim;
    return 0;
}

static bool same(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

int served_look(struct served *s, const char *cert_path, const char *key_path, struct error *err)
{
    _cleanup_free_ char *cert = NULL, *key = NULL;
    struct timespec cert_time, key_time;
    struct identity *identity;
    int r = served_read(cert_path, &cert, &cert_time, err);

    if (r >= 0)
        r = served_read(key_path, &key, &key_time, err);
    if (r < 0 || (s->there && same(cert_time, s->cert_time) && same(key_time, s->key_time)))
        return r;
    r = identity_load(&(struct identity_pem){cert, key}, &identity, err);
    if (r < 0)
        return r;
    identity_serve(identity);
    *s = (struct served){cert_time, key_time, true};
    return 1;
}
