/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/transfer.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "host/net/libcurl.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#define EVENTS_PER_TURN 8 /* further events wait, so that the owner's loop can serve others */

struct transfer {
    struct transfer *next;
    struct transfers *set;
    CURL *easy;
    struct curl_slist *headers;
    int64_t ticket;
    transfer_data *data;
    transfer_done *done;
    void *arg;
    char *head, *body;
    size_t head_len, head_size, body_len, body_size;
    int status;
    int code;    /* why our side ended the transfer */
    bool begun;  /* the final answer's headers are complete … */
    bool told;   /* … and data has been called for it */
    bool fresh;  /* bytes, or the beginning, that data has not been given */
    bool inside; /* one of its callbacks is running */
    bool gone;   /* cancelled during a callback */
    char reason[CURL_ERROR_SIZE];
};

struct transfers {
    CURLM *multi;
    const struct transfer_server *server;
    struct transfer *first;
    int64_t tickets;
    unsigned n;
    int epoll_fd, timer_fd;
};

static void transfer_free(struct transfer *t)
{
    if (t->easy) {
        curl_multi_remove_handle(t->set->multi, t->easy);
        curl_easy_cleanup(t->easy);
    }
    curl_slist_free_all(t->headers);
    free(t->head);
    free(t->body);
    free(t);
}

static void forget(struct transfer *t)
{
    struct transfer **at = &t->set->first;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->set->n--;
    transfer_free(t);
}

/* ---- libcurl's callbacks: they only store, because they may not call libcurl ---- */

