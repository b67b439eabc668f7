/* SPDX-License-Identifier: Apache-2.0 */
/* A container's control directory, <run>/containers/KEY, and the socket in it. */
#include "base/cleanup.h"
#include "base/container.h"
#include "base/startup.h"
#include "daemon/containers/container_state.h"
#include "daemon/containers/labels.h"
#include "daemon/daemon.h"
#include "daemon/link/agent_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ERROR_WORD "container-directory"

/* Only we may have made the directories on the way, and only we may change what is in them. */
static int open_beneath(int dir_fd, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    _cleanup_fd_ int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || (st.st_mode & 0022))
        return -EPERM;
    return TAKE_FD(fd);
}

int container_dir_open(const struct daemon *d, const char *key)
{
    _cleanup_fd_ int parent = -1;

    if (!labels_key_valid(key))
        return -EINVAL;
    parent = open_beneath(d->dir_fd, CONTAINER_RUN_DIR);
    return parent < 0 ? parent : open_beneath(parent, key);
}

void container_dir_remove(const struct daemon *d, const char *key)
{
    _cleanup_fd_ int parent = open_beneath(d->dir_fd, CONTAINER_RUN_DIR);
    _cleanup_fd_ int fd = parent < 0 || !labels_key_valid(key) ? -1 : open_beneath(parent, key);

    if (fd < 0)
        return;
    unlinkat(fd, RUNDIR_AGENT_SOCKET, 0);
    unlinkat(fd, CONTAINER_STARTUP, 0);
    unlinkat(parent, key, AT_REMOVEDIR); /* a directory into which somebody put a file stays */
}

uint32_t container_dir_sized(const struct daemon *d, const char *key)
{
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    _cleanup_fd_ int dir = container_dir_open(d, key);
    _cleanup_fd_ int fd = dir < 0 ? -1 : openat(dir, CONTAINER_STARTUP, flags);
    char text[STARTUP_MARK_MAX] = "";
    struct startup s;

    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || !startup_read_mark(text, &s))
        return 0;
    return startup_sized(&s) ? s.size : 0;
}

struct container *container_of_key(const struct daemon *d, const struct container *but,
                                   const char *key, bool listening)
{
    for (struct containers *set = d->containers; set; set = set->next)
        for (struct container *c = set->first; c; c = c->next)
            if (c != but && strcmp(c->key, key) == 0 && (c->listener || !listening))
                return c;
    return NULL;
}

static int find_job(struct container *c, pid_t pid, struct job **ret, struct error *err)
{
    if (!container_holds(c, pid))
        return error_set(
            err, -EACCES,
            "the socket belongs to a container, and the process is not in that container");
    *ret = c->job;
    return *ret ? 0 : error_set(err, -EAGAIN, "the socket's container is not known to run");
}

void container_listen(struct container *c)
{
    struct daemon *d = c->set->daemon;
    const struct container *other = c->listener ? NULL : container_of_key(d, c, c->key, true);
    _cleanup_fd_ int fd = c->listener || other ? -1 : container_dir_open(d, c->key);
    int r;

    if (other)
        daemon_err("container %.12s: " CONTAINER_RUN_DIR
                   "/%s belongs to container %.12s: no agent can connect",
                   c->id, c->key, other->id);
    if (c->listener || other)
        return;
    r = fd < 0 ? fd : agent_socket_listen(d->agent_socket, fd, c, find_job, &c->listener);
    if (r < 0 && r != -ENOENT) /* without the directory only its cores are elastic */
        daemon_err("container %.12s: cannot make the agents' socket in " CONTAINER_RUN_DIR
                   "/%s: %s",
                   c->id, c->key, strerror(-r));
}
