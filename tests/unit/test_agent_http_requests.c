/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on a connection, by the bytes that pass: HTTP/1.1, HTTP/2, and what is neither. */
#include "agent/sockets/http_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static unsigned begun, ended, dropped, piece;
static char order[256]; /* "b1 e1 …": what became of which request */

static void note(char what, uint64_t request)
{
    size_t len = strlen(order);

    snprintf(order + len, sizeof(order) - len, "%s%c%u", len ? " " : "", what, (unsigned)request);
}

static uint64_t begin(void)
{
    note('b', ++begun);
    return begun;
}

static void end(uint64_t request)
{
    ended++;
    note('e', request);
}

static void drop(uint64_t request)
{
    dropped++;
    note('d', request);
}

static const struct http_events events = {begin, end, drop};
static struct http_connection c;

static int set_up(void **state)
{
    memset(&c, 0, sizeof(c));
    begun = ended = dropped = 0;
    order[0] = '\0';
    piece = 1000;
    return 0;
}

static void give(bool sent, const void *data, size_t len)
{
    for (size_t at = 0; at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;

        (sent ? http_sent : http_received)(&c, &events, (const char *)data + at, n);
    }
}

static void client(const char *text)
{
    give(false, text, strlen(text));
}

static void server(const char *text)
{
    give(true, text, strlen(text));
}

/* Whatever the pieces are in which the bytes pass, the same becomes of the requests. */
static void in_all_pieces(void (*talk)(void), const char *expected)
{
    for (unsigned n = 1; n <= 40; n++) {
        set_up(NULL);
        piece = n;
        talk();
        assert_string_equal(order, expected);
    }
}

/* ---- HTTP/1.1 ---- */

