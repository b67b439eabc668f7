/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/machine/tided.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "host/net/http.h"

#define PATIENCE_MS 5000 /* tided answers a lease within two seconds */

static const struct {
    const char *method, *path;
} requests[] = {
    [TIDED_LEASE] = {"PUT", "/v1/power/lease"},   [TIDED_READING] = {"POST", "/v1/power/readings"},
    [TIDED_DEMAND] = {"GET", "/v1/power/demand"}, [TIDED_POWER] = {"GET", "/v1/power"},
    [TIDED_CAP] = {"GET", "/v1/power/cap"},       [TIDED_USERS] = {"GET", "/v1/energy?by=user"},
    [TIDED_SHRUNK] = {"GET", "/v1/power/shrunk"},
};

struct slot {
    bool asked, answered;
    char *body, *answer;
    int status;
};

struct tided {
    tided_news news;
    void *arg;
    char *socket;
    char since[32]; /* of TIDED_USERS: from the beginning of this process on */
    int fd;         /* readable: something is answered */
    sd_event_source *io;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    bool quit;
    struct slot slot[TIDED_KIND_MAX];
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* Waits for a request; the lease's goes first. Returns TIDED_KIND_MAX at the end. */
static enum tided_kind next_request(struct tided *t, char **ret_body)
{
    enum tided_kind kind = TIDED_KIND_MAX;

    pthread_mutex_lock(&t->lock);
    while (!t->quit) {
        for (kind = 0; kind < TIDED_KIND_MAX && !t->slot[kind].asked;)
            kind++;
        if (kind < TIDED_KIND_MAX)
            break;
        pthread_cond_wait(&t->wake, &t->lock);
    }
    if (t->quit)
        kind = TIDED_KIND_MAX;
    if (kind < TIDED_KIND_MAX) {
        t->slot[kind].asked = false;
        *ret_body = TAKE_PTR(t->slot[kind].body);
    }
    pthread_mutex_unlock(&t->lock);
    return kind;
}

static void *serve(void *arg)
{
    struct tided *t = arg;
    enum tided_kind kind;
    char *body = NULL;

    while ((kind = next_request(t, &body)) != TIDED_KIND_MAX) {
        struct error err = {0};
        char *answer = NULL;
        char path[96];
        int status, r;

        snprintf(path, sizeof(path), "%s%s", requests[kind].path,
                 kind == TIDED_USERS ? t->since : "");
        r = http_request(t->socket, requests[kind].method, path, body, PATIENCE_MS, &status,
                         &answer, &err);

        free(body);
        body = NULL;
        if (r < 0)
            answer = strdup(err.text[0] ? err.text : strerror(-r));
        pthread_mutex_lock(&t->lock);
        free(t->slot[kind].answer);
        t->slot[kind].answer = answer;
        t->slot[kind].status = r < 0 ? r : status;
        t->slot[kind].answered = true;
        pthread_mutex_unlock(&t->lock);
        eventfd_write(t->fd, 1);
    }
    return NULL;
}

/* ---- the event loop -------------------------------------------------------------------------- */

static int on_answers(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct tided *t = arg;
    eventfd_t count;

    eventfd_read(fd, &count);
    for (int kind = 0; kind < TIDED_KIND_MAX; kind++) {
        _cleanup_free_ char *answer = NULL;
        bool answered;
        int status;

        pthread_mutex_lock(&t->lock);
        answered = t->slot[kind].answered;
        status = t->slot[kind].status;
        answer = TAKE_PTR(t->slot[kind].answer);
        t->slot[kind].answered = false;
        pthread_mutex_unlock(&t->lock);
        if (answered)
            t->news(t->arg, kind, status, answer ? answer : "");
    }
    return 0;
}

void tided_ask(struct tided *t, enum tided_kind kind, char *body)
{
    pthread_mutex_lock(&t->lock);
    free(t->slot[kind].body);
    t->slot[kind].body = body;
    t->slot[kind].asked = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Signals are the event loop's: the thread blocks all. */
static int start(struct tided *t)
{
    sigset_t all, before;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&t->thread, NULL, serve, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->running = r == 0;
    return r;
}

int tided_new(sd_event *event, const char *socket, tided_news news, void *arg, struct tided **ret)
{
    struct tided *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return -ENOMEM;
    t->news = news;
    t->arg = arg;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->socket = strdup(socket);
    snprintf(t->since, sizeof(t->since), "&since=%lld", (long long)time(NULL));
    t->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = !t->socket ? -ENOMEM : t->fd < 0 ? -errno : 0;
    r = r ? r : sd_event_add_io(event, &t->io, t->fd, EPOLLIN, on_answers, t);
    r = r < 0 ? r : start(t);
    if (r < 0) {
        tided_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct tided *tided_free(struct tided *t)
{
    if (!t)
        return NULL;
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (t->running)
        pthread_join(t->thread, NULL);
    sd_event_source_disable_unref(t->io);
    close_fd(t->fd);
    for (int kind = 0; kind < TIDED_KIND_MAX; kind++) {
        free(t->slot[kind].body);
        free(t->slot[kind].answer);
    }
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->socket);
    free(t);
    return NULL;
}
