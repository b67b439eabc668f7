/* SPDX-License-Identifier: Apache-2.0 */
/* The control port's requests: valid ones, invalid ones, and no decision before enough bytes. */
#include "tfnode/request.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The verdict on @text; every shorter piece of a good one is incomplete. */
static int parse(const char *text, struct request *ret)
{
    int r = request_parse(text, strlen(text), ret);

    if (r == 0) {
        size_t whole = (size_t)(ret->body - text) + ret->body_len;

        for (size_t n = 0; n < whole; n++) {
            struct request part;

            assert_int_equal(request_parse(text, n, &part), -EAGAIN);
        }
    }
    return r;
}

static void assert_bad(const char *text, int expected)
{
    struct request request;

    assert_int_equal(parse(text, &request), expected);
}

static void probes_and_orders_are_understood(void **state)
{
    struct request r;

    assert_int_equal(parse("GET /healthz HTTP/1.1\r\nHost: 10.0.0.7:2223\r\n"
                           "User-Agent: kube-probe/1.34\r\nAccept: */*\r\n"
                           "Connection: close\r\n\r\n",
                           &r),
                     0);
    assert_int_equal(r.method, REQUEST_GET);
    assert_string_equal(r.path, "/healthz");
    assert_int_equal(r.body_len, 0);
    assert_false(r.http_1_0);
    assert_int_equal(parse("POST /v1/threads?x=1 HTTP/1.0\r\ncontent-length:\t13 \r\n"
                           "content-type: application/JSON; charset=utf-8\r\n\r\n"
                           "{\"threads\":2}and more",
                           &r),
                     0);
    assert_int_equal(r.method, REQUEST_POST);
    assert_string_equal(r.path, "/v1/threads");
    assert_int_equal(r.body_len, 13);
    assert_memory_equal(r.body, "{\"threads\":2}", 13);
    assert_true(r.http_1_0);
    assert_int_equal(parse("DELETE / HTTP/1.1\r\n\r\n", &r), 0);
    assert_int_equal(r.method, REQUEST_OTHER);
}

static void what_is_no_request_is_refused(void **state)
{
    assert_bad("\r\n", -EBADMSG);
    assert_bad("GET\r\n\r\n", -EBADMSG);
    assert_bad("GET /\r\n\r\n", -EBADMSG);
    assert_bad(" / HTTP/1.1\r\n\r\n", -EBADMSG);
    assert_bad("GET  HTTP/1.1\r\n\r\n", -EBADMSG);
    assert_bad("GET x HTTP/1.1\r\n\r\n", -EBADMSG);
    assert_bad("GET /\x01 HTTP/1.1\r\n\r\n", -EBADMSG);
    assert_bad("GET / HTTP/2.0\r\n\r\n", -EBADMSG);
    assert_bad("GET / HTTP/1.1x\r\n\r\n", -EBADMSG);
    assert_bad("GET / HTTP/1.1\n\n", -EBADMSG);
    assert_bad("GET / HTTP/1.1\r\nno colon\r\n\r\n", -EBADMSG);
    assert_bad("GET / HTTP/1.1\r\n: x\r\n\r\n", -EBADMSG);
    assert_bad("\x16\x03\x01\x02\n", -EBADMSG); /* TLS */
    assert_bad("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", -EBADMSG);
}

static void length_that_is_in_doubt_is_refused(void **state)
{
    assert_bad("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", -EBADMSG);
    assert_bad("POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", -EBADMSG);
    assert_bad("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", -EBADMSG);
    assert_bad("POST / HTTP/1.1\r\nContent-Length: 1 1\r\n\r\n", -EBADMSG);
    assert_bad("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", -ENOTSUP);
}

/* A browser sends a page's POST unasked only in a form's types, and always with an Origin. */
static void orders_of_web_pages_are_refused(void **state)
{
    assert_bad("POST /v1/release HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", -EMEDIUMTYPE);
    assert_bad("POST /v1/release HTTP/1.1\r\nContent-Type: text/plain\r\n\r\n", -EMEDIUMTYPE);
    assert_bad("POST / HTTP/1.1\r\nContent-Type: application/jsonx\r\n\r\n", -EMEDIUMTYPE);
    assert_bad("POST / HTTP/1.1\r\nContent-Type: application/json\r\n"
               "Content-Type: text/plain\r\n\r\n",
               -EMEDIUMTYPE);
    assert_bad("POST / HTTP/1.1\r\nContent-Type: application/json\r\nOrigin: null\r\n\r\n", -EPERM);
    assert_bad("GET /v1/watch HTTP/1.1\r\nOrigin: http://127.0.0.1:2223\r\n\r\n", -EPERM);
}

