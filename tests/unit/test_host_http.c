/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/http.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- the parser ---- */

/* Parses @text in one piece and requires the same from every prefix: incomplete, never complete. */
static int parse(const char *text, size_t len, bool eof, struct http_response *ret)
{
    int r = http_parse_response(text, len, eof, ret);

    if (r == 0 && !eof) {
        for (size_t n = 0; n < len; n++) {
            struct http_response part;

            assert_int_equal(http_parse_response(text, n, false, &part), -EAGAIN);
            assert_int_equal(http_parse_response(text, n, true, &part), -EBADMSG);
        }
    }
    return r;
}

static void assert_answer(const char *text, bool eof, int status, const char *body)
{
    struct http_response response;

    assert_int_equal(parse(text, strlen(text), eof, &response), 0);
    assert_int_equal(response.status, status);
    assert_int_equal(response.body_len, strlen(body));
    assert_string_equal(response.body, body);
    free(response.body);
}

#define OK "HTTP/1.1 200 OK\r\n"

static void answers_with_a_length_end_there(void **state)
{
    assert_answer(OK "Content-Length: 2\r\n\r\n{}", false, 200, "{}");
    assert_answer(OK "content-length:2 \r\nX: y\r\n\r\n{}", false, 200, "{}");
    assert_answer(OK "Content-Length: 0\r\n\r\n", false, 200, "");
    assert_answer("HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", false, 404, "x");
    assert_answer("HTTP/1.1 204 No Content\r\n\r\n", false, 204, "");
    assert_answer(OK "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", false, 200, "x");
}

static void chunks_are_joined(void **state)
{
    assert_answer(OK
                  "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
                  false, 200, "abc0123456789");
    assert_answer(OK "Transfer-Encoding: Chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", false, 200, "");
}

static void without_a_length_the_hangup_ends_it(void **state)
{
    struct http_response response;

    assert_answer("HTTP/1.0 200 OK\r\n\r\nabc", true, 200, "abc");
    assert_int_equal(parse(OK "\r\nabc", strlen(OK) + 5, false, &response), -EAGAIN);
}

static void hostile_answers_are_refused(void **state)
{
    static const char *const bad[] = {
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        OK "no colon\r\n\r\n",
        OK ": empty\r\n\r\n",
        OK "Content-Length: -1\r\n\r\n",
        OK "Content-Length: 1x\r\n\r\nx",
        OK "Content-Length:\r\n\r\n",
        OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        OK "Transfer-Encoding: gzip\r\n\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\nx\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\n\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\ntail",
        OK "Content-Length: 1\r\n\r\nxy",
        "HTTP/1.1 204 No Content\r\n\r\nx",
    };
    struct http_response response;

    for (size_t i = 0; i < LEN(bad); i++) {
        assert_int_equal(http_parse_response(bad[i], strlen(bad[i]), false, &response), -EBADMSG);
        assert_int_equal(http_parse_response(bad[i], strlen(bad[i]), true, &response), -EBADMSG);
    }
}

static void oversized_answers_are_refused_before_they_come(void **state)
{
    static const char *const big[] = {
        OK "Content-Length: 4194305\r\n\r\n",
        OK "Content-Length: 99999999999999999999999\r\n\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\n400001\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        OK "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n400000\r\n",
    };
    struct http_response response;
    char *head = malloc(HTTP_HEAD_MAX + 1);

    for (size_t i = 0; i < LEN(big); i++)
        assert_int_equal(http_parse_response(big[i], strlen(big[i]), false, &response), -EMSGSIZE);
    memset(head, 'x', HTTP_HEAD_MAX);
    memcpy(head, OK, strlen(OK));
    assert_int_equal(http_parse_response(head, HTTP_HEAD_MAX - 1, false, &response), -EAGAIN);
    assert_int_equal(http_parse_response(head, HTTP_HEAD_MAX, false, &response), -EMSGSIZE);
    free(head);
}

