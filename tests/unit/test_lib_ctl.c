/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtide's controller side against a daemon that misbehaves on purpose: it is silent, hangs up,
 * sends junk, answers late or too much. tests/component/test_lib.py has the real daemon.
 */
#include "tide/tide.h"

#include "base/cleanup.h"
#include "proto/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum behaviour {
    ANSWER,     /* status, from, to of the test's choice */
    SILENT,     /* reads, and sends no answer */
    LATE,       /* answer the request before this one first */
    HANG_UP,    /* after the request */
    JUNK,       /* a packet that is no message */
    OVERSIZED,  /* longer than any message */
    OTHER_TYPE, /* a message that belongs to agents */
    VERSION_2,
    ENDLESS, /* more rows than a daemon can have */
    TWO_ROWS,
    QUIET_FAILS, /* asynchronous requests fail */
};

static struct {
    char dir[64];
    char path[80];
    int listener;
    int wake[2];
    pthread_t thread;
    atomic_int behaviour;
    atomic_int accepted;
    atomic_int status;
    struct proto_control last; /* read by the test after the call that sent it */
} peer;

static void send_message(int fd, const union proto_message *m)
{
    (void)!send(fd, m->bytes, m->h.size, MSG_NOSIGNAL);
}

static void send_result(int fd, uint32_t cookie, int status)
{
    union proto_message m;

    proto_init(&m, PROTO_RESULT, cookie);
    m.result.status = status;
    m.result.from = 8;
    m.result.to = 3;
    m.result.oversubscribed = 1;
    m.result.latency_ns = 42000;
    strcpy(m.result.text, "as the test ordered");
    send_message(fd, &m);
}

static void send_rows(int fd, uint32_t cookie, unsigned count)
{
    union proto_message m;

    for (unsigned i = 0; i < count; i++) {
        proto_init(&m, PROTO_JOB, cookie);
        m.job.pid = 100 + i;
        m.job.max = 8;
        m.job.rate_milli = 2500;
        memset(m.job.name, 'n', sizeof(m.job.name)); /* unterminated: proto_check must help */
        strcpy(m.job.id, i ? "j2" : "j1");
        strcpy(m.job.cores, "0-1");
        send_message(fd, &m);
    }
    send_result(fd, cookie, 0);
}

/* Returns false when the connection is to be closed. */
static bool respond(int fd, const union proto_message *m)
{
    static const unsigned char junk[2 * PROTO_MESSAGE_MAX] = "junk";
    union proto_message other;

    peer.last = m->control;
    switch ((enum behaviour)atomic_load(&peer.behaviour)) {
    case LATE:
        send_result(fd, m->h.cookie - 1, -EIO);
        send_result(fd, m->h.cookie, 0);
        break;
    case ANSWER:
        if (!(m->control.flags & PROTO_CONTROL_QUIET))
            send_result(fd, m->h.cookie, atomic_load(&peer.status));
        break;
    case HANG_UP:
        return false;
    case JUNK:
        (void)!send(fd, junk, 40, MSG_NOSIGNAL);
        break;
    case OVERSIZED:
        (void)!send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
        break;
    case OTHER_TYPE:
        proto_init(&other, PROTO_LEASE, m->h.cookie);
        send_message(fd, &other);
        break;
    case VERSION_2:
        proto_init(&other, PROTO_RESULT, m->h.cookie);
        other.h.version = 2;
        send_message(fd, &other);
        break;
    case ENDLESS:
        send_rows(fd, m->h.cookie, PROTO_JOBS_MAX + 1);
        break;
    case TWO_ROWS:
        send_rows(fd, m->h.cookie, 2);
        break;
    case QUIET_FAILS:
        send_result(fd, m->h.cookie, -ESRCH);
        break;
    case SILENT:
        break;
    }
    return true;
}

