/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is written to api.sock: HTTP requests with bodies in JSON, one after the other. The
 * daemon's own loop handles them. Every answer must be HTTP with JSON, text or events.
 *
 * The daemon's /proc has one process, a child of the target; the corpus calls it 1.
 */
#include "daemon.h"
#include "daemon/api/api.h"
#include "daemon/api/events.h"
#include "daemon/api/metrics.h"
#include "host/net/http.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define ANSWERS_MAX (1 << 20)
#define PAUSE_MS    20 /* between two inputs: the server takes only so many connections in 10 ms */

static uint64_t paused_ms;

/* libsystemd's clock, too. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
    int r = (int)syscall(SYS_clock_gettime, id, ts);

    if (r == 0 && (id == CLOCK_MONOTONIC || id == CLOCK_BOOTTIME)) {
        ts->tv_nsec += (long)(paused_ms % 1000) * 1000000;
        ts->tv_sec += (time_t)(paused_ms / 1000) + ts->tv_nsec / 1000000000;
        ts->tv_nsec %= 1000000000;
    }
    return r;
}

static pid_t make_child(void)
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, SIG_IGN); /* `tide cancel` must not end it */
        for (;;)
            pause();
    }
    return child;
}

static void make_proc(void)
{
    char target[32], link[64];
    pid_t child = make_child(), pids[] = {1, child, getpid()};

    snprintf(target, sizeof(target), "/proc/%d", (int)child);
    for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
        snprintf(link, sizeof(link), "%s/proc/%d", directory, (int)pids[i]);
        CHECK(symlink(target, link) == 0);
    }
}

static void nothing(struct daemon *d)
{
}

static void begin(void)
{
    static const struct wake_handlers handlers = {plan_make_now, nothing, store_save};
    static const struct job_observer *const observers[] = {&chronicle_observer, &store_observer,
                                                           &actuate_observer,   &wait_observer,
                                                           &metrics_observer,   NULL};

    make_directory();
    make_proc();
    make_daemon(geteuid(), &handlers, observers);
    CHECK(events_new(&the_daemon, &the_daemon.events) == 0 &&
          api_new(&the_daemon, routes_handle, &the_daemon.api, NULL) == 0);
    for (unsigned i = 0; i < 3; i++) /* for Last-Event-ID: 7.1 to 7.3 */
        events_tell(the_daemon.events, "job", json_object());
}

static int connect_to_api(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" RUNDIR_API_SOCKET, directory);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    return fd;
}

/* Goes on until the daemon has no work left; a request may wait for an agent. */
static size_t converse(int fd, const uint8_t *data, size_t size, char *answers)
{
    size_t sent = 0, got = 0;
    ssize_t n = 0;

    for (unsigned idle = 0; idle < 3;) {
        if (sent < size) {
            n = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
        idle = sd_event_run(the_daemon.event, 0) > 0 ? 0 : idle + 1;
        n = recv(fd, answers + got, ANSWERS_MAX - got, 0);
        if (n > 0) {
            got += (size_t)n;
            idle = 0;
        }
        if (n == 0 || got == ANSWERS_MAX)
            break;
    }
    return got;
}

/* Checks the first answer; JSON must be complete. */
static void check_answer(const char *answers, size_t size)
{
    struct http_response response;
    json_t *body;

    if (size == 0 || memmem(answers, size, "text/", 5))
        return;
    CHECK(strncmp(answers, "HTTP/1.", 7) == 0);
    if (http_parse_response(answers, size, true, &response) < 0)
        return;
    CHECK(response.status >= 200 && response.status < 600);
    if (response.body_len > 0 && response.body[0] == '{') {
        body = json_loadb(response.body, response.body_len, 0, NULL);
        CHECK(body && (response.status < 400 || json_object_get(body, "error")));
        json_decref(body);
    }
    free(response.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *answers;
    int fd;

    if (!answers) {
        answers = malloc(ANSWERS_MAX + 1);
        CHECK(answers);
        begin();
    }
    paused_ms += PAUSE_MS;
    fd = connect_to_api();
    size = converse(fd, data, size, answers);
    answers[size] = '\0';
    close(fd);
    check_answer(answers, size);
    for (const struct job *j = the_daemon.jobs->first; j; j = j->next) {
        CHECK(strcmp(j->name, j->id) == 0 || job_name_valid(j->name));
        for (each_attribute(a))
            CHECK(attribute_holds(a, attribute_get(a, &j->asked.attributes)));
        CHECK(!j->asked.attributes.max || j->asked.attributes.min <= j->asked.attributes.max);
    }
    while (the_daemon.jobs->first)
        job_end(the_daemon.jobs->first);
    store_save(&the_daemon); /* removes the jobs' files, too */
    while (sd_event_run(the_daemon.event, 0) > 0)
        ;
    return 0;
}