static void a_segment_is_escaped(void **state)
{
    char text[16];

    assert_int_equal(http_escape("a-Z_0.~", text, sizeof(text)), 0);
    assert_string_equal(text, "a-Z_0.~");
    assert_int_equal(http_escape("a/ ?\n", text, sizeof(text)), 0);
    assert_string_equal(text, "a%2F%20%3F%0A");
    assert_int_equal(http_escape("\xc3\xa4", text, sizeof(text)), 0);
    assert_string_equal(text, "%C3%A4");
    assert_int_equal(http_escape("//////", text, sizeof(text)), -ENAMETOOLONG);
    assert_int_equal(http_escape("", text, sizeof(text)), 0);
    assert_string_equal(text, "");
}

/* ---- the exchange, with a server that plays one answer ---- */

struct server {
    char dir[32], path[48];
    int fd;
    pthread_t thread;
    const char *answer;
    size_t len;
    size_t piece;   /* bytes per write */
    bool hang;      /* keeps the connection open, without a word more */
    int release[2]; /* closed at the end of the test: the server may go */
    char request[65536];
};

static void *serve(void *arg)
{
    struct server *server = arg;
    int fd = accept(server->fd, NULL, NULL);
    size_t len = 0;
    struct pollfd p = {.fd = server->release[0], .events = POLLIN};

    while (len < sizeof(server->request) - 1) {
        ssize_t n = read(fd, server->request + len, sizeof(server->request) - 1 - len);
        char *body, *length;

        if (n <= 0)
            break;
        len += (size_t)n;
        server->request[len] = '\0';
        body = strstr(server->request, "\r\n\r\n");
        length = strstr(server->request, "Content-Length: ");
        if (body && length && strlen(body + 4) == (size_t)atoi(length + 16))
            break;
        if (body && !length && strstr(server->request, " HTTP/1.0\r\n"))
            break;
    }
    for (size_t at = 0; at < server->len;) {
        size_t n = server->len - at < server->piece ? server->len - at : server->piece;

        if (send(fd, server->answer + at, n, MSG_NOSIGNAL) < 0)
            break;
        at += n;
    }
    if (server->hang)
        poll(&p, 1, 30000);
    close(fd);
    return NULL;
}

static struct server *start(const char *answer, size_t len, size_t piece, bool hang)
{
    struct server *server = calloc(1, sizeof(*server));
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    strcpy(server->dir, "/tmp/tide-http-XXXXXX");
    assert_non_null(mkdtemp(server->dir));
    snprintf(server->path, sizeof(server->path), "%s/s", server->dir);
    strcpy(address.sun_path, server->path);
    server->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(server->fd, 4), 0);
    assert_int_equal(pipe(server->release), 0);
    server->answer = answer;
    server->len = len;
    server->piece = piece;
    server->hang = hang;
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
    return server;
}

static void stop(struct server *server)
{
    close(server->release[1]);
    pthread_join(server->thread, NULL);
    close(server->release[0]);
    close(server->fd);
    unlink(server->path);
    rmdir(server->dir);
    free(server);
}

static void a_request_and_its_answer_go_through(void **state)
{
    static const char answer[] = "HTTP/1.1 409 Conflict\r\nContent-Length: 7\r\n\r\n{\"a\":1}";

    for (size_t piece = 1; piece <= sizeof(answer); piece += 7) {
        struct server *server = start(answer, strlen(answer), piece, true);
        struct error err = {0};
        char *body = NULL;
        int status = 0;

        assert_int_equal(http_request(server->path, "PATCH", "/v1/jobs/a%20b", "{\"threads\":2}",
                                      30000, &status, &body, &err),
                         0);
        assert_int_equal(status, 409);
        assert_string_equal(body, "{\"a\":1}");
        assert_ptr_equal(strstr(server->request, "PATCH /v1/jobs/a%20b HTTP/1.1\r\n"),
                         server->request);
        assert_non_null(strstr(server->request, "\r\n\r\n{\"threads\":2}"));
        free(body);
        stop(server);
    }
}

