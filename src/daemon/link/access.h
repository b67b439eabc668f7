/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permissions on agent.sock and in the HTTP interface, by the kernel's credentials of the caller at
 * the time it connected; docs/permissions.md has the table. Daemon's event loop only.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct job;
struct daemon;

/*
 * The process at the other end of a socket, as the kernel saw it when it connected; or the user
 * whom the gateway named (pid 0), who is in no group then.
 */
struct caller {
    pid_t pid;
    uid_t uid;
    bool admin; /* in the admin group, where a daemon serves all users … */
    bool power; /* … and in the group of those that measure and divide power */
};

/* Returns 0 or -errno. */
int control_identify(const struct daemon *d, int fd, struct caller *ret);

#define ACCESS_GATEWAY_HEADER "Tide-User"

/*
 * Whether the process @peer may name another user for a request by the header Tide-User with the
 * text @header, and so makes itself that user's: the gateway of tide.conf alone, with the number of
 * a user who is neither root nor the gateway itself. Returns 0 with *ret, or -EPERM with *err.
 */
int control_identify_named(const struct daemon *d, const struct caller *peer, const char *header,
                           struct caller *ret, struct error *err);

/* Whether @peer is the gateway, none of whose requests is its own. */
bool control_is_gateway(const struct daemon *d, const struct caller *peer);

/* Governs policy and every user's jobs: root and the daemon's own user. */
bool control_may_govern(const struct daemon *d, const struct caller *who);
/* May set the power lease and see what watts are worth: the unit of the machine's area. */
bool control_may_lease(const struct daemon *d, const struct caller *who);
bool control_may_use(const struct daemon *d, const struct caller *who); /* may have jobs here */
bool control_may_read(const struct daemon *d, const struct caller *who, const struct job *j);
bool control_may_change(const struct daemon *d, const struct caller *who, const struct job *j);
/* May see a job's watts: they tell what its program does. */
bool control_may_meter(const struct daemon *d, const struct caller *who, const struct job *j);
/* May hand readings of power down: what they say divides everybody's energy. */
bool control_may_power(const struct daemon *d, const struct caller *who);
/* May make a job of a process of user @uid, who then owns it. */
bool control_may_register(const struct caller *who, uid_t uid);
/* May make a job of a container or release it: the job is root's, like the engine. */
bool control_may_adopt(const struct daemon *d, const struct caller *who);
/* May have its process become a job when an agent connects. */
bool control_may_join(const struct daemon *d, const struct caller *who);
/* May report as a process of @j: only its user, since reports are believed. */
bool control_may_speak(const struct caller *who, const struct job *j);

/*
 * Finds the job that a person names by @text: its id, name or a pid, else the beginning of its
 * container's id, or its Compose service. Returns NULL if @who has none (-ESRCH), or the service
 * has several (-EEXIST, *err names them).
 */
struct job *control_find(const struct daemon *d, const struct caller *who, const char *text,
                         struct error *err);