static void *peer_run(void *arg)
{
    struct pollfd p[] = {
        {peer.listener, POLLIN, 0}, {peer.wake[0], POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
    union proto_message m;

    while (poll(p, ARRAY_LEN(p), -1) > 0 && !p[1].revents) {
        if (p[0].revents & POLLIN) {
            struct pollfd *free_slot = p[2].fd < 0 ? &p[2] : &p[3];

            close_fd(free_slot->fd);
            free_slot->fd = accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC);
            atomic_fetch_add(&peer.accepted, 1);
        }
        for (int i = 2; i < 4; i++) {
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            if (recv(p[i].fd, m.bytes, sizeof(m), MSG_DONTWAIT) <= 0 || !respond(p[i].fd, &m))
                p[i].fd = close_fd(p[i].fd);
        }
    }
    close_fd(p[2].fd);
    close_fd(p[3].fd);
    return NULL;
}

static void peer_start(enum behaviour behaviour)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    strcpy(address.sun_path, peer.path);
    atomic_store(&peer.behaviour, behaviour);
    atomic_store(&peer.status, 0);
    atomic_store(&peer.accepted, 0);
    unlink(peer.path); /* of one that died */
    peer.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(peer.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(peer.listener, 4), 0);
    assert_int_equal(pipe2(peer.wake, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&peer.thread, NULL, peer_run, NULL), 0);
}

/* As a SIGKILL does it: every descriptor closes, the socket's file stays. */
static void peer_die(void)
{
    close_fd(peer.wake[1]);
    pthread_join(peer.thread, NULL);
    close_fd(peer.wake[0]);
    close_fd(peer.listener);
}

static tide_ctl *start(enum behaviour behaviour, uint32_t timeout_ms)
{
    struct tide_ctl_options options = {
        .size = sizeof(options), .path = peer.dir, .timeout_ms = timeout_ms};
    tide_ctl *ctl = NULL;

    peer_start(behaviour);
    assert_int_equal(tide_ctl_open(&options, &ctl), 0);
    assert_true(tide_ctl_fd(ctl) >= 0);
    return ctl;
}

static void stop(tide_ctl *ctl)
{
    assert_null(tide_ctl_close(ctl));
    peer_die();
    unlink(peer.path);
}

static void a_synchronous_set_carries_everything_there_and_back(void **fixture)
{
    tide_ctl *ctl = start(ANSWER, 0);
    struct tide_result result = {.size = sizeof(result)};

    assert_int_equal(tide_ctl_set(ctl, "mlp", 3, 2, 1234, &result), 0);
    assert_string_equal(peer.last.job, "mlp");
    assert_int_equal(peer.last.verb, PROTO_VERB_SET);
    assert_int_equal(peer.last.intra, 3);
    assert_int_equal(peer.last.inter, 2);
    assert_int_equal(peer.last.deadline_ms, 1234);
    assert_int_equal(peer.last.flags, PROTO_CONTROL_WAIT);
    assert_true(peer.last.sent_ns > 0);
    assert_int_equal(result.from, 8);
    assert_int_equal(result.to, 3);
    assert_int_equal(result.oversubscribed, 1);
    assert_int_equal(result.latency_ns, 42000);
    assert_int_equal(result.request, 0);
    assert_string_equal(tide_ctl_message(ctl), "as the test ordered");
    stop(ctl);
}

static void each_verb_reaches_the_wire_as_itself(void **fixture)
{
    tide_ctl *ctl = start(ANSWER, 0);

    assert_int_equal(tide_ctl_lend(ctl, NULL, 2, 0, NULL), 0);
    assert_int_equal(peer.last.verb, PROTO_VERB_LEND);
    assert_int_equal(peer.last.intra, 2);
    assert_int_equal(peer.last.deadline_ms, 5000);
    assert_string_equal(peer.last.job, "");
    assert_int_equal(tide_ctl_borrow(ctl, "b", 1, 0, NULL), 0);
    assert_int_equal(peer.last.verb, PROTO_VERB_BORROW);
    assert_int_equal(tide_ctl_reclaim(ctl, "b", 0, NULL), 0);
    assert_int_equal(peer.last.verb, PROTO_VERB_RECLAIM);
    assert_int_equal(tide_ctl_return(ctl, "b", 0, NULL), 0);
    assert_int_equal(peer.last.verb, PROTO_VERB_RETURN);
    stop(ctl);
}

