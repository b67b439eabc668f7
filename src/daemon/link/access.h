/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what, on agent.sock and in the HTTP interface, by what the kernel says of a peer when
 * it connects; the table is docs/permissions.md. Daemon's event loop only.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct job;
struct daemon;

/* Who is at the other end of a socket: the kernel's word, at the moment when it connected. */
struct caller {
    pid_t pid;
    uid_t uid;
    bool admin; /* of the admin group, on a daemon that serves everybody */
};

/* Returns 0 or -errno. */
int control_identify(const struct daemon *d, int fd, struct caller *ret);

/* What root may, and the daemon's own user: the policy, everybody's jobs. */
bool control_may_govern(const struct daemon *d, const struct caller *who);
bool control_may_use(const struct daemon *d, const struct caller *who); /* have jobs here at all */
bool control_may_read(const struct daemon *d, const struct caller *who, const struct job *j);
bool control_may_change(const struct daemon *d, const struct caller *who, const struct job *j);
/* Make a job of a process of user @uid, whose job it will be. */
bool control_may_register(const struct caller *who, uid_t uid);
/* Make a job of a container, or let it go: it is root's, as whoever may use its engine is. */
bool control_may_adopt(const struct daemon *d, const struct caller *who);
/* Have a process become a job by its agent's word alone. */
bool control_may_join(const struct daemon *d, const struct caller *who);
/* Report as a process of @j: its user alone, for whatever others say would be believed. */
bool control_may_speak(const struct caller *who, const struct job *j);

/*
 * The job that a person means by @text: its id, name or one of its pids, else the beginning of its
 * container's id, or its Compose service. NULL: there is none for @who (-ESRCH), or that service
 * has several (-EEXIST, and *err names them).
 */
struct job *control_find(const struct daemon *d, const struct caller *who, const char *text,
                         struct error *err);