static int next_line(struct http_stream *s, const char **ret)
{
    int r;

    while ((r = http_stream_line(s, ret)) == -EAGAIN) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};

        assert_int_equal(poll(&p, 1, 30000), 1);
    }
    return r;
}

static void a_stream_is_read_line_by_line_until_it_ends(void **state)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nX: y\r\n\r\nid: 1.2\ndata: {}\r\n\n:\nhalf";
    static const char *const lines[] = {"id: 1.2", "data: {}", "", ":"};

    for (size_t piece = 1; piece <= sizeof(answer); piece += 5) {
        struct server *server = start(answer, strlen(answer), piece, false);
        struct http_stream stream;
        struct error err = {0};
        char *body = NULL;
        const char *line;
        int status = 0;

        assert_int_equal(http_stream_open(server->path, "/v1/events", "7.9\r\nContent-Length: 0",
                                          30000, &stream, &status, &body, &err),
                         -EINVAL);
        assert_int_equal(http_stream_open(server->path, "/v1/events", "7.9", 30000, &stream,
                                          &status, &body, &err),
                         0);
        assert_int_equal(status, 200);
        assert_null(body);
        for (size_t i = 0; i < LEN(lines); i++) {
            assert_int_equal(next_line(&stream, &line), 0);
            assert_string_equal(line, lines[i]);
        }
        assert_int_equal(next_line(&stream, &line), -ENODATA);
        http_stream_done(&stream);
        assert_non_null(strstr(server->request, "\r\nLast-Event-ID: 7.9\r\n"));
        stop(server);
    }
}

static void an_answer_that_is_no_stream_is_told_apart(void **state)
{
    static const char refusal[] = "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}";
    static const char whole[] = OK "Content-Length: 2\r\n\r\n{}";
    struct server *server = start(refusal, strlen(refusal), 9, false);
    struct http_stream stream = {.fd = 42};
    struct error err = {0};
    char *body = NULL;
    int status = 0;

    assert_int_equal(http_stream_open(server->path, "/", "", 30000, &stream, &status, &body, &err),
                     0);
    assert_int_equal(status, 503);
    assert_string_equal(body, "{}");
    free(body);
    assert_int_equal(stream.fd, -1);
    stop(server);
    stream.fd = 42;
    server = start(whole, strlen(whole), 9, false);
    assert_int_equal(http_stream_open(server->path, "/", "", 30000, &stream, &status, &body, &err),
                     -EBADMSG);
    assert_int_equal(stream.fd, 42);
    stop(server);
}

static void a_line_without_end_is_refused(void **state)
{
    size_t size = 4 * HTTP_LINE_MAX;
    char *answer = malloc(size), *body = NULL;
    struct server *server;
    struct http_stream stream;
    struct error err = {0};
    const char *line;
    int status = 0;

    memset(answer, 'x', size);
    memcpy(answer, OK "\r\n", strlen(OK "\r\n"));
    server = start(answer, size, size, false);
    assert_int_equal(http_stream_open(server->path, "/", "", 30000, &stream, &status, &body, &err),
                     0);
    assert_int_equal(next_line(&stream, &line), -EMSGSIZE);
    http_stream_done(&stream);
    stop(server);
    free(answer);
}

static void a_body_of_megabytes_arrives_whole(void **state)
{
    size_t size = HTTP_BODY_MAX, head;
    char *answer = malloc(size + 128), *body = NULL, *request = malloc(60001);
    struct server *server;
    int status = 0;

    head = (size_t)sprintf(answer, OK "Content-Length: %zu\r\n\r\n", size);
    for (size_t i = 0; i < size; i++)
        answer[head + i] = (char)('a' + i % 23);
    memset(request, 'x', 60000);
    request[60000] = '\0';
    server = start(answer, head + size, 100000, false);
    assert_int_equal(http_request(server->path, "GET", "/", request, 30000, &status, &body, NULL),
                     0);
    assert_int_equal(status, 200);
    assert_int_equal(strlen(body), size);
    assert_memory_equal(body, answer + head, size);
    free(body);
    stop(server);
    free(answer);
    free(request);
}

