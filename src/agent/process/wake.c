/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pair of sockets wakes the control thread. The program may close either end at any time: where a
 * pipe would end the program with SIGPIPE, and a byte could get into a file that has the number by
 * then, send() fails.
 *
 * A byte is sent only to a thread that sleeps or is about to: it costs both sides microseconds, and
 * most notices reach a thread that is awake, many from itself. Each side first writes its own flag
 * and then reads the other's, so at least one of them sees the other.
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/ownfd.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ownfd waker = {.fd = -1}, sleeper = {.fd = -1};
static atomic_bool told;   /* a notice came since the last wake_drain() */
static atomic_bool asleep; /* the thread sleeps, or is about to */

void agent_notify(void)
{
    int saved = errno;

    atomic_store(&told, true);
    if (atomic_load(&asleep) && ownfd_ok(&waker)) {
        ssize_t n = send(waker.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)n; /* a full one wakes the thread anyhow; its next tick replaces a closed one */
    }
    errno = saved;
}

void wake_ensure(void)
{
    int fds[2];

    if (ownfd_ok(&sleeper) && ownfd_ok(&waker))
        return;
    ownfd_drop(&sleeper);
    ownfd_drop(&waker);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return;
    ownfd_adopt(&sleeper, fds[0]);
    ownfd_adopt(&waker, fds[1]);
}

void wake_drain(void)
{
    char buf[256];

    atomic_exchange(&told, false); /* reads it: what was written before the notice is seen now */
    while (ownfd_ok(&sleeper) && recv(sleeper.fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
        ;
}

int wake_fd(void)
{
    return sleeper.fd;
}

bool wake_may_sleep(void)
{
    atomic_store(&asleep, true);
    return !atomic_load(&told);
}

void wake_slept(void)
{
    atomic_store(&asleep, false);
}

void wake_after_fork(void)
{
    ownfd_drop(&sleeper);
    ownfd_drop(&waker);
    atomic_store(&told, false);
    atomic_store(&asleep, false);
}
