/* SPDX-License-Identifier: Apache-2.0 */
/* The pipe that wakes the control thread. */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/ownfd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct ownfd pipe_read = {.fd = -1};
static struct ownfd pipe_write = {.fd = -1};

void agent_notify(void)
{
    int saved = errno;

    if (ownfd_ok(&pipe_write)) {
        ssize_t n = write(pipe_write.fd, "", 1);
        (void)n; /* a full pipe wakes the thread anyhow; its next tick replaces a closed one */
    }
    errno = saved;
}

void wake_ensure(void)
{
    int fds[2];

    if (ownfd_ok(&pipe_read) && ownfd_ok(&pipe_write))
        return;
    ownfd_drop(&pipe_read);
    ownfd_drop(&pipe_write);
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return;
    ownfd_adopt(&pipe_read, fds[0]);
    ownfd_adopt(&pipe_write, fds[1]);
}

void wake_drain(void)
{
    char buf[256];

    while (ownfd_ok(&pipe_read) && read(pipe_read.fd, buf, sizeof(buf)) > 0)
        ;
}

int wake_fd(void)
{
    return pipe_read.fd;
}

void wake_after_fork(void)
{
    ownfd_drop(&pipe_read);
    ownfd_drop(&pipe_write);
}
