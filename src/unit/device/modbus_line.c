/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/modbus_line.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define PATIENCE_NS     (3 * NS_PER_S) /* for a connection, and for an answer of TCP */
#define RTU_PATIENCE_NS (1 * NS_PER_S) /* a device that is away holds up the others */
#define RETRY_MAX_S     60
#define SILENCE_BITS    39 /* 3.5 characters of 11 bits, between two frames of RTU */

enum line_state {
    LINE_CLOSED,     /* until retry_ns */
    LINE_CONNECTING, /* TCP alone */
    LINE_IDLE,
    LINE_ASKING, /* the first of the queue */
};

struct modbus_line {
    struct modbus_line *next;
    struct modbus_address address;
    unsigned users;
    sd_event *event;
    sd_event_source *io, *timer;
    int fd;
    enum line_state state;
    uint16_t number;
    uint64_t retry_ns;
    unsigned tries;
    struct modbus_ask *first, **last;
    uint8_t bytes[MODBUS_FRAME_MAX];
    size_t len;
    char problem[96]; /* of the last try */
};

static struct modbus_line *lines; /* the event loop's thread alone */

static bool serial(const struct modbus_line *l)
{
    return l->address.tty[0] != '\0';
}

static void wake(struct modbus_line *l, uint64_t ns)
{
    sd_event_source_set_time_relative(l->timer, ns / NS_PER_US);
    sd_event_source_set_enabled(l->timer, SD_EVENT_ONESHOT);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void answer(struct modbus_line *l, const char *why, const uint16_t *value)
{
    struct modbus_ask *a = l->first;

    l->first = a->next;
    if (!l->first)
        l->last = &l->first;
    a->waiting = false;
    a->done(a->arg, why, value);
}

/* The kernel would go on delivering what it holds, an order among it: also behind a close. */
static void discard(struct modbus_line *l)
{
    const struct linger none = {.l_onoff = 1};

    if (l->fd < 0)
        return;
    if (serial(l))
        tcflush(l->fd, TCOFLUSH);
    else
        setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* All that wait are told; those who ask again meanwhile wait for the next connection. */
static void hang_up(struct modbus_line *l, const char *why)
{
    struct modbus_ask *a = l->first, *next;

    discard(l);
    l->io = sd_event_source_disable_unref(l->io);
    l->fd = close_fd(l->fd);
    l->state = LINE_CLOSED;
    l->retry_ns =
        clock_now_ns() + (l->tries < 6 ? UINT64_C(1) << l->tries : RETRY_MAX_S) * NS_PER_S;
    l->tries++;
    if (serial(l))
        snprintf(l->problem, sizeof(l->problem), "%.48s: %.40s", l->address.tty, why);
    else
        snprintf(l->problem, sizeof(l->problem), "%.40s:%u: %.40s", l->address.host,
                 l->address.port, why);
    l->first = NULL;
    l->last = &l->first;
    for (; a; a = next) {
        next = a->next;
        a->waiting = false;
        a->done(a->arg, l->problem, NULL);
    }
}

static void ask_next(struct modbus_line *l)
{
    uint8_t request[MODBUS_REQUEST_MAX];
    size_t len;
    ssize_t n;

    if (l->state != LINE_IDLE)
        return;
    while (l->first && l->first->wanted && !l->first->wanted(l->first->arg))
        answer(l, NULL, NULL);
    if (!l->first)
        return;
    l->len = 0;
    if (serial(l)) {
        tcflush(l->fd, TCIOFLUSH); /* also what it could not send, an order perhaps */
        len = modbus_rtu_request(&l->first->question, request);
        n = write(l->fd, request, len);
    } else {
        len = modbus_tcp_request(&l->first->question, ++l->number, request);
        n = send(l->fd, request, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (n != (ssize_t)len) {
        hang_up(l, n < 0 ? strerror(errno) : "the line takes no more");
        return;
    }
    l->state = LINE_ASKING;
    wake(l, serial(l) ? RTU_PATIENCE_NS : PATIENCE_NS);
}

/* The next question of a serial line waits for a silence. */
static void finish(struct modbus_line *l, const char *why, const uint16_t *value)
{
    l->state = LINE_IDLE;
    if (!why)
        l->tries = 0;
    answer(l, why, value);
    if (serial(l))
        wake(l, SILENCE_BITS * NS_PER_S / l->address.baud + NS_PER_MS);
    else
        ask_next(l);
}

/* ---- the wire -------------------------------------------------------------------------------- */

static void receive(struct modbus_line *l)
{
    ssize_t n = read(l->fd, l->bytes + l->len, sizeof(l->bytes) - l->len);
    uint16_t value[MODBUS_REGISTERS_MAX];
    char why[64];
    int r;

    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            hang_up(l, n == 0 ? "the meter hung up" : strerror(errno));
        return;
    }
    if (l->state != LINE_ASKING) { /* on a serial line noise, or an answer that came too late */
        if (!serial(l))
            hang_up(l, "what it answers is not Modbus");
        return;
    }
    l->len += (size_t)n;
    r = serial(l) ? modbus_rtu_answer(l->bytes, l->len, &l->first->question, value)
                  : modbus_tcp_answer(l->bytes, l->len, &l->first->question, l->number, value);
    if (r == -EAGAIN && l->len < sizeof(l->bytes))
        return;
    if (r == 0) {
        finish(l, NULL, value);
    } else if (r == -EPROTO) {
        snprintf(why, sizeof(why), "the meter refuses (Modbus exception %u)", value[0]);
        finish(l, why, NULL);
    } else if (serial(l)) {
        finish(l, "what it answers is damaged, or not Modbus", NULL);
    } else {
        hang_up(l, "what it answers is not Modbus");
    }
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct modbus_line *l = arg;
    int error = 0;
    socklen_t len = sizeof(error);

    if (l->state != LINE_CONNECTING) {
        receive(l);
        return 0;
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        hang_up(l, strerror(error));
        return 0;
    }
    sd_event_source_set_io_events(source, EPOLLIN);
    l->state = LINE_IDLE;
    ask_next(l);
    return 0;
}

/* Returns why not, or NULL. */
static const char *dial(struct modbus_line *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char port[8];
    int r;

    snprintf(port, sizeof(port), "%u", l->address.port);
    r = getaddrinfo(l->address.host, port, &hints, &found);
    if (r != 0)
        return gai_strerror(r);
    l->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    r = l->fd < 0 || connect(l->fd, found->ai_addr, found->ai_addrlen) < 0 ? errno : 0;
    freeaddrinfo(found);
    l->state = LINE_CONNECTING;
    return r == 0 || r == EINPROGRESS ? NULL : strerror(r);
}

static speed_t speed_of(uint32_t baud)
{
    static const struct {
        uint32_t baud;
        speed_t speed;
    } speeds[] = {{1200, B1200},   {2400, B2400},   {4800, B4800},   {9600, B9600},
                  {19200, B19200}, {38400, B38400}, {57600, B57600}, {115200, B115200}};

    for (size_t i = 0; i < ARRAY_LEN(speeds); i++)
        if (speeds[i].baud == baud)
            return speeds[i].speed;
    return B9600;
}

static const char *open_tty(struct modbus_line *l)
{
    const struct modbus_address *a = &l->address;
    struct termios t;

    l->fd = open(a->tty, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (l->fd < 0 || tcgetattr(l->fd, &t) < 0)
        return strerror(errno);
    cfmakeraw(&t);
    t.c_cflag |= CLOCAL | CREAD;
    t.c_cflag &= ~(tcflag_t)(CSTOPB | PARENB | PARODD);
    if (a->parity != 'N')
        t.c_cflag |= PARENB;
    if (a->parity == 'O')
        t.c_cflag |= PARODD;
    if (cfsetspeed(&t, speed_of(a->baud)) < 0 || tcsetattr(l->fd, TCSANOW, &t) < 0)
        return strerror(errno);
    l->state = LINE_IDLE;
    return NULL;
}

static void connect_line(struct modbus_line *l)
{
    const char *why = serial(l) ? open_tty(l) : dial(l);

    if (why) {
        hang_up(l, why);
        return;
    }
    if (sd_event_add_io(l->event, &l->io, l->fd, l->state == LINE_CONNECTING ? EPOLLOUT : EPOLLIN,
                        on_io, l) < 0) {
        hang_up(l, "out of memory");
        return;
    }
    if (l->state == LINE_CONNECTING)
        wake(l, PATIENCE_NS);
    else
        ask_next(l);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
    struct modbus_line *l = arg;

    if (l->state == LINE_CONNECTING || (l->state == LINE_ASKING && !serial(l)))
        hang_up(l, "no answer");
    else if (l->state == LINE_ASKING)
        finish(l, "no answer", NULL);
    else if (l->state == LINE_CLOSED && l->first)
        connect_line(l);
    else
        ask_next(l);
    return 0;
}

void modbus_line_ask(struct modbus_line *l, struct modbus_ask *ask)
{
    uint64_t now = clock_now_ns();

    if (ask->waiting)
        return;
    ask->waiting = true;
    ask->next = NULL;
    *l->last = ask;
    l->last = &ask->next;
    /* Never from inside this call: done() would come before its owner is ready. */
    if (l->state == LINE_CLOSED)
        wake(l, now < l->retry_ns ? l->retry_ns - now : 0);
    else if (l->state == LINE_IDLE && l->first == ask)
        wake(l, serial(l) ? SILENCE_BITS * NS_PER_S / l->address.baud + NS_PER_MS : 0);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static bool same_place(const struct modbus_address *a, const struct modbus_address *b)
{
    return strcmp(a->tty, b->tty) == 0 && strcmp(a->host, b->host) == 0 &&
           (a->tty[0] || a->port == b->port);
}

int modbus_line_get(sd_event *event, const struct modbus_address *address, struct modbus_line **ret)
{
    struct modbus_line *l = lines;
    int r;

    while (l && !same_place(&l->address, address))
        l = l->next;
    if (!l) {
        l = calloc(1, sizeof(*l));
        if (!l)
            return -ENOMEM;
        l->address = *address;
        l->fd = -1;
        l->last = &l->first;
        r = sd_event_add_time_relative(event, &l->timer, CLOCK_MONOTONIC, 0, NS_PER_MS / NS_PER_US,
                                       on_timer, l);
        if (r < 0) {
            free(l);
            return r;
        }
        sd_event_source_set_enabled(l->timer, SD_EVENT_OFF);
        l->event = sd_event_ref(event);
        l->next = lines;
        lines = l;
    }
    l->users++;
    *ret = l;
    return 0;
}

static void forget(struct modbus_line *l, const struct modbus_ask *ask)
{
    struct modbus_ask **at = &l->first;

    while (*at && *at != ask)
        at = &(*at)->next;
    if (!*at)
        return;
    if (l->state == LINE_ASKING && at == &l->first)
        l->state = LINE_IDLE; /* its answer is noise */
    *at = ask->next;
    if (!*at)
        l->last = at;
}

void modbus_line_put(struct modbus_line *l, struct modbus_ask *ask)
{
    struct modbus_line **at = &lines;

    if (!l)
        return;
    if (ask && ask->waiting)
        forget(l, ask);
    if (--l->users)
        return;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    sd_event_source_disable_unref(l->io);
    sd_event_source_disable_unref(l->timer);
    close_fd(l->fd);
    sd_event_unref(l->event);
    free(l);
}
