/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/link/access.h"

#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ERROR_WORD "no-such-job"

#define GROUPS_USUAL       64 /* of a caller, without an allocation */
#define CONTAINER_ID_SHORT 8  /* digits that name a container's job; a pid has fewer */

/* ---- who may do what ---- */

static bool has_group(int fd, gid_t group)
{
    gid_t few[GROUPS_USUAL], *all = few;
    socklen_t size = sizeof(few);
    bool found = false;

    /* -ERANGE returns the size that is needed; the kernel bounds it. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &size) < 0) {
        if (errno != ERANGE || !(all = malloc(size)))
            return false;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, all, &size) < 0)
            size = 0;
    }
    for (size_t i = 0; i < size / sizeof(gid_t) && !found; i++)
        found = all[i] == group;
    if (all != few)
        free(all);
    return found;
}

int control_identify(const struct daemon *d, int fd, struct caller *ret)
{
    struct ucred cred;
    socklen_t size = sizeof(cred);
    bool admins = d->uid == 0 && d->admin_gid != CONFIG_NOBODY;
    bool unit = d->uid == 0 && d->power_gid != CONFIG_NOBODY;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
        return -errno;
    *ret = (struct caller){
        .pid = cred.pid,
        .uid = cred.uid,
        .admin = admins && (cred.gid == d->admin_gid || has_group(fd, d->admin_gid)),
        .power = unit && (cred.gid == d->power_gid || has_group(fd, d->power_gid)),
    };
    return 0;
}

bool control_is_gateway(const struct daemon *d, const struct caller *peer)
{
    return d->uid == 0 && *d->config.gateway_user && peer->uid != 0 &&
           peer->uid == d->config.gateway_uid;
}

int control_identify_named(const struct daemon *d, const struct caller *peer, const char *header,
                           struct caller *ret, struct error *err)
{
    size_t digits = strspn(header, "0123456789");
    unsigned long long uid = strtoull(header, NULL, 10);

    if (!control_is_gateway(d, peer))
        return error_set(err, -EPERM,
                         "the header " ACCESS_GATEWAY_HEADER " is for the gateway of tide.conf, "
                         "and user %u is not its user",
                         (unsigned)peer->uid);
    if (digits == 0 || digits > 10 || header[digits] || uid > UINT32_MAX - 1)
        return error_set(err, -EPERM, "the gateway named '%.20s', which is no user's number",
                         header);
    if (uid == 0 || uid == peer->uid)
        return error_set(err, -EPERM,
                         "the gateway named user %u: it may be neither root nor the "
                         "gateway itself",
                         (unsigned)uid);
    *ret = (struct caller){.uid = (uid_t)uid};
    return 0;
}

bool control_may_govern(const struct daemon *d, const struct caller *who)
{
    return who->uid == 0 || who->uid == d->uid || who->admin;
}

bool control_may_lease(const struct daemon *d, const struct caller *who)
{
    return who->uid == 0 || who->uid == d->uid || who->power;
}

bool control_may_use(const struct daemon *d, const struct caller *who)
{
    return d->uid == 0 || control_may_govern(d, who);
}

bool control_may_change(const struct daemon *d, const struct caller *who, const struct job *j)
{
    return control_may_govern(d, who) || who->uid == j->uid;
}

bool control_may_read(const struct daemon *d, const struct caller *who, const struct job *j)
{
    return d->uid == 0 || control_may_change(d, who, j);
}

bool control_may_meter(const struct daemon *d, const struct caller *who, const struct job *j)
{
    return control_may_change(d, who, j);
}

bool control_may_power(const struct daemon *d, const struct caller *who)
{
    return control_may_govern(d, who) || who->power;
}

bool control_may_register(const struct caller *who, uid_t uid)
{
    return who->uid == 0 || who->uid == uid || who->admin;
}

bool control_may_adopt(const struct daemon *d, const struct caller *who)
{
    return control_may_govern(d, who);
}

bool control_may_join(const struct daemon *d, const struct caller *who)
{
    return d->uid == 0 || who->uid == d->uid;
}

bool control_may_speak(const struct caller *who, const struct job *j)
{
    return who->uid == j->uid;
}

/* ---- which job ---- */

/* The only job whose container's id begins with @text. */
static struct job *find_container(const struct daemon *d, const char *text)
{
    struct job *found = NULL;

    if (strlen(text) < CONTAINER_ID_SHORT)
        return NULL;
    for (struct job *j = d->jobs->first; j; j = j->next) {
        if (!j->container_id || strncmp(j->container_id, text, strlen(text)) != 0)
            continue;
        if (found)
            return NULL; /* ambiguous */
        found = j;
    }
    return found;
}

/* The only job of a Compose service; if there are several, *err names them. */
static struct job *find_service(const struct daemon *d, const struct caller *who,
                                const char *service, struct error *err)
{
    char names[ERROR_TEXT_MAX / 2] = "";
    struct job *found = NULL;
    unsigned count = 0;
    size_t len = 0;

    for (struct job *j = d->jobs->first; j; j = j->next) {
        if (strcmp(j->service, service) != 0 || !control_may_read(d, who, j))
            continue;
        if (len < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s (%s)",
                                    count ? ", " : "", j->name, j->id);
        found = j;
        count++;
    }
    if (count <= 1)
        return found;
    error_word(err,
               error_set(err, -EEXIST, "the service '%.60s' has %u jobs: %s%s", service, count,
                         names, len < sizeof(names) ? "" : "..."),
               "ambiguous-name");
    return NULL;
}

struct job *control_find(const struct daemon *d, const struct caller *who, const char *text,
                         struct error *err)
{
    struct job *j = job_find(d, text);

    error_word(err, error_set(err, -ESRCH, "there is no job '%.100s'", text), "no-such-job");
    if (!j)
        j = find_container(d, text);
    if (!j && *text)
        j = find_service(d, who, text, err);
    return j && control_may_read(d, who, j) ? j : NULL;
}
