/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into tided: as soon as a socket has its name, somebody else has put a link to $VICTIM
 * in its place, if it was made in the directory $VANDALISED. One thread; test_tided_hostile.py.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    const char *folder = getenv("VANDALISED"), *victim = getenv("VICTIM");
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)], there[4096] = "";
    int r = real(fd, addr, len);

    if (r < 0 || addr->sa_family != AF_UNIX || !folder || !victim)
        return r;
    memcpy(path, ((const struct sockaddr_un *)addr)->sun_path, sizeof(path));
    *strrchr(path, '/') = '\0';
    if (readlink(path, there, sizeof(there) - 1) > 0 && strcmp(there, folder) == 0) {
        strcat(path, "/agent.sock");
        unlink(path);
        if (symlink(victim, path) < 0)
            abort();
    }
    return r;
}