static int append(char **buf, size_t *len, size_t *size, size_t max, const char *bytes, size_t n)
{
    if (n > max - *len)
        return -EMSGSIZE;
    if (*len + n + 1 > *size) {
        size_t bigger = (*len + n + 1) * 2;
        char *text = realloc(*buf, bigger);

        if (!text)
            return -ENOMEM;
        *buf = text;
        *size = bigger;
    }
    memcpy(*buf + *len, bytes, n);
    *len += n;
    (*buf)[*len] = '\0';
    return 0;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    long status = 0;

    t->code = append(&t->head, &t->head_len, &t->head_size, TRANSFER_HEAD_MAX, bytes, n);
    if (t->code < 0)
        return 0;
    if (t->begun || (bytes[0] != '\r' && bytes[0] != '\n')) /* a trailer, or no blank line */
        return n;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->status = (int)status;
    t->begun = t->fresh = status >= 200; /* an interim answer precedes another one */
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;

    t->code = append(&t->body, &t->body_len, &t->body_size, TRANSFER_BODY_MAX, bytes, n);
    t->fresh = true;
    return t->code < 0 ? 0 : n;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct transfers *set = arg;
    struct epoll_event event = {.data.fd = fd};

    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(set->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (epoll_ctl(set->epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 && errno == ENOENT)
        epoll_ctl(set->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct transfers *set = arg;
    struct itimerspec when = {{0, 0}, {0, 0}};

    if (timeout_ms > 0)
        when.it_value = (struct timespec){timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    else if (timeout_ms == 0)
        when.it_value.tv_nsec = 1; /* at once, but not from here */
    timerfd_settime(set->timer_fd, 0, &when, NULL);
    return 0;
}

/* ---- calls of the owner's functions ---- */

static int code_of(const struct transfer *t, CURLcode result)
{
    long number = 0;

    if (t->code < 0)
        return t->code;
    curl_easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &number);
    switch (result) {
    case CURLE_OK:
        return t->begun ? 0 : -EBADMSG;
    case CURLE_COULDNT_CONNECT:
        return number == EACCES || number == EPERM ? -EACCES : -ENOTCONN;
    case CURLE_COULDNT_RESOLVE_HOST:
        return -ENOTCONN;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_PEER_FAILED_VERIFICATION:
        return -EPROTO;
    case CURLE_SEND_ERROR:
        return number == ENOTCONN ? -ENOTCONN : -ECONNRESET;
    case CURLE_GOT_NOTHING:
        return -ECONNRESET;
    case CURLE_RECV_ERROR:
        return number == ECONNRESET && !t->begun ? -ECONNRESET : -EBADMSG;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_PARTIAL_FILE:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9, which has no status line */
    case CURLE_BAD_CONTENT_ENCODING:
        return -EBADMSG;
    default:
        return -EIO;
    }
}

static const char *reason_of(const struct transfer *t, int code, CURLcode result)
{
    switch (code) {
    case -ENOTCONN:
        return result == CURLE_COULDNT_RESOLVE_HOST ? "no such host" : "no program listens there";
    case -EACCES:
        return "not allowed to connect";
    case -ECONNRESET:
        return "it closed the connection without an answer";
    case -ETIMEDOUT:
        return "no answer in time";
    case -EMSGSIZE:
        return "its answer is too long";
    case -ENOMEM:
        return "out of memory";
    default:
        return t->reason[0] ? t->reason : curl_easy_strerror(result);
    }
}

/* Hands on new bytes of a stream. False: it was cancelled and is freed. */
static bool deliver(struct transfer *t)
{
    while (t->fresh && t->data && t->begun && t->status < 300 && t->code == 0) {
        ssize_t used;

        t->fresh = t->told ? false : t->body_len > 0;
        t->inside = true;
        used = t->data(t->arg, t->body ? t->body : "", t->told ? t->body_len : 0);
        t->inside = false;
        if (t->gone) {
            forget(t);
            return false;
        }
        t->told = true;
        if (used < 0)
            t->code = (int)used;
        if (used <= 0)
            continue;
        t->body_len -= (size_t)used;
        memmove(t->body, t->body + used, t->body_len + 1);
    }
    return true;
}

static void complete(struct transfer *t, CURLcode result)
{
    struct transfer_answer answer;
    int code;

    if (!deliver(t))
        return;
    code = code_of(t, result);
    answer = (struct transfer_answer){
        .code = code,
        .status = t->status,
        .head = t->head ? t->head : "",
        .body = t->body ? t->body : "",
        .body_len = t->body_len,
        .reason = code < 0 ? reason_of(t, code, result) : "",
    };
    t->inside = true;
    t->done(t->arg, &answer);
    forget(t);
}

/* Every callback may begin and cancel transfers, so each step begins anew at the list's head. */
static void tell(struct transfers *set)
{
    struct transfer *t;
    CURLMsg *message;
    int left;

    do {
        for (t = set->first; t && !(t->fresh && t->data && t->code == 0); t = t->next)
            ;
        if (!t)
            break;
        if (!t->begun || t->status >= 300)
            t->fresh = false; /* done gets the bytes */
        else if (deliver(t) && t->code < 0)
            complete(t, CURLE_OK);
    } while (true);
    while ((message = curl_multi_info_read(set->multi, &left))) {
        CURLcode result = message->data.result; /* message is gone with the handle */

        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        complete(t, result);
    }
}

void transfers_dispatch(struct transfers *set)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int n = epoll_wait(set->epoll_fd, events, EVENTS_PER_TURN, 0);

    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd, running, mask = 0;
        uint64_t expired;

        if (fd == set->timer_fd) {
            if (read(fd, &expired, sizeof(expired)) == (ssize_t)sizeof(expired))
                curl_multi_socket_action(set->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        } else {
            mask |= events[i].events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0;
            mask |= events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
            mask |= events[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0;
            curl_multi_socket_action(set->multi, fd, mask, &running);
        }
        tell(set);
    }
}

/* ---- requests ---- */

static int add_header(struct transfer *t, const char *name, const char *value)
{
    _cleanup_free_ char *text = NULL;
    struct curl_slist *list;

    if (asprintf(&text, "%s%s", name, value) < 0) {
        text = NULL;
        return -ENOMEM;
    }
    list = curl_slist_append(t->headers, text);
    if (!list)
        return -ENOMEM;
    t->headers = list;
    return 0;
}

static int set_headers(struct transfer *t, const struct transfer_request *request)
{
    int r = add_header(t, "Content-Type: ", request->type ? request->type : "application/json");

    if (r == 0)
        r = add_header(t, "Expect:", "");
    if (r == 0 && request->bearer)
        r = add_header(t, "Authorization: Bearer ", request->bearer);
    if (r == 0 && request->header)
        r = add_header(t, "", request->header);
    return r;
}

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (r == CURLE_OK)                                                                         \
            r = curl_easy_setopt(easy, option, value);                                             \
    } while (0)

static CURLcode set_pem(CURL *easy, CURLoption option, const char *pem)
{
    struct curl_blob blob = {.data = (void *)pem, .flags = CURL_BLOB_COPY};

    if (!pem)
        return CURLE_OK;
    blob.len = strlen(pem);
    return curl_easy_setopt(easy, option, &blob);
}

static CURLcode set_server(CURL *easy, const struct transfer_server *server)
{
    CURLcode r = CURLE_OK;

    if (server->socket_path) {
        SET(CURLOPT_UNIX_SOCKET_PATH, server->socket_path);
        SET(CURLOPT_FRESH_CONNECT, 1L);
        SET(CURLOPT_FORBID_REUSE, 1L);
        return r;
    }
    /* A stream is silent for minutes: only keepalive tells a quiet server from a dead one. */
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, 15L);
    SET(CURLOPT_TCP_KEEPINTVL, 5L);
    if (server->insecure) {
        SET(CURLOPT_SSL_VERIFYPEER, 0L);
        SET(CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (r == CURLE_OK)
        r = set_pem(easy, CURLOPT_CAINFO_BLOB, server->ca);
    if (r == CURLE_OK)
        r = set_pem(easy, CURLOPT_SSLCERT_BLOB, server->cert);
    if (r == CURLE_OK)
        r = set_pem(easy, CURLOPT_SSLKEY_BLOB, server->key);
    return r;
}

static int set_up(struct transfer *t, const struct transfer_request *request)
{
    const struct transfer_server *server = t->set->server;
    bool posts = strcmp(request->method, "POST") == 0;
    _cleanup_free_ char *url = NULL;
    CURL *easy = t->easy;
    CURLcode r;

    if (set_headers(t, request) < 0)
        return -ENOMEM;
    if (asprintf(&url, "%s%s", server->url ? server->url : "http://localhost", request->path) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    r = set_server(easy, server);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_HTTPHEADER, t->headers);
    if (posts || request->body) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE, request->body ? (long)strlen(request->body) : 0L);
        SET(CURLOPT_COPYPOSTFIELDS, request->body ? request->body : "");
    }
    if (!posts && (request->body || strcmp(request->method, "GET") != 0))
        SET(CURLOPT_CUSTOMREQUEST, request->method);
    SET(CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    if (request->timeout_ms == 0)
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)TRANSFER_CONNECT_MS);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_ERRORBUFFER, t->reason);
    SET(CURLOPT_PRIVATE, t);
    return r == CURLE_OK ? 0 : -ENOMEM; /* the options are valid: only memory can be lacking */
}
#undef SET

