/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/owner.h"

#include "base/cleanup.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "host/proc/proc.h"

#define PASSES_MAX 4 /* over a group whose members fork */

int owner_check(const struct job *j, int pidfd, pid_t pid)
{
    if (j->confine->any_uid || j->uid == 0) /* whoever it is, as long as it is the same process */
        return proc_pidfd_signal(pidfd, 0) == -ESRCH ? -ESRCH : 0;
    return proc_check_owner(j->daemon->root, pidfd, pid, j->uid);
}

bool owner_agrees(const struct process *p)
{
    return owner_check(p->job, p->pidfd, p->pid) == 0;
}

int owner_check_pid(const struct job *j, pid_t pid)
{
    _cleanup_fd_ int pidfd = proc_pidfd_open(pid);

    return pidfd < 0 ? pidfd : owner_check(j, pidfd, pid);
}

/* Opens the descriptor first: what is read next is about the process that gets the signal. */
static bool signal_member(const struct job *j, pid_t pid, pid_t group, int signal)
{
    _cleanup_fd_ int pidfd = proc_pidfd_open(pid);
    struct proc_stat stat;

    return pidfd >= 0 && proc_read_stat(j->daemon->root, pid, &stat) == 0 && stat.group == group &&
           owner_check(j, pidfd, pid) == 0 && proc_pidfd_signal(pidfd, signal) == 0;
}

/*
 * kill(2) on the group would reach setuid programs, too. A pass that finds a new member is followed
 * by another, as members fork. Pids ascend, which tells those signalled before.
 */
unsigned owner_signal_group(const struct job *j, pid_t group, int signal)
{
    _cleanup_free_ pid_t *done = NULL;
    size_t n_done = 0, n;
    unsigned signalled = 0;

    for (unsigned pass = 0; pass < PASSES_MAX; pass++) {
        _cleanup_free_ pid_t *pids = NULL;
        size_t n_now = 0, k = 0;
        bool found = false;

        if (proc_list(j->daemon->root, &pids, &n) < 0)
            break;
        for (size_t i = 0; i < n; i++) {
            struct proc_stat stat;

            if (proc_read_stat(j->daemon->root, pids[i], &stat) < 0 || stat.group != group)
                continue;
            pids[n_now++] = stat.pid;
            while (k < n_done && done[k] < stat.pid)
                k++;
            if (k < n_done && done[k] == stat.pid)
                continue;
            found = true;
            signalled += signal_member(j, stat.pid, group, signal);
        }
        if (!found)
            break;
        free(done);
        done = TAKE_PTR(pids);
        n_done = n_now;
    }
    return signalled;
}
