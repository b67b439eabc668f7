/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/certificate.h"

#include "base/cleanup.h"
#include "host/trust/identity.h"
#include "host/trust/served.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "bad-certificate"

/* ---- our own ---- */

unsigned certificate_hosts(const struct conf *conf, char ret[CONF_HOSTS_MAX][CONF_HOST_MAX])
{
    unsigned n = 0;

    if (conf->hosts) {
        memcpy(ret, conf->host, sizeof(conf->host));
        return conf->hosts;
    }
    if (gethostname(ret[n], CONF_HOST_MAX) == 0 && ret[n][0])
        ret[n++][CONF_HOST_MAX - 1] = '\0';
    if (n == 0 || strcmp(ret[0], "localhost") != 0)
        strcpy(ret[n++], "localhost");
    strcpy(ret[n++], "127.0.0.1");
    return n;
}

/* The key before the certificate: a pair that does not match is made again at the next look. */
static int issue(const struct state *s, const char *const *hosts, unsigned n, const char *list,
                 struct error *err)
{
    struct identity_pem pem = {0};
    int r = authority_issue(s->authority, hosts, n, time(NULL), &pem, err);

    if (r >= 0)
        r = state_put(s, "web.key", pem.key, err);
    if (r >= 0)
        r = state_put(s, "web.crt", pem.cert, err);
    if (r >= 0)
        r = state_put(s, "web.hosts", list, err);
    identity_pem_done(&pem);
    return r < 0 ? r : 0;
}

static bool is_good(const struct conf *conf, const char *list)
{
    _cleanup_free_ char *cert = NULL, *key = NULL, *hosts = NULL;
    char path[3][PATH_MAX];
    struct timespec ignored;
    struct identity *identity;
    struct identity_pem pem;

    if (conf_path(conf, "web.crt", path[0], PATH_MAX, NULL) < 0 ||
        conf_path(conf, "web.key", path[1], PATH_MAX, NULL) < 0 ||
        conf_path(conf, "web.hosts", path[2], PATH_MAX, NULL) < 0 ||
        served_read(path[0], &cert, &ignored, NULL) < 0 ||
        served_read(path[1], &key, &ignored, NULL) < 0 ||
        served_read(path[2], &hosts, &ignored, NULL) < 0 || strcmp(hosts, list) != 0 ||
        identity_expires_s(cert) < time(NULL) + CERTIFICATE_RENEW_DAYS * INT64_C(86400))
        return false;
    pem = (struct identity_pem){cert, key};
    if (identity_load(&pem, &identity, NULL) < 0)
        return false;
    identity_free(identity);
    return true;
}

static int make_own(const struct conf *conf, struct error *err)
{
    char host[CONF_HOSTS_MAX][CONF_HOST_MAX], list[CONF_HOSTS_MAX * (CONF_HOST_MAX + 1) + 1];
    unsigned n = certificate_hosts(conf, host);
    const char *hosts[CONF_HOSTS_MAX];
    struct state s;
    size_t len = 0;
    int r;

    for (unsigned i = 0; i < n; i++) {
        hosts[i] = host[i];
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s\n", host[i]);
    }
    if (is_good(conf, list))
        return 0;
    r = state_open(conf->state, &s, err);
    if (r < 0)
        return r;
    r = issue(&s, hosts, n, list, err);
    state_close(&s);
    return r;
}

/* ---- either ---- */

int certificate_look(struct served *s, const struct conf *conf, struct error *err)
{
    char own[2][PATH_MAX];
    int r;

    if (*conf->certificate)
        return served_look(s, conf->certificate, conf->key, err);
    r = conf_path(conf, "web.crt", own[0], PATH_MAX, err);
    if (r >= 0)
        r = conf_path(conf, "web.key", own[1], PATH_MAX, err);
    if (r >= 0)
        r = make_own(conf, err);
    return r < 0 ? r : served_look(s, own[0], own[1], err);
}
