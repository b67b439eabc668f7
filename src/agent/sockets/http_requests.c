/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sockets/http_requests.h"

#include <string.h>
#include <strings.h>

/* A reader's. All but the last three are of HTTP/1.1. */
enum state {
    START_LINE,
    HEADER,
    BODY,
    CHUNK_SIZE,
    CHUNK,
    TRAILER,
    UNTIL_CLOSE,
    PREFACE, /* of HTTP/2 */
    FRAME,
    PAYLOAD
};

#define PREFACE_LINE "PRI * HTTP/2.0"
#define PREFACE_REST 8 /* bytes behind that line's end: "\r\nSM\r\n\r\n" */

enum { FRAME_DATA, FRAME_HEADERS, FRAME_RST_STREAM = 3, FRAME_SETTINGS };
#define FLAG_END_STREAM 1

/* ---- requests ---- */

static void finish(struct http_connection *c, const struct http_events *events, bool counts)
{
    uint64_t request;

    if (c->count == 0)
        return;
    request = c->pipe[c->first].request;
    c->first = (c->first + 1) % HTTP_PIPE_MAX;
    c->count--;
    if (counts)
        events->end(request);
    else
        events->drop(request);
}

void http_given_up(struct http_connection *c, const struct http_events *events)
{
    while (c->count > 0)
        finish(c, events, false);
    for (unsigned i = 0; i < HTTP_STREAMS_MAX; i++) {
        if (c->stream[i].id)
            events->drop(c->stream[i].request);
        c->stream[i].id = 0;
    }
    c->protocol = HTTP_OTHER;
}

static struct http_stream *stream_of(struct http_connection *c, uint32_t id)
{
    for (unsigned i = 0; i < HTTP_STREAMS_MAX; i++)
        if (c->stream[i].id == id)
            return &c->stream[i];
    return NULL;
}

static void close_stream(struct http_connection *c, const struct http_events *events, uint32_t id,
                         bool counts)
{
    struct http_stream *s = id ? stream_of(c, id) : NULL;

    if (!s)
        return;
    s->id = 0;
    if (counts)
        events->end(s->request);
    else
        events->drop(s->request);
}

/* ---- HTTP/1.1: lines ---- */

static bool begins(const struct http_reader *r, const char *word)
{
    size_t len = strlen(word);

    return r->len >= len && strncasecmp(r->line, word, len) == 0;
}

/* The value behind a header's name; NULL: it is another header. The line is terminated. */
static const char *value_of(const struct http_reader *r, const char *name)
{
    const char *value = r->line + strlen(name);

    if (!begins(r, name))
        return NULL;
    while (*value == ' ' || *value == '\t')
        value++;
    return value;
}

static bool has_word(const char *text, const char *word)
{
    for (size_t len = strlen(word); *text; text++)
        if (strncasecmp(text, word, len) == 0)
            return true;
    return false;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Returns false when it is no number. */
static bool read_number(const char *text, int base, uint64_t *ret)
{
    const char *first = text;
    uint64_t n = 0;

    for (; digit_of(*text) < base; text++) {
        if (n > UINT64_MAX >> 5)
            return false;
        n = n * (uint64_t)base + (uint64_t)digit_of(*text);
    }
    *ret = n;
    return text > first && (*text == '\0' || *text == ' ' || *text == '\t' || *text == ';');
}

static void begin_message(struct http_reader *r)
{
    *r = (struct http_reader){.state = START_LINE};
}

/* A method is three to seven capitals, as "GET" and "OPTIONS". */
static bool is_request(const struct http_reader *r)
{
    unsigned n = 0;

    while (n < r->len && r->line[n] >= 'A' && r->line[n] <= 'Z')
        n++;
    return n >= 3 && n <= 7 && n < r->len && r->line[n] == ' ';
}

/* Returns false when the bytes are not HTTP. */
static bool take_request_line(struct http_connection *c, const struct http_events *events)
{
    unsigned last;

    if (c->protocol == HTTP_UNKNOWN && begins(&c->in, PREFACE_LINE)) {
        c->protocol = HTTP_2;
        c->in = (struct http_reader){.state = PREFACE, .left = PREFACE_REST};
        if (c->out.state == START_LINE)
            c->out.state = FRAME;
        return true;
    }
    if (!is_request(&c->in) || c->count == HTTP_PIPE_MAX || c->out.state == FRAME ||
        c->out.state == PAYLOAD)
        return false;
    c->protocol = HTTP_1;
    last = (c->first + c->count++) % HTTP_PIPE_MAX;
    c->pipe[last].is_head = begins(&c->in, "HEAD ");
    c->pipe[last].request = events->begin();
    c->in.state = HEADER;
    return true;
}

static bool take_status_line(struct http_connection *c)
{
    uint64_t status;

    if (c->protocol != HTTP_1 || !begins(&c->out, "HTTP/1.") || c->out.len < 12 ||
        !read_number(c->out.line + 9, 10, &status) || status < 100 || status > 999)
        return false;
    c->out.status = (unsigned)status;
    c->out.state = HEADER;
    return true;
}

static void take_header(struct http_reader *r)
{
    const char *value;

    if ((value = value_of(r, "content-length:")))
        r->has_length = read_number(value, 10, &r->left);
    else if ((value = value_of(r, "transfer-encoding:")))
        r->chunked = has_word(value, "chunked");
    else if ((value = value_of(r, "content-type:")))
        r->events = has_word(value, "text/event-stream");
}

static void end_message(struct http_connection *c, const struct http_events *events, bool is_answer)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;

    if (is_answer && r->status >= 200 && !r->answered)
        finish(c, events, true);
    begin_message(r);
}