static void talk_lengths(void)
{
    client("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    server("lo");
    client("POST /x HTTP/1.1\r\ncontent-length:  10\r\n\r\nGET / HTTP");
    server("HTTP/1.1 100 Continue\r\n\r\n");
    server("HTTP/1.1 204 No Content\r\n\r\n");
    client("\r\nHEAD / HTTP/1.0\r\n\r\n");
    server("HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n");
    client("GET / HTTP/1.1\n\n");
    server("HTTP/1.1 304 Not Modified\nContent-Length: 7\n\n");
}

static void a_message_ends_with_its_length(void **state)
{
    in_all_pieces(talk_lengths, "b1 e1 b2 e2 b3 e3 b4 e4");
    assert_int_equal(c.protocol, HTTP_1);
}

static void talk_chunks(void)
{
    client("POST /x HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
    client("4;name=value\r\nabcd\r\n0\r\nTrailer: GET\r\n\r\n");
    server("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    server("1A\r\n01234567890123456789012345\r\n");
    server("0\r\n\r\n");
    client("GET / HTTP/1.1\r\n\r\n");
    server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

static void chunks_end_with_the_empty_one(void **state)
{
    in_all_pieces(talk_chunks, "b1 e1 b2 e2");
}

static void talk_at_once(void)
{
    client("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n");
    server("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 404 No\r\nContent-Length: "
           "1\r\n\r\n2");
}

static void answers_belong_to_the_oldest_request(void **state)
{
    in_all_pieces(talk_at_once, "b1 b2 b3 e1 e2");
    http_closed(&c, &events);
    assert_string_equal(order, "b1 b2 b3 e1 e2 d3");
}

static void more_than_are_kept_are_given_up(void **state)
{
    for (unsigned i = 0; i <= HTTP_PIPE_MAX; i++)
        client("GET /1 HTTP/1.1\r\n\r\n");
    assert_int_equal(c.protocol, HTTP_OTHER);
    assert_int_equal(begun, HTTP_PIPE_MAX);
    assert_int_equal(dropped, HTTP_PIPE_MAX);
}

static void an_answer_without_a_length_ends_with_the_connection(void **state)
{
    client("GET / HTTP/1.0\r\n\r\n");
    server("HTTP/1.0 200 OK\r\n\r\nall that comes\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
    assert_string_equal(order, "b1");
    http_closed(&c, &events);
    assert_string_equal(order, "b1 e1");
}

static void streams_of_events_and_lost_requests_are_dropped(void **state)
{
    client("GET / HTTP/1.1\r\n\r\n");
    client("GET / HTTP/1.1\r\n\r\n");
    server(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_string_equal(order, "b1 b2 d1"); /* before its end, which may never come */
    server("8\r\ndata: 1\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_string_equal(order, "b1 b2 d1 e2");
    set_up(NULL);
    client("GET / HTTP/1.1\r\n\r\n");
    server("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\ndata: 1\n\n");
    assert_string_equal(order, "b1 d1");
    http_closed(&c, &events);
    assert_string_equal(order, "b1 d1");
    set_up(NULL);
    client("GET / HTTP/1.1\r\n\r\n");
    server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12");
    http_closed(&c, &events);
    assert_string_equal(order, "b1 d1");
}

static void a_body_may_be_sent_unseen(void **state)
{
    client("GET / HTTP/1.1\r\n\r\n");
    server("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    http_sent_unseen(&c, &events, 99999);
    assert_string_equal(order, "b1");
    http_sent_unseen(&c, &events, 1);
    assert_string_equal(order, "b1 e1");
    client("GET / HTTP/1.1\r\n\r\n");
    http_sent_unseen(&c, &events, 1); /* where a line is expected */
    assert_string_equal(order, "b1 e1 b2 d2");
    assert_int_equal(c.protocol, HTTP_OTHER);
}

static void long_lines_do_not_matter(void **state)
{
    char cookie[5000];

    memset(cookie, 'x', sizeof(cookie) - 1);
    cookie[sizeof(cookie) - 1] = '\0';
    for (piece = 1; piece < 100; piece += 7) {
        order[0] = '\0';
        begun = 0;
        client("GET /");
        client(cookie);
        client(" HTTP/1.1\r\nCookie: ");
        client(cookie);
        client("\r\nContent-Length: 2\r\n\r\n12");
        server("HTTP/1.1 200 ");
        server(cookie);
        server("\r\nX: ");
        server(cookie);
        server("\r\nContent-Length: 2\r\n\r\n12");
        assert_string_equal(order, "b1 e1");
    }
}

/* ---- HTTP/2 ---- */

static void frame(bool sent, unsigned type, unsigned flags, uint32_t id, unsigned len)
{
    uint8_t bytes[HTTP_FRAME_LEN + 300] = {
        0, (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type, (uint8_t)flags, 0,
        0, (uint8_t)(id >> 8),  (uint8_t)id};

    assert_true(len <= 300);
    memset(bytes + HTTP_FRAME_LEN, 1, len); /* would be a frame's head, too */
    give(sent, bytes, HTTP_FRAME_LEN + len);
}

enum { DATA, HEADERS, RST_STREAM = 3, SETTINGS, PING = 6, WINDOW = 8 };

static void talk_streams(void)
{
    client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(false, SETTINGS, 0, 0, 18);
    frame(true, SETTINGS, 0, 0, 6);
    frame(true, SETTINGS, 1, 0, 0); /* its flag 1 acknowledges */
    frame(false, HEADERS, 4, 1, 50);
    frame(false, DATA, 1, 1, 200); /* the end of the client's side is none of the answer */
    frame(false, HEADERS, 5, 3, 50);
    frame(true, HEADERS, 4, 3, 20);
    frame(true, DATA, 0, 3, 300);
    frame(true, HEADERS, 5, 3, 20); /* trailers, as gRPC ends its answers */
    frame(false, WINDOW, 0, 0, 4);
    frame(false, HEADERS, 5, 1, 10); /* trailers of the request */
    frame(false, HEADERS, 4, 5, 0);
    frame(false, RST_STREAM, 0, 5, 4);
    frame(true, HEADERS, 4, 1, 20);
    frame(true, DATA, 1, 1, 0);
    frame(true, PING, 1, 0, 8);
    frame(true, DATA, 1, 1, 0); /* of a stream that has ended */
}

static void a_stream_is_a_request(void **state)
{
    in_all_pieces(talk_streams, "b1 b2 e2 b3 d3 e1");
    assert_int_equal(c.protocol, HTTP_2);
}

static void talk_settings_first(void)
{
    frame(true, SETTINGS, 0, 0, 24);
    frame(true, WINDOW, 0, 0, 4);
    client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(false, HEADERS, 5, 1, 50);
    frame(true, HEADERS, 5, 1, 20);
}

static void an_answer_of_many_frames_is_a_stream(void **state)
{
    client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(false, HEADERS, 5, 1, 1);
    frame(false, HEADERS, 5, 3, 1);
    for (unsigned i = 0; i <= HTTP_FRAMES_MAX; i++)
        frame(true, DATA, 0, 1, 10);
    frame(true, DATA, 1, 1, 10);
    for (unsigned i = 1; i < HTTP_FRAMES_MAX; i++)
        frame(true, DATA, 0, 3, 10);
    frame(true, DATA, 1, 3, 10);
    assert_string_equal(order, "b1 b2 d1 e2");
}

/* gRPC's do. */
static void a_server_may_send_its_settings_before_it_has_heard_anything(void **state)
{
    in_all_pieces(talk_settings_first, "b1 e1");
    set_up(NULL);
    frame(true, SETTINGS, 0, 0, 6);
    client("GET / HTTP/1.1\r\n\r\n");
    assert_int_equal(c.protocol, HTTP_OTHER);
}

static void streams_beyond_those_that_are_kept_are_not_counted(void **state)
{
    client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    for (uint32_t i = 0; i < HTTP_STREAMS_MAX + 10; i++)
        frame(false, HEADERS, 5, 2 * i + 1, 1);
    assert_int_equal(begun, HTTP_STREAMS_MAX);
    for (uint32_t i = 0; i < HTTP_STREAMS_MAX + 10; i++)
        frame(true, HEADERS, 5, 2 * i + 1, 1);
    assert_int_equal(ended, HTTP_STREAMS_MAX);
    frame(false, HEADERS, 5, 999, 1);
    assert_int_equal(begun, HTTP_STREAMS_MAX + 1);
    http_closed(&c, &events);
    assert_int_equal(dropped, 1);
}

/* ---- neither ---- */

static void what_is_no_http_is_left_alone(void **state)
{
    static const char *const first[] = {"\x16\x03\x01 TLS",  "*1\r\n$4\r\nPING\r\n",
                                        "hello\n",           "GETTY\n",
                                        "GE / HTTP/1.1\r\n", "SSH-2.0-x\r\n"};

    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        set_up(NULL);
        client(first[i]);
        client("GET / HTTP/1.1\r\n\r\n");
        server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_int_equal(c.protocol, HTTP_OTHER);
        assert_string_equal(order, "");
    }
    set_up(NULL);
    server("220 mail\r\n"); /* the server speaks first */
    client("GET / HTTP/1.1\r\n\r\n");
    assert_string_equal(order, "");
}

static void a_connection_that_turns_into_another_protocol_is_left_alone(void **state)
{
    client("GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n");
    server("HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05hello");
    client("GET / HTTP/1.1\r\n\r\n");
    assert_string_equal(order, "b1 d1");
    set_up(NULL);
    client("GET / HTTP/1.1\r\n\r\n");
    server("anything\r\n");
    assert_string_equal(order, "b1 d1");
    set_up(NULL);
    client("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    assert_string_equal(order, "b1 d1");
    assert_int_equal(c.protocol, HTTP_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_message_ends_with_its_length, set_up),
        cmocka_unit_test_setup(chunks_end_with_the_empty_one, set_up),
        cmocka_unit_test_setup(answers_belong_to_the_oldest_request, set_up),
        cmocka_unit_test_setup(more_than_are_kept_are_given_up, set_up),
        cmocka_unit_test_setup(an_answer_without_a_length_ends_with_the_connection, set_up),
        cmocka_unit_test_setup(streams_of_events_and_lost_requests_are_dropped, set_up),
        cmocka_unit_test_setup(a_body_may_be_sent_unseen, set_up),
        cmocka_unit_test_setup(long_lines_do_not_matter, set_up),
        cmocka_unit_test_setup(a_stream_is_a_request, set_up),
        cmocka_unit_test_setup(an_answer_of_many_frames_is_a_stream, set_up),
        cmocka_unit_test_setup(a_server_may_send_its_settings_before_it_has_heard_anything, set_up),
        cmocka_unit_test_setup(streams_beyond_those_that_are_kept_are_not_counted, set_up),
        cmocka_unit_test_setup(what_is_no_http_is_left_alone, set_up),
        cmocka_unit_test_setup(a_connection_that_turns_into_another_protocol_is_left_alone, set_up),
    };

    return cmocka_run_group_tests_name("requests of HTTP", tests, NULL, NULL);
}
