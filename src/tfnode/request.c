/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/request.h"

#include "base/httphead.h"
#include "base/jsontext.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* The results of reading a head, except where its body ends. */
struct found {
    struct request request;
    bool have_json;    /* a Content-Type, and each is application/json */
    bool other_type;   /* a Content-Type of another kind */
    bool from_browser; /* an Origin, or a Host that is no address */
};

/* "GET /v1/watch?x HTTP/1.1" */
static int parse_request_line(void *arg, struct http_text text)
{
    struct request *req = &((struct found *)arg)->request;
    const char *line = text.start, *path = memchr(line, ' ', text.len), *version;
    size_t len = text.len, path_len;

    if (!path || path == line)
        return -EBADMSG;
    version = memchr(path + 1, ' ', (size_t)(line + len - path - 1));
    if (!version || line + len - version != sizeof(" HTTP/1.1") - 1 ||
        memcmp(version, " HTTP/1.", sizeof(" HTTP/1.") - 1) != 0 ||
        (version[8] != '0' && version[8] != '1'))
        return -EBADMSG;
    req->http_1_0 = version[8] == '0';
    req->method = path - line == 3 && memcmp(line, "GET", 3) == 0    ? REQUEST_GET
                  : path - line == 4 && memcmp(line, "POST", 4) == 0 ? REQUEST_POST
                                                                     : REQUEST_OTHER;
    path++;
    path_len = (size_t)(version - path);
    for (size_t i = 0; i < path_len; i++) {
        if (path[i] <= ' ' || path[i] == 0x7f)
            return -EBADMSG;
        if (path[i] == '?')
            path_len = i;
    }
    if (path_len == 0 || path[0] != '/')
        return -EBADMSG;
    if (path_len >= sizeof(req->path)) /* no route is as long, so the answer will be 404 */
        path_len = sizeof(req->path) - 1;
    memcpy(req->path, path, path_len);
    req->path[path_len] = '\0';
    return 0;
}

/* Whether @type is "application/json", with or without parameters. */
static bool is_json(struct http_text type)
{
    const char *end = memchr(type.start, ';', type.len);

    type.len = end ? (size_t)(end - type.start) : type.len;
    while (type.len > 0 && (type.start[type.len - 1] == ' ' || type.start[type.len - 1] == '\t'))
        type.len--;
    return http_text_is(type, "application/json");
}

static bool is_address_of(int family, struct http_text text)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;

    if (text.len >= sizeof(copy))
        return false;
    memcpy(copy, text.start, text.len);
    copy[text.len] = '\0';
    return strlen(copy) == text.len && inet_pton(family, copy, &address) == 1;
}

/*
 * Accepts "10.0.0.7", "[fd00::7]" or "localhost", perhaps with a port. The owner of any other name
 * could point it at this machine (DNS rebinding): its pages then have the same origin as this port.
 */
static bool is_address(struct http_text host)
{
    const char *colon = host.len > 0 ? memrchr(host.start, ':', host.len) : NULL;
    size_t digits = colon ? (size_t)(host.start + host.len - colon) - 1 : 0;

    if (host.len > 0 && host.start[host.len - 1] != ']' && colon) {
        if (digits < 1 || digits > 5 || strspn(colon + 1, "0123456789") < digits)
            return false;
        host.len = (size_t)(colon - host.start);
    }
    if (host.len > 2 && host.start[0] == '[' && host.start[host.len - 1] == ']')
        return is_address_of(AF_INET6, (struct http_text){host.start + 1, host.len - 2});
    return http_text_is(host, "localhost") || is_address_of(AF_INET, host);
}

static void take_header(void *arg, struct http_text name, struct http_text value)
{
    struct found *found = arg;

    if (http_text_is(name, "Content-Type")) {
        found->have_json = is_json(value);
        found->other_type |= !found->have_json;
    }
    if (http_text_is(name, "Origin") || (http_text_is(name, "Host") && !is_address(value)))
        found->from_browser = true;
}

int request_parse(const char *buf, size_t len, struct request *ret)
{
    static const struct http_reader requests = {
        .body_max = REQUEST_BODY_MAX, .first = parse_request_line, .header = take_header};
    size_t seen = len < REQUEST_MAX ? len : REQUEST_MAX;
    struct found found = {0};
    struct request *req = &found.request;
    struct http_head head;
    int r = http_head_parse(buf, seen, &requests, &found, &head);

    if (r == 0 && found.from_browser)
        return -EPERM;
    if (r == 0 && req->method == REQUEST_POST && (!found.have_json || found.other_type))
        return -EMEDIUMTYPE;
    if (r == 0 && seen - head.size < head.length)
        r = -EAGAIN;
    if (r == -EAGAIN && len >= REQUEST_MAX)
        return -EMSGSIZE;
    if (r < 0)
        return r;
    req->body = buf + head.size;
    req->body_len = head.length;
    *ret = *req;
    return 0;
}

/* Copies the body to @text and checks that it is a JSON object. */
static int parse_body(const char *body, size_t len, char text[REQUEST_BODY_MAX + 1],
                      struct jsontext *ret, struct json_span *ret_object)
{
    if (len > REQUEST_BODY_MAX)
        return -EBADMSG;
    memcpy(text, body, len);
    text[len] = '\0';
    *ret = (struct jsontext){.text = text, .len = len};
    return jsontext_check(ret, ret_object, NULL) < 0 ? -EBADMSG : 0;
}

static int parse_number(const struct jsontext *json, struct json_span object, const char *name,
                        uint32_t max, uint32_t *ret)
{
    struct json_span number;
    uint32_t value = 0;

    if (jsontext_member(json, object, name, &number) < 0)
        return -EBADMSG;
    for (size_t i = number.start; i < number.end; i++) {
        if (json->text[i] < '0' || json->text[i] > '9')
            return -EBADMSG;
        value = value * 10 + (uint32_t)(json->text[i] - '0');
        if (value > max)
            return -ERANGE;
    }
    *ret = value;
    return 0;
}

int request_threads(const char *body, size_t len, uint32_t *ret_threads)
{
    char text[REQUEST_BODY_MAX + 1];
    struct json_span object;
    struct jsontext json;
    int r = parse_body(body, len, text, &json, &object);

    return r < 0 ? r : parse_number(&json, object, "threads", REQUEST_THREADS_MAX, ret_threads);
}

int request_address(const char *body, size_t len, char ret_host[REQUEST_HOST_MAX],
                    uint32_t *ret_port)
{
    char text[REQUEST_BODY_MAX + 1];
    struct json_span object, host;
    struct jsontext json;
    uint32_t port;
    size_t n;

    if (parse_body(body, len, text, &json, &object) < 0 ||
        jsontext_member(&json, object, "host", &host) < 0 || text[host.start] != '"' ||
        parse_number(&json, object, "port", UINT16_MAX, &port) < 0)
        return -EBADMSG;
    n = host.end - host.start - 2;
    if (n >= REQUEST_HOST_MAX)
        return -EBADMSG;
    memcpy(ret_host, text + host.start + 1, n);
    ret_host[n] = '\0';
    *ret_port = port;
    return 0;
}