/* The empty line behind the headers. Returns false when other bytes follow that are not HTTP. */
static bool take_end_of_head(struct http_connection *c, const struct http_events *events,
                             bool is_answer)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;
    bool is_empty = is_answer && (r->status < 200 || r->status == 204 || r->status == 304 ||
                                  (c->count && c->pipe[c->first].is_head));

    if (is_answer && r->status == 101)
        return false;
    if (is_answer && r->events && !is_empty) { /* it is no request, and may be open for hours */
        finish(c, events, false);
        r->answered = true;
    }
    if (!is_empty && r->chunked)
        r->state = CHUNK_SIZE;
    else if (!is_empty && r->has_length && r->left > 0)
        r->state = BODY;
    else if (!is_empty && is_answer && !r->has_length)
        r->state = UNTIL_CLOSE;
    else
        end_message(c, events, is_answer);
    return true;
}

static bool take_chunk_size(struct http_reader *r)
{
    if (!read_number(r->line, 16, &r->left))
        return false;
    r->state = r->left > 0 ? CHUNK : TRAILER;
    r->left += 2; /* the end of its line */
    return true;
}

/* A line is complete, without its end. Returns false when the bytes are not HTTP. */
static bool take_line(struct http_connection *c, const struct http_events *events, bool is_answer)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;
    int state = r->state;
    bool good = true;

    if (r->len > 0 && r->line[r->len - 1] == '\r')
        r->len--;
    r->line[r->len] = '\0';
    if (state == START_LINE && r->len > 0)
        good = is_answer ? take_status_line(c) : take_request_line(c, events);
    else if (state == HEADER && r->len > 0)
        take_header(r);
    else if (state == HEADER)
        good = take_end_of_head(c, events, is_answer);
    else if (state == CHUNK_SIZE)
        good = take_chunk_size(r);
    else if (state == TRAILER && r->len == 0)
        end_message(c, events, is_answer);
    r->len = 0;
    return good;
}

/* ---- HTTP/2: frames ---- */

/* Returns false when the bytes are not HTTP. */
static bool take_frame(struct http_connection *c, const struct http_events *events, bool is_answer)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;
    const unsigned char *head = (const unsigned char *)r->line;
    uint32_t id = (uint32_t)(head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 |
                  (uint32_t)head[7] << 8 | head[8];
    bool ends = head[4] & FLAG_END_STREAM;
    struct http_stream *stream, *free;

    r->len = 0;
    r->left = (uint64_t)head[0] << 16 | (uint64_t)head[1] << 8 | head[2];
    r->state = r->left > 0 ? PAYLOAD : FRAME;
    if (c->protocol == HTTP_UNKNOWN) { /* the server speaks first: its settings */
        c->settings |= head[3] == FRAME_SETTINGS && id == 0;
        return c->settings;
    }
    stream = is_answer && id ? stream_of(c, id) : NULL;
    if (is_answer && ends && (head[3] == FRAME_DATA || head[3] == FRAME_HEADERS))
        close_stream(c, events, id, true);
    else if (head[3] == FRAME_RST_STREAM || (stream && ++stream->frames > HTTP_FRAMES_MAX))
        close_stream(c, events, id, false);
    else if (!is_answer && head[3] == FRAME_HEADERS && id > c->last_stream) {
        c->last_stream = id; /* a further head of a stream that is open ends its request */
        free = stream_of(c, 0);
        if (free)
            *free = (struct http_stream){.id = id, .request = events->begin()};
    }
    return true;
}

