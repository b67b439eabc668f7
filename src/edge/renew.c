/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/renew.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wholefile.h"
#include "edge/payload.h"
#include "host/trust/identity.h"

#define ERROR_WORD "certificate-not-renewed"

#define PEM_MAX  (64 * 1024)
#define LOOK_NS  (3600 * NS_PER_S) /* between two looks at the file, and two requests */
#define FIRST_NS (5 * NS_PER_S)    /* after the start */
#define DAY_S    86400

struct renew {
    struct renew_place place;
    struct renew_hooks hooks;
    uint64_t begun_ns, looked_ns;
    bool asked, replaced;
};

static int read_pem(const char *path, char **ret, struct stat *ret_status, struct error *err)
{
    size_t len;
    int r = wholefile_read(path, PEM_MAX, ret, &len, ret_status);

    return r < 0 ? error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}

static void complain(struct renew *r, const char *what, const char *why)
{
    char text[PAYLOAD_TEXT_MAX];

    snprintf(text, sizeof(text), "%s: %.180s", what, why);
    r->hooks.say(r->hooks.arg, text);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void ask(struct renew *r)
{
    _cleanup_free_ char *key = NULL;
    struct stat status;
    struct error err;
    char *request;

    if (read_pem(r->place.key, &key, &status, &err) < 0 ||
        identity_request_again(key, r->place.name, &request, &err) < 0) {
        complain(r, "the certificate ends soon, and no other can be asked for", error_said(&err));
        return;
    }
    r->asked = r->hooks.send(r->hooks.arg, TOPIC_REQUEST, request) == 0;
}

bool renew_tick(struct renew *r, bool connected, uint64_t now_ns)
{
    _cleanup_free_ char *cert = NULL;
    bool replaced = r->replaced;
    struct stat status;
    struct error err;
    int64_t end_s;

    r->replaced = false;
    if (!connected || now_ns - r->begun_ns < FIRST_NS ||
        (r->looked_ns && now_ns - r->looked_ns < LOOK_NS))
        return replaced;
    r->looked_ns = now_ns;
    if (read_pem(r->place.cert, &cert, &status, &err) < 0) {
        complain(r, "when the certificate ends is not known", error_said(&err));
        return replaced;
    }
    end_s = identity_expires_s(cert);
    if (end_s >= 0 && end_s - (int64_t)time(NULL) < RENEW_DAYS * DAY_S)
        ask(r);
    return replaced;
}

/* ---- what comes ------------------------------------------------------------------------------ */

/* Returns 0; or -errno with the reason, and the file is as it was. */
static int take(struct renew *r, const char *cert, struct error *err)
{
    _cleanup_free_ char *key = NULL, *ca = NULL, *before = NULL;
    struct stat status, other;
    int e = read_pem(r->place.key, &key, &other, err);

    e = e ? e : read_pem(r->place.ca, &ca, &other, err);
    e = e ? e : read_pem(r->place.cert, &before, &status, err);
    e = e ? e : identity_check(cert, key, ca, r->place.name, err);
    if (e < 0)
        return e;
    if (identity_expires_s(cert) <= identity_expires_s(before))
        return error_set(err, -ESTALE, "it does not last longer than the present one");
    e = wholefile_replace(r->place.cert, cert, strlen(cert), &status);
    return e < 0 ? error_set(err, e, "%s cannot be replaced: %s", r->place.cert, strerror(-e)) : 0;
}

void renew_got(struct renew *r, const struct mqtt_message *m)
{
    _cleanup_free_ char *cert = m->len <= PEM_MAX ? strndup(m->bytes, m->len) : NULL;
    struct error err;

    if (!r->asked || !cert || m->retained)
        return;
    r->asked = false;
    if (take(r, cert, &err) < 0) {
        complain(r, "the new certificate is not used", error_said(&err));
        return;
    }
    r->replaced = true;
    complain(r, "the certificate was renewed", r->place.cert);
}

/* ---- begin and end --------------------------------------------------------------------------- */

int renew_new(const struct renew_place *place, const struct renew_hooks *hooks, struct renew **ret,
              struct error *err)
{
    struct renew *r = calloc(1, sizeof(*r));

    if (!r)
        return error_set(err, -ENOMEM, "out of memory: the certificate cannot be renewed");
    r->place = *place;
    r->hooks = *hooks;
    r->begun_ns = clock_now_ns();
    *ret = r;
    return 0;
}

struct renew *renew_free(struct renew *r)
{
    free(r);
    return NULL;
}