static void bad_arguments_are_refused_unsent(void **fixture)
{
    tide_ctl *ctl = start(ANSWER, 0);
    struct tide_result unsized = {0};
    char name[TIDE_NAME_MAX + 1];

    memset(name, 'x', sizeof(name));
    name[TIDE_NAME_MAX] = '\0';
    assert_int_equal(tide_ctl_set(ctl, name, 1, 0, 0, NULL), -EINVAL);
    assert_int_equal(tide_ctl_set(ctl, "a", 1000000000, 0, 0, NULL), -ERANGE);
    assert_int_equal(tide_ctl_set(ctl, "a", (uint32_t)-1, 0, 0, NULL), -ERANGE);
    assert_int_equal(tide_ctl_set(ctl, "a", 0, 1, 0, NULL), -ERANGE);
    assert_int_equal(tide_ctl_lend(ctl, "a", 0, 0, NULL), -EINVAL);
    assert_int_equal(tide_ctl_borrow(ctl, "a", 0, 0, NULL), -EINVAL);
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, &unsized), -EINVAL);
    assert_int_equal(tide_ctl_poll(ctl, &unsized), -EINVAL);
    assert_true(strlen(tide_ctl_message(ctl)) > 0);
    name[TIDE_NAME_MAX - 1] = '\0';
    assert_int_equal(tide_ctl_set(ctl, name, 1, 0, 0, NULL), 0);
    assert_string_equal(peer.last.job, name);
    stop(ctl);
}

static void the_daemons_word_is_passed_on(void **fixture)
{
    static const int words[] = {-ESRCH, -EACCES, -ERANGE, TIDE_PARTIAL};
    tide_ctl *ctl = start(ANSWER, 0);

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct tide_result result = {.size = sizeof(result), .to = 99};

        atomic_store(&peer.status, words[i]);
        assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, &result), words[i]);
        assert_int_equal(result.to, words[i] < 0 ? 99 : 3);
    }
    stop(ctl);
}

static void a_silent_daemon_costs_the_deadline_and_no_more(void **fixture)
{
    tide_ctl *ctl = start(SILENT, 1);

    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 1, NULL), -ETIMEDOUT);
    assert_int_equal(tide_ctl_list(ctl, NULL, NULL), -ETIMEDOUT);
    stop(ctl);
}

static void an_answer_that_comes_late_is_not_taken_for_the_next_one(void **fixture)
{
    tide_ctl *ctl = start(LATE, 0);

    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), 0);
    assert_int_equal(tide_ctl_set(ctl, "a", 2, 0, 0, NULL), 0);
    stop(ctl);
}

static void nonsense_closes_the_connection_and_the_next_call_gets_another(void **fixture)
{
    static const struct {
        enum behaviour behaviour;
        int result;
    } cases[] = {{JUNK, -EBADMSG},       {OVERSIZED, -EBADMSG},
                 {OTHER_TYPE, -EBADMSG}, {VERSION_2, -EPROTONOSUPPORT},
                 {TWO_ROWS, -EBADMSG},   {HANG_UP, -ECONNRESET}};
    tide_ctl *ctl = start(ANSWER, 0);

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        atomic_store(&peer.behaviour, cases[i].behaviour);
        assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), cases[i].result);
        assert_int_equal(tide_ctl_fd(ctl), -ENOTCONN);
        atomic_store(&peer.behaviour, ANSWER);
        assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), 0);
        assert_int_equal(atomic_load(&peer.accepted), 2 + (int)i);
    }
    stop(ctl);
}

