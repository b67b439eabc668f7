/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/sandbox.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ERROR_WORD "no-sandbox"

#define READ_FILE LANDLOCK_ACCESS_FS_READ_FILE
#define READ      (READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RUN       (READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define WRITE     LANDLOCK_ACCESS_FS_WRITE_FILE

/* The kernel may know it, and its headers not. */
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_CREATE_RULESET_VERSION
#define LANDLOCK_CREATE_RULESET_VERSION (1U << 0)
#endif

/*
 * The rights that a version of Landlock can take away: the first one, from reading a file to making
 * a link; the third one, to empty a file by its path, which is no writing. (The second one only
 * gives.)
 */
static uint64_t all_of(long version)
{
    uint64_t first = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

    return version >= 3 ? first | LANDLOCK_ACCESS_FS_TRUNCATE : first;
}

static const struct {
    const char *path;
    uint64_t rights;
} system_paths[] = {
    {"/usr", RUN},
    {"/bin", RUN},
    {"/sbin", RUN},
    {"/lib", RUN},
    {"/lib64", RUN},
    {"/opt", RUN},
    {"/etc/ld.so.cache", READ},
    {"/etc/ld.so.preload", READ},
    {"/etc/ssl", READ},
    {"/etc/nsswitch.conf", READ},
    {"/etc/passwd", READ},
    {"/etc/group", READ},
    {"/etc/hosts", READ},
    {"/etc/hosts.allow", READ},
    {"/etc/hosts.deny", READ},
    {"/etc/services", READ},
    {"/etc/host.conf", READ},
    {"/etc/resolv.conf", READ},
    {"/etc/gai.conf", READ},
    {"/etc/localtime", READ},
    {"/dev/null", READ | WRITE},
    {"/dev/urandom", READ},
};

/* A path that does not exist needs no right. */
static int allow(int rules, const char *path, uint64_t rights)
{
    _cleanup_fd_ int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr attr = {.allowed_access = rights, .parent_fd = fd};
    struct stat status;

    if (fd < 0)
        return errno == ENOENT || errno == EACCES ? 0 : -errno;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISDIR(status.st_mode))
        attr.allowed_access &= READ_FILE | WRITE | LANDLOCK_ACCESS_FS_EXECUTE;
    return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0 ? -errno
                                                                                           : 0;
}

/* Folders in which programs are looked for: mosquitto may lie in one of one's own. */
static int allow_programs(int rules)
{
    const char *list = getenv("PATH");
    _cleanup_free_ char *copy = strdup(list ? list : "");
    int r = copy ? 0 : -ENOMEM;

    for (char *rest = copy, *one; r == 0 && rest && (one = strsep(&rest, ":"));)
        if (*one == '/' && one[1])
            r = allow(rules, one, RUN);
    return r;
}

int sandbox_enter(const char *dir, struct error *err)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    const struct landlock_ruleset_attr attr = {.handled_access_fs = all_of(version)};
    _cleanup_fd_ int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    int r = 0;

    if (rules < 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM))
        return error_set(err, -EOPNOTSUPP, "the kernel has no Landlock, or forbids it");
    if (rules < 0)
        return error_set(err, -errno, "no sandbox: %s", strerror(errno));
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(system_paths); i++)
        r = allow(rules, system_paths[i].path, system_paths[i].rights);
    if (r == 0)
        r = allow_programs(rules);
    if (r == 0)
        r = allow(rules, dir, READ);
    if (r == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                   syscall(SYS_landlock_restrict_self, rules, 0) < 0))
        r = -errno;
    return r < 0 ? error_set(err, r, "no sandbox: %s", strerror(-r)) : 0;
}