/* ---- bytes ---- */

static bool reads_lines(const struct http_reader *r)
{
    return r->state == START_LINE || r->state == HEADER || r->state == CHUNK_SIZE ||
           r->state == TRAILER;
}

/* A reader has passed over all that it had to. */
static void passed(struct http_connection *c, const struct http_events *events, bool is_answer)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;

    if (r->state == BODY)
        end_message(c, events, is_answer);
    else
        r->state = r->state == CHUNK ? CHUNK_SIZE : FRAME;
}

/* Returns how many bytes were passed over: up to @len, or 0 where the next ones are to be read. */
static size_t pass(struct http_connection *c, const struct http_events *events, bool is_answer,
                   size_t len)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;

    if (r->state == UNTIL_CLOSE)
        return len;
    if (reads_lines(r) || r->state == FRAME)
        return 0;
    if (r->left > len) {
        r->left -= len;
        return len;
    }
    len = (size_t)r->left;
    r->left = 0;
    passed(c, events, is_answer);
    return len;
}

/* Reads the next bytes of a line, up to its end. Returns how many; the longest part is kept. */
static size_t read_line(struct http_reader *r, const char *data, size_t len, bool *ret_complete)
{
    const char *end = memchr(data, '\n', len);
    size_t n = end ? (size_t)(end - data) : len, room = sizeof(r->line) - 1 - r->len;

    memcpy(r->line + r->len, data, n < room ? n : room);
    r->len += (unsigned)(n < room ? n : room);
    *ret_complete = end != NULL;
    return end ? n + 1 : n;
}

static size_t read_frame(struct http_reader *r, const char *data, size_t len, bool *ret_complete)
{
    size_t lacks = HTTP_FRAME_LEN - r->len, n = len < lacks ? len : lacks;

    memcpy(r->line + r->len, data, n);
    r->len += (unsigned)n;
    *ret_complete = r->len == HTTP_FRAME_LEN;
    return n;
}

static void take(struct http_connection *c, const struct http_events *events, bool is_answer,
                 const char *data, size_t len)
{
    struct http_reader *r = is_answer ? &c->out : &c->in;

    while (len > 0 && c->protocol != HTTP_OTHER) {
        bool complete = false, good = true;
        size_t n = pass(c, events, is_answer, len);

        if (n == 0 && r->state == FRAME)
            n = read_frame(r, data, len, &complete);
        else if (n == 0)
            n = read_line(r, data, len, &complete);
        if (complete && r->state == FRAME)
            good = take_frame(c, events, is_answer);
        else if (complete)
            good = take_line(c, events, is_answer);
        if (!good)
            http_given_up(c, events);
        data += n;
        len -= n;
    }
}

/* The first bytes tell what is no HTTP, before they make a line: TLS begins with 0x16. */
static bool may_be_http(const struct http_connection *c, const char *data)
{
    return c->protocol != HTTP_UNKNOWN || c->in.len > 0 || (*data >= 'A' && *data <= 'Z') ||
           *data == '\r' || *data == '\n';
}

void http_received(struct http_connection *c, const struct http_events *events, const void *data,
                   size_t len)
{
    if (len > 0 && !may_be_http(c, data))
        c->protocol = HTTP_OTHER;
    take(c, events, false, data, len);
}

void http_sent(struct http_connection *c, const struct http_events *events, const void *data,
               size_t len)
{
    if (c->protocol == HTTP_UNKNOWN && c->out.state == START_LINE)
        c->out.state = FRAME; /* in HTTP/1.1 the client speaks first */
    take(c, events, true, data, len);
}

void http_sent_unseen(struct http_connection *c, const struct http_events *events, size_t len)
{
    while (len > 0 && c->protocol != HTTP_OTHER) {
        size_t n = pass(c, events, true, len);

        if (n == 0)
            http_given_up(c, events);
        len -= n;
    }
}

void http_closed(struct http_connection *c, const struct http_events *events)
{
    if (c->protocol == HTTP_1 && c->out.state == UNTIL_CLOSE && !c->out.answered)
        finish(c, events, true);
    http_given_up(c, events);
}