/* A page whose name is made to mean this machine has the same origin as the port. */
static void host_must_be_an_address(void **state)
{
    static const char *const good[] = {"10.0.0.7", "10.0.0.7:2223", "[fd00::7]:2223",
                                       "[::1]",    "localhost",     "LOCALHOST:1"};
    static const char *const bad[] = {"evil.example",
                                      "evil.example:2223",
                                      "",
                                      ":2223",
                                      "10.0.0",
                                      "10.0.0.7.evil.example",
                                      "10.0.0.7:",
                                      "10.0.0.7:2223:1",
                                      "10.0.0.7:99999999",
                                      "fd00::7",
                                      "[fd00::7",
                                      "[fd00::7]x",
                                      "[10.0.0.7]",
                                      "localhost.evil.example",
                                      "10.0.0.7, evil"};
    char text[128];
    struct request request;

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", good[i]);
        assert_int_equal(parse(text, &request), 0);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", bad[i]);
        assert_bad(text, -EPERM);
    }
    assert_bad("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", -EPERM);
    assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n", &request), 0); /* no browser leaves it out */
}

static void large_requests_are_refused_before_they_are_read(void **state)
{
    char text[REQUEST_MAX + 2];
    struct request request;

    assert_bad("POST / HTTP/1.1\r\nContent-Length: 257\r\n\r\n", -EMSGSIZE);
    assert_bad("POST / HTTP/1.1\r\nContent-Length: 18446744073709551617\r\n\r\n", -EMSGSIZE);
    memset(text, 'a', sizeof(text));
    assert_int_equal(request_parse(text, REQUEST_MAX - 1, &request), -EAGAIN);
    assert_int_equal(request_parse(text, REQUEST_MAX, &request), -EMSGSIZE);
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    memcpy(text + REQUEST_MAX - 4, "\r\n\r\n", 4); /* just fits */
    assert_int_equal(request_parse(text, REQUEST_MAX, &request), 0);
    memcpy(text + REQUEST_MAX - 4, "a\r\n\r\n", 5);
    assert_int_equal(request_parse(text, REQUEST_MAX + 1, &request), -EMSGSIZE);
}

static void long_path_is_none_of_ours(void **state)
{
    char text[512];
    struct request request;

    snprintf(text, sizeof(text), "GET /v1/watch%0300d HTTP/1.1\r\n\r\n", 0);
    assert_int_equal(parse(text, &request), 0);
    assert_int_equal(strlen(request.path), REQUEST_PATH_MAX - 1);
}

static void assert_threads(const char *body, int expected, uint32_t threads)
{
    uint32_t found = 12345;

    assert_int_equal(request_threads(body, strlen(body), &found), expected);
    assert_int_equal(found, expected == 0 ? threads : 12345);
}

static void number_of_threads_is_read(void **state)
{
    assert_threads("{\"threads\":2}", 0, 2);
    assert_threads(" { \"why\": [1], \"threads\" : 4096 } ", 0, 4096);
    assert_threads("{\"threads\":0}", 0, 0);
    assert_threads("{\"threads\":4097}", -ERANGE, 0);
    assert_threads("{\"threads\":99999999999999999999}", -ERANGE, 0);
    assert_threads("{\"threads\":-1}", -EBADMSG, 0);
    assert_threads("{\"threads\":1.5}", -EBADMSG, 0);
    assert_threads("{\"threads\":\"2\"}", -EBADMSG, 0);
    assert_threads("{\"threads\":2", -EBADMSG, 0);
    assert_threads("{\"threads\":2,\"threads\":3}", -EBADMSG, 0);
    assert_threads("[2]", -EBADMSG, 0);
    assert_threads("", -EBADMSG, 0);
}

static void assert_address(const char *body, int expected, const char *host, uint32_t port)
{
    char found[REQUEST_HOST_MAX] = "untouched";
    uint32_t found_port = 12345;

    assert_int_equal(request_address(body, strlen(body), found, &found_port), expected);
    assert_string_equal(found, expected == 0 ? host : "untouched");
    assert_int_equal(found_port, expected == 0 ? port : 12345);
}

static void address_is_read(void **state)
{
    assert_address("{\"host\":\"10.0.0.7\",\"port\":2222}", 0, "10.0.0.7", 2222);
    assert_address("{\"port\":1,\"host\":\"fd00::7\"}", 0, "fd00::7", 1);
    assert_address("{\"host\":\"\",\"port\":0}", 0, "", 0);
    assert_address("{\"host\":\"10.0.0.7\"}", -EBADMSG, NULL, 0);
    assert_address("{\"port\":2222}", -EBADMSG, NULL, 0);
    assert_address("{\"host\":7,\"port\":2222}", -EBADMSG, NULL, 0);
    assert_address("{\"host\":\"10.0.0.7\",\"port\":65536}", -EBADMSG, NULL, 0);
    assert_address("{\"host\":\"0123456789012345678901234567890123456789012345\",\"port\":1}",
                   -EBADMSG, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probes_and_orders_are_understood),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(length_that_is_in_doubt_is_refused),
        cmocka_unit_test(orders_of_web_pages_are_refused),
        cmocka_unit_test(host_must_be_an_address),
        cmocka_unit_test(large_requests_are_refused_before_they_are_read),
        cmocka_unit_test(long_path_is_none_of_ours),
        cmocka_unit_test(number_of_threads_is_read),
        cmocka_unit_test(address_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
