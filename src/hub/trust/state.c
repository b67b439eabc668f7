/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/state.h"

#include "base/cleanup.h"
#include "base/wholefile.h"
#include "hub/trust/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#define ERROR_WORD "hub-state"

#define LIST_MAX (16 << 20) /* bytes of the list of revoked certificates */

int state_path(const struct state *s, const char *name, char *ret, size_t size, struct error *err)
{
    int n = snprintf(ret, size, "%s/%s", s->dir, name);

    return n < 0 || (size_t)n >= size
               ? error_set(err, -ENAMETOOLONG, "the path of the state is too long")
               : 0;
}

/* A file of another user's here could not be read by the service any more. */
static int check_owner(const struct state *s, struct error *err)
{
    struct stat status;
    const struct passwd *owner;

    if (stat(s->dir, &status) < 0)
        return error_set(err, -errno, "%s: %s", s->dir, strerror(errno));
    if (status.st_uid == geteuid())
        return 0;
    owner = getpwuid(status.st_uid);
    return error_set(err, -EPERM, "%s belongs to another user: run it as sudo -u %s tide-hub …",
                     s->dir, owner ? owner->pw_name : "#UID");
}

static int make_dirs(const struct state *s, char *path, size_t size, struct error *err)
{
    static const char *const names[] = {".", "broker"};

    for (int i = 0; i < 2; i++) {
        int r = state_path(s, names[i], path, size, err);

        if (r < 0)
            return r;
        if (mkdir(i ? path : s->dir, 0700) < 0 && errno != EEXIST)
            return error_set(err, -errno,
                             i ? "cannot make %s: %s"
                               : "cannot make %s: %s: let root make it, as install -d -m 700 -o "
                                 "tide-hub, and run this as that user",
                             i ? path : s->dir, strerror(errno));
        if (i == 0 && (r = check_owner(s, err)) < 0)
            return r;
    }
    return 0;
}

int state_open(const char *dir, struct state *ret, struct error *err)
{
    struct state s = {.dir = dir, .lock = -1};
    char path[PATH_MAX];
    int r = make_dirs(&s, path, sizeof(path), err);

    if (r >= 0)
        r = state_path(&s, "lock", path, sizeof(path), err);
    if (r < 0)
        return r;
    s.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s.lock < 0 || flock(s.lock, LOCK_EX) < 0) {
        r = error_set(err, -errno, "cannot lock %s: %s", path, strerror(errno));
        close_fd(s.lock);
        return r;
    }
    r = state_path(&s, "trust", path, sizeof(path), err);
    if (r >= 0)
        r = authority_open(path, "the organization", time(NULL), &s.authority, err);
    if (r < 0)
        close_fd(s.lock);
    else
        *ret = s;
    return r;
}

void state_close(struct state *s)
{
    s->authority = authority_free(s->authority);
    s->lock = close_fd(s->lock);
}

int state_put(const struct state *s, const char *name, const char *text, struct error *err)
{
    struct stat status = {.st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid()};
    char path[PATH_MAX];
    int r = state_path(s, name, path, sizeof(path), err);

    if (r < 0)
        return r;
    r = text ? wholefile_replace(path, text, strlen(text), &status) : -ENOMEM;
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* Without a certificate while the key changes: a pair that does not match would never be noticed.
 */
static int make_hub(const struct state *s, int64_t now_s, struct error *err)
{
    struct identity_pem hub = {0};
    char path[PATH_MAX];
    int r = state_path(s, "hub.crt", path, sizeof(path), err);

    if (r >= 0)
        r = authority_hub(s->authority, now_s, &hub, err);
    if (r >= 0 && unlink(path) < 0 && errno != ENOENT)
        r = error_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
    if (r >= 0)
        r = state_put(s, "hub.key", hub.key, err);
    if (r >= 0)
        r = state_put(s, "hub.crt", hub.cert, err);
    identity_pem_done(&hub);
    return r;
}

int state_renew(const struct state *s, int64_t now_s, bool now, struct error *err)
{
    _cleanup_free_ char *cert = NULL;
    char path[PATH_MAX];
    struct stat status;
    size_t len;
    int r = state_path(s, "hub.crt", path, sizeof(path), err);

    if (r < 0)
        return r;
    if (!now && wholefile_read(path, 65536, &cert, &len, &status) == 0 &&
        identity_expires_s(cert) > now_s + STATE_RENEW_DAYS * INT64_C(86400))
        return 0;
    return make_hub(s, now_s, err);
}

pid_t state_pid(const char *dir, const char *name, const char *program)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_file_ FILE *f = NULL;
    char path[PATH_MAX], comm[32] = "";
    struct stat status;
    size_t len;
    long pid;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path) ||
        wholefile_read(path, 64, &text, &len, &status) < 0)
        return 0;
    pid = strtol(text, NULL, 10);
    if (pid < 1 || pid > INT_MAX) /* in a container it may be the first */
        return 0;
    snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    f = fopen(path, "re");
    if (!f || !fgets(comm, sizeof(comm), f))
        return 0;
    comm[strcspn(comm, "\n")] = '\0';
    return strcmp(comm, program) == 0 ? (pid_t)pid : 0;
}

int state_put_broker(const struct state *s, struct error *err)
{
    const char *list_path = authority_list_path(s->authority);
    _cleanup_free_ char *acl = broker_acl(s->authority), *list = NULL;
    struct stat status;
    size_t len;
    int r = wholefile_read(list_path, LIST_MAX, &list, &len, &status);

    if (r < 0)
        return error_set(err, r, "cannot read %s: %s", list_path, strerror(-r));
    r = state_put(s, "broker/acl", acl, err);
    if (r >= 0)
        r = state_put(s, "broker/ca.crt", authority_ca(s->authority), err);
    return r < 0 ? r : state_put(s, "broker/revoked.crl", list, err);
}

int state_tell_broker(const struct state *s, struct error *err)
{
    char path[PATH_MAX];
    pid_t pid;
    int r = state_path(s, "broker/acl", path, sizeof(path), err);

    if (r < 0 || access(path, F_OK) < 0)
        return r;
    r = state_put_broker(s, err);
    if (r < 0)
        return r;
    pid = state_pid(s->dir, "broker/pid", "mosquitto");
    if (pid && kill(pid, SIGHUP) < 0)
        return error_set(err, -errno, "cannot tell the broker (pid %d): %s", (int)pid,
                         strerror(errno));
    return 0;
}