static void failures_of_the_peer_are_told_apart(void **state)
{
    static const struct {
        const char *answer;
        bool hang;
        unsigned timeout_ms;
        int code;
    } cases[] = {
        {"", true, 50, -ETIMEDOUT},
        {OK "Content-Length: 9\r\n\r\nab", true, 50, -ETIMEDOUT},
        {"", false, 30000, -EBADMSG},
        {OK "Content-Length: 9\r\n\r\nab", false, 30000, -EBADMSG},
        {OK "Content-Length: 99999999\r\n\r\nab", true, 30000, -EMSGSIZE},
        {"220 smtp\r\n", true, 30000, -EBADMSG},
    };

    for (size_t i = 0; i < LEN(cases); i++) {
        struct server *server =
            start(cases[i].answer, strlen(cases[i].answer), 4096, cases[i].hang);
        struct error err = {0};
        char *body = NULL;
        int status = -7;

        assert_int_equal(
            http_request(server->path, "GET", "/", NULL, cases[i].timeout_ms, &status, &body, &err),
            cases[i].code);
        assert_int_equal(err.code, cases[i].code);
        assert_non_null(strstr(err.text, server->path));
        assert_int_equal(status, -7);
        assert_null(body);
        stop(server);
    }
}

static int ask(const char *path, unsigned timeout_ms)
{
    struct error err = {0};
    char *body = NULL;
    int status, r = http_request(path, "GET", "/", NULL, timeout_ms, &status, &body, &err);

    free(body);
    assert_int_equal(err.code, r);
    return r;
}

static void a_missing_a_dead_and_a_full_socket_are_told_apart(void **state)
{
    char dir[] = "/tmp/tide-http-XXXXXX", path[64], longest[200];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), clients[4];

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/s", dir);
    assert_int_equal(ask(path, 1000), -ENOENT);
    strcpy(address.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(ask(path, 1000), -ECONNREFUSED);
    assert_int_equal(listen(fd, 0), 0);
    for (size_t i = 0; i < 4; i++) { /* the peer does not accept, so the queue fills up */
        clients[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(clients[i], (struct sockaddr *)&address, sizeof(address));
    }
    assert_int_equal(ask(path, 50), -ETIMEDOUT);
    for (size_t i = 0; i < 4; i++)
        close(clients[i]);
    close(fd);
    unlink(path);
    rmdir(dir);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(ask(longest, 1000), -ENAMETOOLONG);
}

static void nothing_can_be_smuggled_into_the_request_line(void **state)
{
    static const char *const bad[] = {"", "v1", "/a b", "/a\r\nX: y", "/a\tb", "/\x7f"};
    char *body = NULL;
    int status;

    for (size_t i = 0; i < LEN(bad); i++)
        assert_int_equal(http_request("/none", "GET", bad[i], NULL, 10, &status, &body, NULL),
                         -EINVAL);
    assert_int_equal(http_request("/none", "GET /x", "/", NULL, 10, &status, &body, NULL), -EINVAL);
    assert_int_equal(http_request("/none", "", "/", NULL, 10, &status, &body, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_with_a_length_end_there),
        cmocka_unit_test(chunks_are_joined),
        cmocka_unit_test(without_a_length_the_hangup_ends_it),
        cmocka_unit_test(hostile_answers_are_refused),
        cmocka_unit_test(oversized_answers_are_refused_before_they_come),
        cmocka_unit_test(a_segment_is_escaped),
        cmocka_unit_test(a_request_and_its_answer_go_through),
        cmocka_unit_test(a_stream_is_read_line_by_line_until_it_ends),
        cmocka_unit_test(an_answer_that_is_no_stream_is_told_apart),
        cmocka_unit_test(a_line_without_end_is_refused),
        cmocka_unit_test(a_body_of_megabytes_arrives_whole),
        cmocka_unit_test(failures_of_the_peer_are_told_apart),
        cmocka_unit_test(a_missing_a_dead_and_a_full_socket_are_told_apart),
        cmocka_unit_test(nothing_can_be_smuggled_into_the_request_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
