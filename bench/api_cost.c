/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the C API, one time for each call. Prints one JSON object: names and lists of
 * nanoseconds (get_ps: picoseconds).
 *
 *   api_cost get N                         tide_get when nothing changes, by rounds of CALLS
 *                                          (needs the agent: LD_PRELOAD)
 *   api_cost async JOB N                   tide_ctl_set that does not wait
 *   api_cost sync JOB LOW HIGH N           … that waits for the acknowledgement, LOW and HIGH in
 * turn api_cost loan LENDER BORROWER STAMPS STAMPS N lend and reclaim of one core between two
 * followers, until a thread of the other one runs
 */
#include "base/clock.h"
#include "stamps.h"

#include <tide/tide.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CALLS        2000
#define GUARD_S      30
#define LISTS        8
#define ROOM_MAX     1000000 /* samples of a list */
#define ROW          8
#define PACKET_BYTES 112 /* of a set, see proto_control */

/* Every sample of one run, by name. */
static struct {
    const char *name;
    uint64_t *ns;
    size_t n;
} lists[LISTS];
static size_t room;

static void fail(const char *what, int r, const tide_ctl *ctl)
{
    const char *why = ctl ? tide_ctl_message(ctl) : "";

    fprintf(stderr, "api_cost: %s: %s\n", what, *why ? why : tide_strerror(r));
    exit(1);
}

static void keep(const char *name, uint64_t ns)
{
    size_t i = 0;

    while (i < LISTS - 1 && lists[i].name && strcmp(lists[i].name, name) != 0)
        i++;
    if (!lists[i].name) {
        lists[i].name = name;
        lists[i].ns = calloc(room, sizeof(uint64_t));
        if (!lists[i].ns)
            fail(name, -ENOMEM, NULL);
    }
    lists[i].ns[lists[i].n++] = ns;
}

static void print_lists(void)
{
    for (size_t i = 0; i < LISTS && lists[i].name; i++) {
        printf("%s\"%s\": [", i ? ", " : "{", lists[i].name);
        for (size_t k = 0; k < lists[i].n; k++)
            printf("%s%" PRIu64, k ? "," : "", lists[i].ns[k]);
        printf("]");
    }
    printf("}\n");
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static tide_ctl *open_controller(void)
{
    tide_ctl *ctl = NULL;
    int r = tide_ctl_open(NULL, &ctl);

    if (r < 0)
        fail("no connection", r, NULL);
    return ctl;
}

static void cost_get(size_t n)
{
    struct tide_state state = {.size = sizeof(state)};
    int r = tide_declare(4);

    if (r < 0)
        fail("tide_declare", r, NULL);
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = clock_now_ns();

        for (unsigned k = 0; k < CALLS; k++) {
            tide_get(&state);
            __asm__ volatile("" ::: "memory");
        }
        keep("get_ps", (clock_now_ns() - begin) * 1000 / CALLS);
    }
}

/* The other end is a process that sleeps in epoll as the daemon does, and ends with this one. */
static int start_reader(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    char packet[PACKET_BYTES];
    int pair[2], set;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        fail("socketpair", -errno, NULL);
    if (fork() != 0) {
        close(pair[1]);
        return pair[0];
    }
    close(pair[0]);
    set = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event);
    while (epoll_wait(set, &event, 1, -1) >= 0)
        if (recv(pair[1], packet, sizeof(packet), MSG_DONTWAIT) == 0)
            break;
    _exit(0);
}

static void set_async(tide_ctl *ctl, const char *job, unsigned threads, const char *list)
{
    uint64_t begin = clock_now_ns();
    int r = tide_ctl_set(ctl, job, threads, 0, TIDE_ASYNC, NULL);
    uint64_t end = clock_now_ns();

    if (r == 0)
        keep(list, end - begin);
    else if (r != -EAGAIN) /* a queue that is full is no call */
        fail("asynchronous set", r, ctl);
}

/*
 * In rows of ROW calls; alone, a millisecond apart, so that each has to wake the daemon; and beside
 * the latter what the kernel alone takes to send as much and wake a sleeper.
 */
