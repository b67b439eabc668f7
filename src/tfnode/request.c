/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/request.h"

#include "base/httpline.h"
#include "base/jsontext.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

struct head {
    size_t size; /* of the head itself, blank line included */
    size_t length;
    bool have_length;
    bool have_json;    /* a Content-Type, and each is application/json */
    bool other_type;   /* a Content-Type of another kind */
    bool from_browser; /* an Origin, or a Host that is no address */
};

struct text {
    const char *start;
    size_t len;
};

/* "GET /v1/watch?x HTTP/1.1" */
static int parse_request_line(const char *line, size_t len, struct request *req)
{
    const char *path = memchr(line, ' ', len), *version;
    size_t path_len;

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
    if (path_len >= sizeof(req->path)) /* none of ours is as long: it will not be found */
        path_len = sizeof(req->path) - 1;
    memcpy(req->path, path, path_len);
    req->path[path_len] = '\0';
    return 0;
}

static bool text_is(struct text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.start, word, text.len) == 0;
}

/* "application/json", whatever parameters follow */
static bool is_json(struct text type)
{
    const char *end = memchr(type.start, ';', type.len);

    type.len = end ? (size_t)(end - type.start) : type.len;
    while (type.len > 0 && (type.start[type.len - 1] == ' ' || type.start[type.len - 1] == '\t'))
        type.len--;
    return text_is(type, "application/json");
}

static bool is_address_of(int family, struct text text)
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
 * "10.0.0.7", "[fd00::7]" or "localhost", perhaps with a port. A name could be anybody's, who lets
 * it mean this machine for a while: then pages from there are of the same origin as this port.
 */
static bool is_address(struct text host)
{
    const char *colon = host.len > 0 ? memrchr(host.start, ':', host.len) : NULL;
    size_t digits = colon ? (size_t)(host.start + host.len - colon) - 1 : 0;

    if (host.len > 0 && host.start[host.len - 1] != ']' && colon) {
        if (digits < 1 || digits > 5 || strspn(colon + 1, "0123456789") < digits)
            return false;
        host.len = (size_t)(colon - host.start);
    }
    if (host.len > 2 && host.start[0] == '[' && host.start[host.len - 1] == ']')
        return is_address_of(AF_INET6, (struct text){host.start + 1, host.len - 2});
    return text_is(host, "localhost") || is_address_of(AF_INET, host);
}

static int parse_length(const char *text, size_t len, size_t *ret)
{
    size_t value = 0;

    if (len == 0)
        return -EBADMSG;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -EBADMSG;
        value = value * 10 + (size_t)(text[i] - '0');
        if (value > REQUEST_BODY_MAX)
            return -EMSGSIZE;
    }
    *ret = value;
    return 0;
}

static bool is_header(const char *line, const char *colon, const char *name)
{
    return (size_t)(colon - line) == strlen(name) && strncasecmp(line, name, strlen(name)) == 0;
}

static int take_length(struct text value, struct head *head)
{
    size_t length;
    int r = parse_length(value.start, value.len, &length);

    if (r < 0)
        return r;
    if (head->have_length && head->length != length) /* two opinions about the end: smuggling */
        return -EBADMSG;
    head->have_length = true;
    head->length = length;
    return 0;
}

static int parse_header(const char *line, size_t len, struct head *head)
{
    const char *colon = memchr(line, ':', len);
    struct text value;

    if (!colon || colon == line || memchr(line, '\0', len))
        return -EBADMSG;
    value = (struct text){colon + 1, (size_t)(line + len - colon) - 1};
    for (; value.len > 0 && (*value.start == ' ' || *value.start == '\t'); value.len--)
        value.start++;
    while (value.len > 0 &&
           (value.start[value.len - 1] == ' ' || value.start[value.len - 1] == '\t'))
        value.len--;
    if (is_header(line, colon, "Transfer-Encoding"))
        return -ENOTSUP;
    if (is_header(line, colon, "Content-Length"))
        return take_length(value, head);
    if (is_header(line, colon, "Content-Type")) {
        head->have_json = is_json(value);
        head->other_type |= !head->have_json;
    }
    if (is_header(line, colon, "Origin") || (is_header(line, colon, "Host") && !is_address(value)))
        head->from_browser = true;
    return 0;
}

static int parse_head(const char *buf, size_t len, struct request *req, struct head *ret)
{
    struct head head = {0};

    for (size_t from = 0;;) {
        size_t n;
        int r = http_find_line(buf, len, from, &n);

        if (r == 0 && from == 0)
            r = parse_request_line(buf, n, req);
        else if (r == 0 && n > 0)
            r = parse_header(buf + from, n, &head);
        if (r < 0)
            return r;
        if (from > 0 && n == 0) {
            head.size = from + 2;
            break;
        }
        from += n + 2;
    }
    *ret = head;
    return 0;
}

int request_parse(const char *buf, size_t len, struct request *ret)
{
    size_t seen = len < REQUEST_MAX ? len : REQUEST_MAX;
    struct request req = {0};
    struct head head;
    int r = parse_head(buf, seen, &req, &head);

    if (r == 0 && head.from_browser)
        return -EPERM;
    if (r == 0 && req.method == REQUEST_POST && (!head.have_json || head.other_type))
        return -EMEDIUMTYPE;
    if (r == 0 && seen - head.size < head.length)
        r = -EAGAIN;
    if (r == -EAGAIN && len >= REQUEST_MAX)
        return -EMSGSIZE;
    if (r < 0)
        return r;
    req.body = buf + head.size;
    req.body_len = head.length;
    *ret = req;
    return 0;
}

/* A body that was checked; @text is its copy. */
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
