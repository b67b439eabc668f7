/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/tunnel.h"

#include "base/cleanup.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "host-unreachable"

#define ROOM 65536

/* Bytes on their way, and whether their source has come to its end. */
struct way {
    char bytes[ROOM];
    size_t first, end;
    bool over;
};

static bool is_empty(const struct way *w)
{
    return w->first == w->end;
}

static void took(struct way *w, size_t n)
{
    w->first = 0;
    w->end = n;
    w->over = n == 0;
}

static bool again(int number)
{
    return number == EAGAIN || number == EINTR;
}

/* ---- the four steps; each returns 0 or -errno ---- */

static int from_here(struct way *w, int in)
{
    ssize_t n = read(in, w->bytes, sizeof(w->bytes));

    if (n < 0)
        return again(errno) ? 0 : -errno;
    took(w, (size_t)n);
    return 0;
}

static int to_server(struct way *w, CURL *easy)
{
    size_t n = 0;
    CURLcode r = curl_easy_send(easy, w->bytes + w->first, w->end - w->first, &n);

    if (r != CURLE_OK && r != CURLE_AGAIN)
        n = w->end - w->first; /* it may have refused early: its answer counts */
    w->first += n;
    return 0;
}

static int from_server(struct way *w, CURL *easy)
{
    size_t n = 0;
    CURLcode r = curl_easy_recv(easy, w->bytes, sizeof(w->bytes), &n);

    if (r == CURLE_AGAIN)
        return 0;
    took(w, r == CURLE_OK ? n : 0);
    return 0;
}

static int to_here(struct way *w, int out)
{
    ssize_t n = write(out, w->bytes + w->first, w->end - w->first);

    if (n < 0)
        return again(errno) ? 0 : -errno;
    w->first += (size_t)n;
    return 0;
}

/* ---- all of it ---- */

static int carry(CURL *easy, int fd, int in, int out)
{
    static struct way there, back;

    for (;;) {
        struct pollfd p[3] = {{.fd = -1}, {.fd = fd}, {.fd = -1}};
        int r = 0;

        /* TLS may hold bytes that no descriptor tells of: it is asked before each wait. */
        if (is_empty(&back) && !back.over)
            r = from_server(&back, easy);
        if (r == 0 && !is_empty(&back))
            r = to_here(&back, out);
        if (r < 0 || there.over || (back.over && is_empty(&back)))
            return r;
        if (is_empty(&there))
            p[0] = (struct pollfd){.fd = in, .events = POLLIN};
        p[1].events = (short)((is_empty(&back) ? POLLIN : 0) | (is_empty(&there) ? 0 : POLLOUT));
        if (!p[1].events)
            p[1].fd = -1; /* a server that has hung up would be told of without end */
        if (!is_empty(&back))
            p[2] = (struct pollfd){.fd = out, .events = POLLOUT};
        if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
            return -errno;
        if (p[0].revents)
            r = from_here(&there, in);
        if (r == 0 && !is_empty(&there))
            r = to_server(&there, easy);
        if (r < 0)
            return r;
    }
}

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (r == CURLE_OK)                                                                         \
            r = curl_easy_setopt(easy, option, value);                                             \
    } while (0)

static CURLcode set_up(CURL *easy, const struct tunnel *t, const char *url, char *said)
{
    CURLcode r = CURLE_OK;

    SET(CURLOPT_ERRORBUFFER, said);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_CONNECT_ONLY, 1L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_SSL_ENABLE_ALPN, 0L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_CONNECTTIMEOUT, (long)TUNNEL_CONNECT_S);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, 15L);
    SET(CURLOPT_TCP_KEEPINTVL, 15L);
    if (*t->ca) {
        SET(CURLOPT_CAINFO, t->ca);
        SET(CURLOPT_CAPATH, NULL);
    }
    if (*t->cert) {
        SET(CURLOPT_SSLCERT, t->cert);
        SET(CURLOPT_SSLKEY, *t->key ? t->key : t->cert);
    }
    return r;
}

static int connected(CURL *easy, const struct tunnel *t, int in, int out, struct error *err)
{
    char said[CURL_ERROR_SIZE] = "", url[320];
    curl_socket_t fd = CURL_SOCKET_BAD;
    bool bracket = strchr(t->host, ':');
    CURLcode r;

    snprintf(url, sizeof(url), "https://%s%.255s%s:%.8s", bracket ? "[" : "", t->host,
             bracket ? "]" : "", t->port);
    r = set_up(easy, t, url, said);
    if (r == CURLE_OK)
        r = curl_easy_perform(easy);
    if (r == CURLE_OK)
        r = curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
    if (r != CURLE_OK || fd == CURL_SOCKET_BAD)
        return error_set(err, -EHOSTUNREACH, "%.200s", *said ? said : curl_easy_strerror(r));
    return carry(easy, fd, in, out);
}

int tunnel_run(const struct tunnel *t, int in, int out, struct error *err)
{
    CURL *easy;
    int r;

    if (curl_global_init(CURL_GLOBAL_SSL) != CURLE_OK || !(easy = curl_easy_init()))
        return error_set(err, -ENOMEM, "out of memory");
    r = connected(easy, t, in, out, err);
    curl_easy_cleanup(easy);
    curl_global_cleanup();
    return r;
}