static void cost_async(const char *job, size_t n)
{
    int reader = start_reader();
    tide_ctl *ctl = open_controller();
    const char packet[PACKET_BYTES] = "";

    for (size_t i = 0; i < n; i++) {
        uint64_t begin;

        pause_us(1000);
        set_async(ctl, job, 1 + (unsigned)(i & 1), "alone");
        pause_us(1000);
        begin = clock_now_ns();
        if (send(reader, packet, sizeof(packet), MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
            keep("kernel", clock_now_ns() - begin);
    }
    for (size_t i = 0; i < n; i++) {
        if (i % ROW == 0)
            pause_us(2000);
        set_async(ctl, job, 1 + (unsigned)(i & 1), "row");
    }
    tide_ctl_set(ctl, job, 0, 0, 0, NULL);
    tide_ctl_close(ctl);
}

static void cost_sync(const char *job, unsigned low, unsigned high, size_t n)
{
    struct tide_result result = {.size = sizeof(result)};
    tide_ctl *ctl = open_controller();

    for (size_t i = 0; i < 2 * n; i++) {
        bool shrink = i % 2 == 0;
        uint64_t begin = clock_now_ns();
        int r = tide_ctl_set(ctl, job, shrink ? low : high, 0, 0, &result);

        if (r != 0)
            fail("set", r, ctl);
        keep(shrink ? "shrink" : "grow", clock_now_ns() - begin);
        pause_us(2000);
    }
    tide_ctl_set(ctl, job, 0, 0, 0, NULL);
    tide_ctl_close(ctl);
}

/* Until a thread that a growth after @since_ns had woken ran. */
static void await_growth(const struct stamps *stamps, uint64_t since_ns)
{
    while (atomic_load(&stamps->awake_ns) <= since_ns) {
        if (clock_now_ns() - since_ns > GUARD_S * NS_PER_S)
            fail("nothing grew", -ETIMEDOUT, NULL);
        pause_us(50);
    }
}

static void cost_loan(char **arg, size_t n)
{
    const struct stamps *lender = stamps_map(arg[2]), *borrower = stamps_map(arg[3]);
    tide_ctl *ctl = open_controller();
    int r = tide_ctl_borrow(ctl, arg[1], 1, 0, NULL); /* a standing wish: nothing is lent yet */

    if (r < 0 || !lender || !borrower)
        fail("borrow", r, ctl);
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = clock_now_ns();

        r = tide_ctl_lend(ctl, arg[0], 1, 0, NULL);
        if (r != 0)
            fail("lend", r, ctl);
        keep("lend_call", clock_now_ns() - begin);
        await_growth(borrower, begin);
        keep("lend_told", atomic_load(&borrower->told_ns) - begin);
        keep("lend_runs", atomic_load(&borrower->awake_ns) - begin);
        pause_us(2000);
        begin = clock_now_ns();
        r = tide_ctl_reclaim(ctl, arg[0], 0, NULL);
        if (r != 0)
            fail("reclaim", r, ctl);
        keep("reclaim_call", clock_now_ns() - begin);
        await_growth(lender, begin);
        keep("reclaim_told", atomic_load(&lender->told_ns) - begin);
        keep("reclaim_runs", atomic_load(&lender->awake_ns) - begin);
        pause_us(2000);
    }
    tide_ctl_close(ctl);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";

    room = argc > 2 ? strtoull(argv[argc - 1], NULL, 10) : 0;
    if (room == 0 || room > ROOM_MAX)
        what = "";
    if (strcmp(what, "get") == 0 && argc == 3)
        cost_get(room);
    else if (strcmp(what, "async") == 0 && argc == 4)
        cost_async(argv[2], room);
    else if (strcmp(what, "sync") == 0 && argc == 6)
        cost_sync(argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]), room);
    else if (strcmp(what, "loan") == 0 && argc == 7)
        cost_loan(argv + 2, room);
    else
        return fprintf(stderr, "usage: see the head of bench/api_cost.c\n"), 2;
    print_lists();
    return 0;
}
