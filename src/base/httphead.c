/* SPDX-License-Identifier: Apache-2.0 */
#include "base/httphead.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

int http_find_line(const char *buf, size_t len, size_t from, size_t *ret_len)
{
    const char *lf = memchr(buf + from, '\n', len - from);

    if (!lf)
        return -EAGAIN;
    if (lf == buf + from || lf[-1] != '\r')
        return -EBADMSG;
    *ret_len = (size_t)(lf - buf) - from - 1;
    return 0;
}

bool http_text_is(struct http_text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.start, word, text.len) == 0;
}

static struct http_text trimmed(const char *start, size_t len)
{
    for (; len > 0 && (*start == ' ' || *start == '\t'); len--)
        start++;
    while (len > 0 && (start[len - 1] == ' ' || start[len - 1] == '\t'))
        len--;
    return (struct http_text){start, len};
}

static int parse_length(struct http_text text, size_t max, struct http_head *head)
{
    size_t value = 0;

    if (text.len == 0)
        return -EBADMSG;
    for (size_t i = 0; i < text.len; i++) {
        if (text.start[i] < '0' || text.start[i] > '9')
            return -EBADMSG;
        value = value * 10 + (size_t)(text.start[i] - '0');
        if (value > max)
            return -EMSGSIZE;
    }
    if (head->have_length && head->length != value) /* two different ends: request smuggling */
        return -EBADMSG;
    head->have_length = true;
    head->length = value;
    return 0;
}

static int parse_header(const char *line, size_t len, const struct http_reader *reader, void *arg,
                        struct http_head *head)
{
    const char *colon = memchr(line, ':', len);
    struct http_text name, value;

    if (!colon || colon == line || memchr(line, '\0', len))
        return -EBADMSG;
    name = (struct http_text){line, (size_t)(colon - line)};
    value = trimmed(colon + 1, len - name.len - 1);
    if (http_text_is(name, "Content-Length"))
        return parse_length(value, reader->body_max, head);
    if (http_text_is(name, "Transfer-Encoding")) {
        if (!reader->chunked)
            return -ENOTSUP;
        if (!http_text_is(value, "chunked"))
            return -EBADMSG;
        head->chunked = true;
    } else if (reader->header) {
        reader->header(arg, name, value);
    }
    return 0;
}

int http_head_parse(const char *buf, size_t len, const struct http_reader *reader, void *arg,
                    struct http_head *ret)
{
    struct http_head head = {0};

    for (size_t from = 0;;) {
        size_t n;
        int r = http_find_line(buf, len, from, &n);

        if (r == 0 && from == 0)
            r = reader->first(arg, (struct http_text){buf, n});
        else if (r == 0 && n > 0)
            r = parse_header(buf + from, n, reader, arg, &head);
        if (r < 0)
            return r;
        if (from > 0 && n == 0) {
            head.size = from + 2;
            break;
        }
        from += n + 2;
    }
    if (head.chunked && head.have_length) /* two different ends: request smuggling */
        return -EBADMSG;
    *ret = head;
    return 0;
}
