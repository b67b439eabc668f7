/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controllers on agent.sock: other schedulers and programs that list jobs, set targets, and lend,
 * borrow, reclaim or return cores (src/proto). An order is carried out within the same turn of the
 * loop. Daemon's event loop only; called by link.c.
 */
#pragma once

#include "base/error.h"
#include "daemon/job/job.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <sys/types.h>

struct job;
struct node;
struct peer;

/* A checked message. Returns 0, or -errno with *err: the peer is then hung up on. */
int control_message(struct peer *peer, const struct proto_control *m, struct error *err);

void control_writable(struct peer *peer); /* there is room in its socket again */
void control_gone(struct peer *peer);     /* it is about to be freed */

/* ---- who may do what, here and in the HTTP interface (docs/permissions.md) ---- */

/* Who is at the other end of a socket: the kernel's word, at the moment when it connected. */
struct caller {
    pid_t pid;
    uid_t uid;
    bool admin; /* of the admin group, on a daemon that serves everybody */
};

/* Returns 0 or -errno. */
int control_identify(const struct node *n, int fd, struct caller *ret);

/* What root may, and the daemon's own user: the policy, everybody's jobs. */
bool control_may_govern(const struct node *n, const struct caller *who);
bool control_may_use(const struct node *n, const struct caller *who); /* have jobs here at all */
bool control_may_read(const struct node *n, const struct caller *who, const struct job *j);
bool control_may_change(const struct node *n, const struct caller *who, const struct job *j);
/* Make a job of a process of user @uid, whose job it will be. */
bool control_may_register(const struct caller *who, uid_t uid);
/* Make a job of a container, or let it go: it is root's, as whoever may use its engine is. */
bool control_may_adopt(const struct node *n, const struct caller *who);
/* Have a process become a job by its agent's word alone. */
bool control_may_join(const struct node *n, const struct caller *who);
/* Report as a process of @j: its user alone, for whatever others say would be believed. */
bool control_may_speak(const struct caller *who, const struct job *j);

/*
 * The job that a person means by @text: its id, name or one of its pids, else the beginning of its
 * container's id, or its Compose service. NULL: there is none for @who (-ESRCH), or that service
 * has several (-EEXIST, and *err names them).
 */
struct job *control_find(const struct node *n, const struct caller *who, const char *text,
                         struct error *err);

/* Pins @j to @threads by hand; intra 0: automatic. Carried out at once. */
void control_pin(struct job *j, struct threads threads);

/*
 * `tide pin`: it stays at @threads (intra 0: what it has) and on @cores (NULL: what it has), and a
 * container's limits that a person changes from now on are left as they are. Until control_pin with
 * intra 0.
 */
void control_keep(struct job *j, struct threads threads, const struct cpuset *cores);
