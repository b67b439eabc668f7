/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/proc.h"

#include "base/cleanup.h"

#include <errno.h>
#include <sys/socket.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

int proc_check_owner(int root, int pidfd, pid_t pid, uid_t uid)
{
    struct proc_status status;
    int r = proc_read_status(root, pid, &status);

    if (r < 0)
        return r;
    /* The process is alive after the look: no other process had the pid until then. */
    if (proc_pidfd_ended(pidfd))
        return -ESRCH;
    return proc_all_of(&status, uid) ? 0 : -EPERM;
}

int proc_identify_peer(int root, int socket, pid_t pid, uid_t uid, uint64_t *ret_start)
{
    _cleanup_fd_ int pidfd = -1;
    socklen_t size = sizeof(pidfd);
    struct proc_stat stat;
    int r;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) < 0) {
        /* Any other error means that the peer has ended: its pid may be another's by now. */
        if (errno != ENOPROTOOPT)
            return -ESRCH;
        pidfd = proc_pidfd_open(pid);
    }
    if (pidfd < 0)
        return -ESRCH;
    r = proc_read_stat(root, pid, &stat);
    if (r == 0)
        r = proc_check_owner(root, pidfd, pid, uid);
    if (r == 0)
        *ret_start = stat.start;
    return r;
}