static void a_killed_daemon_is_named_and_its_successor_found(void **fixture)
{
    tide_ctl *ctl = start(ANSWER, 0);

    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), 0);
    peer_die();
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), -ECONNREFUSED);
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, TIDE_ASYNC, NULL), -ECONNREFUSED);
    unlink(peer.path);
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, TIDE_ASYNC, NULL), -ECONNREFUSED);
    peer_start(ANSWER);
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), 0);
    peer_die();
    peer_start(ANSWER);
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, TIDE_ASYNC, NULL), 0);
    stop(ctl);
}

static int count_rows(const struct tide_job *job, void *arg)
{
    unsigned *count = arg;

    assert_int_equal(job->size, sizeof(*job));
    assert_int_equal(job->pid, 100 + *count);
    assert_int_equal(strlen(job->name), TIDE_NAME_MAX - 1);
    assert_string_equal(job->id, *count ? "j2" : "j1");
    assert_string_equal(job->cores, "0-1");
    assert_int_equal(job->rate_milli, 2500);
    ++*count;
    return 0;
}

static int stop_at_first(const struct tide_job *job, void *arg)
{
    ++*(unsigned *)arg;
    return 7;
}

static void a_list_is_whole_or_an_error(void **fixture)
{
    tide_ctl *ctl = start(TWO_ROWS, 0);
    unsigned count = 0;

    assert_int_equal(tide_ctl_list(ctl, count_rows, &count), 0);
    assert_int_equal(count, 2);
    count = 0;
    assert_int_equal(tide_ctl_list(ctl, stop_at_first, &count), 7);
    assert_int_equal(count, 1);
    atomic_store(&peer.behaviour, ENDLESS);
    assert_int_equal(tide_ctl_list(ctl, stop_at_first, &count), -EBADMSG);
    assert_int_equal(count, 1);
    stop(ctl);
}

static void await_readable(const tide_ctl *ctl)
{
    struct pollfd p = {.fd = tide_ctl_fd(ctl), .events = POLLIN};

    assert_int_equal(poll(&p, 1, 30000), 1);
}

static void asynchronous_failures_name_their_request(void **fixture)
{
    tide_ctl *ctl = start(QUIET_FAILS, 0);
    struct tide_result result = {.size = sizeof(result)};

    assert_int_equal(tide_ctl_sent(ctl), 0);
    assert_int_equal(tide_ctl_poll(ctl, &result), 0);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(tide_ctl_set(ctl, "a", i, 0, TIDE_ASYNC, NULL), 0);
        assert_int_equal(tide_ctl_sent(ctl), i);
    }
    await_readable(ctl);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(tide_ctl_poll(ctl, &result), 1);
        assert_int_equal(result.request, i);
        assert_int_equal(result.status, -ESRCH);
        /* A synchronous call in between keeps the failures that it reads. */
        if (i == 1)
            assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), -ESRCH);
    }
    assert_int_equal(tide_ctl_poll(ctl, &result), 0);
    peer_die();
    assert_int_equal(tide_ctl_poll(ctl, &result), -ECONNRESET);
    peer_start(ANSWER);
    stop(ctl);
}

static void of_too_many_failures_the_newest_are_kept(void **fixture)
{
    enum { SENT = 70, KEPT = 64 };
    tide_ctl *ctl = start(QUIET_FAILS, 0);
    struct tide_result result = {.size = sizeof(result)};

    for (int i = 0; i < SENT; i++)
        assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, TIDE_ASYNC, NULL), 0);
    /* Its answer is behind all of theirs. */
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 0, NULL), -ESRCH);
    for (uint32_t i = SENT - KEPT + 1; i <= SENT; i++) {
        assert_int_equal(tide_ctl_poll(ctl, &result), 1);
        assert_int_equal(result.request, i);
    }
    assert_int_equal(tide_ctl_poll(ctl, &result), 0);
    stop(ctl);
}