int64_t transfer_send(struct transfers *set, const struct transfer_request *request)
{
    struct transfer *t;
    int r;

    if (set->n >= TRANSFERS_MAX)
        return -EBUSY;
    t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->set = set;
    t->data = request->data;
    t->done = request->done;
    t->arg = request->arg;
    t->easy = curl_easy_init();
    r = t->easy ? set_up(t, request) : -ENOMEM;
    if (r == 0 && curl_multi_add_handle(set->multi, t->easy) != CURLM_OK)
        r = -ENOMEM;
    if (r < 0) {
        transfer_free(t);
        return r;
    }
    t->ticket = ++set->tickets;
    t->next = set->first;
    set->first = t;
    set->n++;
    return t->ticket;
}

void transfer_cancel(struct transfers *set, int64_t ticket)
{
    struct transfer *t = set->first;

    while (t && t->ticket != ticket)
        t = t->next;
    if (t && t->inside)
        t->gone = true;
    else if (t)
        forget(t);
}

/* ---- the set of transfers ---- */

int transfers_fd(const struct transfers *set)
{
    return set->epoll_fd;
}

static int prepare(struct transfers *set)
{
    struct epoll_event event = {.events = EPOLLIN};

    set->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    set->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    event.data.fd = set->timer_fd;
    if (set->epoll_fd < 0 || set->timer_fd < 0 ||
        epoll_ctl(set->epoll_fd, EPOLL_CTL_ADD, set->timer_fd, &event) < 0)
        return -errno;
    set->multi = curl_multi_init();
    if (!set->multi)
        return -ENOMEM;
    curl_multi_setopt(set->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(set->multi, CURLMOPT_SOCKETDATA, set);
    curl_multi_setopt(set->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(set->multi, CURLMOPT_TIMERDATA, set);
    return 0;
}

int transfers_new(const struct transfer_server *server, struct transfers **ret)
{
    struct transfers *set;
    int r;

    if (server->socket_path &&
        strlen(server->socket_path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return -ENAMETOOLONG;
    r = libcurl_load();
    if (r < 0)
        return r;
    /* A unix socket needs no TLS and no name service, so libcurl's own tables are enough. */
    if (curl_global_init(server->url ? CURL_GLOBAL_SSL : CURL_GLOBAL_NOTHING) != CURLE_OK)
        return -ENOMEM;
    set = calloc(1, sizeof(*set));
    if (!set) {
        curl_global_cleanup();
        return -ENOMEM;
    }
    set->epoll_fd = set->timer_fd = -1;
    set->server = server;
    r = prepare(set);
    if (r < 0) {
        transfers_free(set);
        return r;
    }
    *ret = set;
    return 0;
}

struct transfers *transfers_free(struct transfers *set)
{
    if (!set)
        return NULL;
    while (set->first)
        forget(set->first);
    if (set->multi)
        curl_multi_cleanup(set->multi);
    close_fd(set->timer_fd);
    close_fd(set->epoll_fd);
    free(set);
    curl_global_cleanup();
    return NULL;
}
