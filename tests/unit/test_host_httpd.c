/* SPDX-License-Identifier: Apache-2.0 */
/* src/host/net/httpd.c with clients that send slowly, or nothing: real sockets, real time. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "host/net/httpd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GUARD_NS UINT64_C(30000000000)
#define FIRST_MS 1000
#define MOST     32

static sd_event *event;
static struct httpd *server;

static sd_event_source *urgent;   /* what each request asks for, before the next one */
static unsigned waiting, longest; /* requests since it last had its turn; the most of them */

static int on_urgent(sd_event_source *s, void *arg)
{
    waiting = 0;
    return 0;
}

static void answer(void *arg, struct httpd_request *r)
{
    const char *token = httpd_header(r, "Authorization");
    bool known = token && strcmp(token, "Bearer known") == 0;

    if (strcmp(r->path, "/busy") == 0) {
        known = true;
        for (uint64_t end = clock_now_ns() + HTTPD_TURN_NS * 3 / 2; clock_now_ns() < end;)
            ;
    }
    if (strcmp(r->path, "/slow") == 0) {
        sd_event_source_set_enabled(urgent, SD_EVENT_ONESHOT);
        longest = ++waiting > longest ? waiting : longest;
        for (uint64_t end = clock_now_ns() + 2 * HTTPD_TURN_NS; clock_now_ns() < end;)
            ;
    }
    httpd_answer(r, known ? 200 : 401, "text/plain", strdup(known ? "ok" : "who?"), false);
}

static int set_up(void **state)
{
    struct httpd_options options = {.address = "127.0.0.1:0",
                                    .handler = answer,
                                    .connections_max = MOST,
                                    .per_address_max = 4 * MOST,
                                    .first_ms = FIRST_MS,
                                    .idle_s = 30,
                                    .body_max = 100};
    struct error err = {0};

    if (sd_event_new(&event) < 0 || httpd_new(event, &options, &server, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int tear_down(void **state)
{
    server = httpd_free(server);
    event = sd_event_unref(event);
    return 0;
}

/* From 127.0.0.@host: the server counts connections of an address, too. */
static int dial_from(unsigned host)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)httpd_port(server))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void turn(uint64_t ms)
{
    uint64_t until = clock_now_ns() + ms * UINT64_C(1000000);

    while (clock_now_ns() < until)
        sd_event_run(event, 10000);
}

static int dial(void)
{
    return dial_from(1);
}

/* Whether the server has hung up. */
static bool is_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* Its status; 0: the server hung up. */
static int ask(int fd, const char *bearer)
{
    uint64_t until = clock_now_ns() + GUARD_NS;
    char text[512];
    ssize_t n;
    int len = snprintf(text, sizeof(text),
                       "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", bearer);

    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        return 0;
    while (clock_now_ns() < until) {
        sd_event_run(event, 10000);
        n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return 0;
        if (n > 0) {
            text[n] = '\0';
            return atoi(text + strlen("HTTP/1.1 "));
        }
    }
    fail_msg("no answer in 30 s");
    return 0;
}

/* A byte every 50 ms is never silent, and never done. */
static void a_head_that_comes_by_the_byte_has_an_end(void **state)
{
    _cleanup_fd_ int fd = dial();
    uint64_t begun = clock_now_ns(), took;
    const char *head = "GET / HTTP/1.1\r\nX: ";

    for (size_t i = 0; clock_now_ns() < begun + GUARD_NS && !is_gone(fd); i++) {
        send(fd, i < strlen(head) ? &head[i] : "x", 1, MSG_NOSIGNAL);
        turn(50);
    }
    took = (clock_now_ns() - begun) / 1000000;
    assert_true(is_gone(fd));
    assert_true(took >= FIRST_MS); /* not before its time */
}

static void a_refusal_does_not_make_a_connection_trusted(void **state)
{
    _cleanup_fd_ int fd = dial();
    uint64_t until = clock_now_ns() + GUARD_NS;

    assert_int_equal(ask(fd, "unknown"), 401);
    while (clock_now_ns() < until && !is_gone(fd))
        turn(50);
    assert_true(is_gone(fd));
}

static void a_trusted_connection_may_pause(void **state)
{
    _cleanup_fd_ int fd = dial();

    assert_int_equal(ask(fd, "known"), 200);
    turn(3 * FIRST_MS);
    assert_false(is_gone(fd));
    assert_int_equal(ask(fd, "known"), 200);
}

/* Four times as many as there may be, all of them silent: the trusted one stays, the next is heard.
 */
static void strangers_do_not_keep_a_chief_out(void **state)
{
    _cleanup_fd_ int chief = dial();
    _cleanup_fd_ int late = -1;
    int strangers[4 * MOST];
    unsigned gone = 0;

    assert_int_equal(ask(chief, "known"), 200);
    for (unsigned i = 0; i < 4 * MOST; i++) {
        strangers[i] = dial_from(2 + i);
        turn(5);
    }
    late = dial();
    assert_int_equal(ask(late, "known"), 200);
    assert_int_equal(ask(chief, "known"), 200);
    for (unsigned i = 0; i < 4 * MOST; i++)
        gone += is_gone(strangers[i]);
    assert_true(gone >= 3 * MOST);
    for (unsigned i = 0; i < 4 * MOST; i++)
        close(strangers[i]);
}

/* All arrive in one turn of the loop. */
static void slow_requests_let_others_in_between(void **state)
{
    static const char text[] = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
    int fds[8];
    unsigned answered = 0;

    assert_true(sd_event_add_defer(event, &urgent, on_urgent, NULL) >= 0);
    assert_true(sd_event_source_set_priority(urgent, -1) >= 0);
    assert_true(sd_event_source_set_enabled(urgent, SD_EVENT_OFF) >= 0);
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = dial_from(2 + i);
        assert_int_equal(send(fds[i], text, strlen(text), 0), strlen(text));
    }
    turn(200);
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++) {
        char byte;

        answered += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 1;
        close(fds[i]);
    }
    urgent = sd_event_source_unref(urgent);
    assert_int_equal(answered, ARRAY_LEN(fds));
    assert_int_equal(longest, 1);
}

/* Twenty ask again with each answer: another one is heard all the same. */
static void requests_that_wait_let_a_new_connection_in(void **state)
{
    static const char text[] = "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n";
    uint64_t until = clock_now_ns() + 3 * NS_PER_S;
    _cleanup_fd_ int late = -1;
    int fds[20];
    bool heard = false;
    char bytes[512];

    for (unsigned i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = dial_from(2 + i);
        assert_int_equal(send(fds[i], text, strlen(text), 0), strlen(text));
    }
    for (unsigned n = 0; n < ARRAY_LEN(fds);) /* all are in */
        for (unsigned i = 0; i < ARRAY_LEN(fds); i++) {
            sd_event_run(event, 0);
            if (recv(fds[i], bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
                send(fds[i], text, strlen(text), MSG_NOSIGNAL);
                n++;
            }
        }
    late = dial_from(1);
    assert_int_equal(send(late, text, strlen(text), 0), strlen(text));
    while (!heard && clock_now_ns() < until) {
        sd_event_run(event, 10000);
        for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
            if (recv(fds[i], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
                send(fds[i], text, strlen(text), MSG_NOSIGNAL);
        heard = recv(late, bytes, sizeof(bytes), MSG_DONTWAIT) > 0;
    }
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    assert_true(heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_head_that_comes_by_the_byte_has_an_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_does_not_make_a_connection_trusted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_trusted_connection_may_pause, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slow_requests_let_others_in_between, set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_that_wait_let_a_new_connection_in, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(strangers_do_not_keep_a_chief_out, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