static void a_daemon_that_does_not_read_makes_async_fail_at_once(void **fixture)
{
    struct tide_ctl_options options = {.size = sizeof(options), .path = peer.path};
    tide_ctl *ctl = NULL;
    uint32_t sent = 0;
    int r;

    peer_start(SILENT);
    assert_int_equal(tide_ctl_open(&options, &ctl), 0);
    close_fd(peer.wake[1]); /* its thread ends, but the connection stays in the accept queue … */
    pthread_join(peer.thread, NULL);
    tide_ctl_close(ctl);
    assert_int_equal(tide_ctl_open(&options, &ctl), 0);
    do /* … of the listener, which never reads */
        r = tide_ctl_set(ctl, "a", 1, 0, TIDE_ASYNC, NULL);
    while (r == 0 && ++sent < 1000000);
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(tide_ctl_sent(ctl), sent);
    assert_int_equal(tide_ctl_set(ctl, "a", 1, 0, 1, NULL), -ETIMEDOUT);
    tide_ctl_close(ctl);
    close_fd(peer.wake[0]);
    close_fd(peer.listener);
    unlink(peer.path);
}

static void a_forked_child_connects_by_itself(void **fixture)
{
    tide_ctl *ctl = start(ANSWER, 0);
    int status;
    pid_t pid;

    pid = fork();
    if (pid == 0) {
        alarm(30);
        status = tide_ctl_set(ctl, "child", 1, 0, 0, NULL);
        tide_ctl_close(ctl);
        _exit(status == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&peer.accepted), 2);
    assert_int_equal(tide_ctl_set(ctl, "parent", 1, 0, 0, NULL), 0);
    assert_int_equal(atomic_load(&peer.accepted), 2);
    stop(ctl);
}

static void environment_names_the_daemon(void **fixture)
{
    tide_ctl *ctl = start(ANSWER, 0);
    tide_ctl *other = NULL;

    setenv("TIDE_SOCKET", peer.path, 1);
    assert_int_equal(tide_ctl_open(NULL, &other), 0);
    tide_ctl_close(other);
    setenv("TIDE_DIR", "/nonexistent/tide", 1); /* outranks the socket */
    assert_int_equal(tide_ctl_open(NULL, &other), -ECONNREFUSED);
    setenv("TIDE_DIR", peer.dir, 1);
    assert_int_equal(tide_ctl_open(NULL, &other), 0);
    tide_ctl_close(other);
    unsetenv("TIDE_SOCKET");
    unsetenv("TIDE_DIR");
    stop(ctl);
}

static int directory_make(void **fixture)
{
    strcpy(peer.dir, "/tmp/tide-test-ctl-XXXXXX");
    if (!mkdtemp(peer.dir))
        return -1;
    snprintf(peer.path, sizeof(peer.path), "%s/agent.sock", peer.dir);
    return 0;
}

static int directory_remove(void **fixture)
{
    return rmdir(peer.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_synchronous_set_carries_everything_there_and_back),
        cmocka_unit_test(each_verb_reaches_the_wire_as_itself),
        cmocka_unit_test(bad_arguments_are_refused_unsent),
        cmocka_unit_test(the_daemons_word_is_passed_on),
        cmocka_unit_test(a_silent_daemon_costs_the_deadline_and_no_more),
        cmocka_unit_test(an_answer_that_comes_late_is_not_taken_for_the_next_one),
        cmocka_unit_test(nonsense_closes_the_connection_and_the_next_call_gets_another),
        cmocka_unit_test(a_killed_daemon_is_named_and_its_successor_found),
        cmocka_unit_test(a_list_is_whole_or_an_error),
        cmocka_unit_test(asynchronous_failures_name_their_request),
        cmocka_unit_test(of_too_many_failures_the_newest_are_kept),
        cmocka_unit_test(a_daemon_that_does_not_read_makes_async_fail_at_once),
        cmocka_unit_test(a_forked_child_connects_by_itself),
        cmocka_unit_test(environment_names_the_daemon),
    };

    return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
