/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dashboard/machines.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/remote/fleet.h"
#include "host/net/door.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>

#define OLD_NS     (10 * NS_PER_S) /* an inventory that was read before is read again */
#define UNKNOWN_NS (2 * NS_PER_S)  /* … and for a name that it does not have */

struct machines {
    sd_event_source *io;
    int news[2];      /* a pipe: the thread of a round writes messages of `struct news` */
    bool round;       /* is under way */
    bool asks;        /* it asks the machines, too */
    uint64_t read_ns; /* when the inventory was read, or could not be; 0: never */
    struct inventory known;
    struct httpd_request *waiting[MACHINES_WAITING_MAX];
    size_t n_waiting;
};

/* From the thread of a round. What its pointers lead to is the reader's. */
struct news {
    struct machine *machine; /* @n of the inventory, which has been read; NULL: the round ends */
    size_t n;
    unsigned status; /* of the outcome, an answer to the page; 0: nobody was asked */
    char *text;      /* its body; NULL: out of memory */
};

/* A round's thread is given this, and frees it. */
struct task {
    int out;
    bool asks;
};

/* ---- the thread ---- */

static void tell(int out, struct news news)
{
    /* Less than PIPE_BUF: it is written as a whole or not at all. */
    if (write(out, &news, sizeof(news)) == sizeof(news))
        return;
    free(news.machine);
    free(news.text);
}

static struct news refusal(const struct error *err, int code)
{
    json_t *body =
        json_pack("{s:{s:s,s:s,s:s}}", "error", "message", err->text, "hint",
                  code == -ENOENT ? "Write a line for each machine into ~/.config/tide/fleet: lab1 "
                                    "ssh://ana@lab1.example.org"
                                  : "tide-fleet(1) says what an inventory is.",
                  "code", err->word ? err->word : "no-inventory");
    struct news news = {.status = code == -ENOENT ? 404 : 400,
                        .text = body ? json_dumps(body, JSON_COMPACT) : NULL};

    json_decref(body);
    return news;
}

static struct news outcome_of(const struct inventory *inventory)
{
    _cleanup_(fleet_done) struct fleet fleet = {0};
    struct news news = {.status = 200};
    json_t *list;

    if (fleet_ask(inventory, FLEET_DEADLINE_MS, &fleet) < 0)
        return news;
    list = fleet_json(&fleet);
    news.text = list ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return news;
}

static void *work(void *arg)
{
    _cleanup_(inventory_done) struct inventory inventory = {0};
    const struct task task = *(struct task *)arg;
    struct error err = {0};
    struct news read = {0}, end = {0};
    int r;

    free(arg);
    r = inventory_read(NULL, &inventory, &err);
    if (r < 0) {
        tell(task.out, refusal(&err, r));
        return NULL;
    }
    read.machine = calloc(inventory.n + 1, sizeof(*read.machine));
    if (read.machine) {
        memcpy(read.machine, inventory.machine, inventory.n * sizeof(*read.machine));
        read.n = inventory.n;
        tell(task.out, read);
    }
    if (task.asks)
        end = outcome_of(&inventory);
    tell(task.out, end);
    return NULL;
}

/* Signals are the event loop's; children of the round get them as usual (dial.c, nodes.c). */
static int begin_round(struct machines *m, bool asks)
{
    pthread_attr_t detached;
    struct task *task;
    pthread_t thread;
    int r;

    if (m->round) /* who waits for one that asks gets it after this one */
        return 0;
    task = malloc(sizeof(*task));
    if (!task)
        return -ENOMEM;
    *task = (struct task){m->news[1], asks};
    r = pthread_attr_init(&detached);
    if (r == 0) {
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        r = pthread_create(&thread, &detached, work, task);
        pthread_attr_destroy(&detached);
    }
    if (r != 0)
        free(task);
    m->round = r == 0;
    m->asks = asks;
    return -r;
}

/* ---- the loop ---- */

static void answer_all(struct machines *m, const struct news *news)
{
    size_t n = m->n_waiting;

    m->n_waiting = 0;
    for (size_t i = 0; i < n; i++)
        httpd_answer(m->waiting[i], news->status, "application/json",
                     news->text ? strdup(news->text) : NULL, false);
}

static int on_news(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct machines *m = arg;
    struct news news;

    if (read(fd, &news, sizeof(news)) != sizeof(news))
        return 0;
    if (news.machine || news.status >= 400) {
        inventory_done(&m->known);
        m->known.machine = news.machine;
        m->known.n = news.n;
        m->read_ns = clock_now_ns();
    }
    if (news.machine)
        return 0;
    m->round = false;
    if (m->asks || news.status >= 400)
        answer_all(m, &news);
    else if (m->n_waiting && begin_round(m, true) < 0)
        answer_all(m, &(struct news){.status = 500});
    free(news.text);
    return 0;
}

int machines_new(sd_event *event, struct machines **ret)
{
    struct machines *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return -ENOMEM;
    *m = (struct machines){.news = {-1, -1}};
    r = pipe2(m->news, O_CLOEXEC) < 0 ? -errno : 0;
    if (r == 0)
        r = sd_event_add_io(event, &m->io, m->news[0], EPOLLIN, on_news, m);
    if (r < 0) {
        machines_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

struct machines *machines_free(struct machines *m)
{
    if (!m || m->round) /* its thread writes to the pipe */
        return NULL;
    sd_event_source_disable_unref(m->io);
    close_fd(m->news[0]);
    close_fd(m->news[1]);
    inventory_done(&m->known);
    free(m);
    return NULL;
}

void machines_answer(struct machines *m, struct httpd_request *r)
{
    if (m->n_waiting == MACHINES_WAITING_MAX) {
        r->retry_s = 1;
        door_refuse(r, 429, "too many requests wait for the machines' answers", "");
    } else if (begin_round(m, true) < 0) {
        door_refuse(r, 500, "no thread can be started that asks the machines", "");
    } else {
        m->waiting[m->n_waiting++] = r;
    }
}

void machines_over(struct machines *m, const struct httpd_request *r)
{
    for (size_t i = 0; i < m->n_waiting; i++)
        if (m->waiting[i] == r) {
            m->waiting[i] = m->waiting[--m->n_waiting];
            return;
        }
}

int machines_find(struct machines *m, const char *name, struct address *ret)
{
    uint64_t age_ns = m->read_ns ? clock_now_ns() - m->read_ns : UINT64_MAX;
    int r = age_ns > OLD_NS ? begin_round(m, false) : 0;

    for (size_t i = 0; i < m->known.n; i++)
        if (strcmp(m->known.machine[i].name, name) == 0) {
            *ret = m->known.machine[i].address;
            return 0;
        }
    if (age_ns <= UNKNOWN_NS)
        return -ENOENT;
    if (r == 0)
        r = begin_round(m, false);
    return r < 0 ? -ENOMEM : -EAGAIN;
}
