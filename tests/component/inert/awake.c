/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in which the agent is awake (a pool was declared), and which then does what programs
 * do: `awake exit | fork | exec | closehalf | closeall DIR | dlclose LIBRARY [declare]`, and
 * `awake closelate SOCKET`, which it removes.
 * Exit status 0: all went as without the agent; what went wrong is on stderr.
 */
#include "agent/program_api.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OWN_SOCKETS 2    /* that wake the control thread */
#define REUSED      2000 /* files that take the numbers which closeall freed, the agent's among them */

static int threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n - 2;
}

static int fail(const char *what)
{
    fprintf(stderr, "awake: %s\n", what);
    return 1;
}

static int declare(void *library, unsigned max)
{
    const struct agent_program_api *api = dlsym(library, TIDE_AGENT_PROGRAM_API_SYMBOL);

    if (!api)
        return fail("no agent");
    if (api->declare(max) != 0)
        return fail("declare");
    /* Its thread is named in /proc once clone() has returned. */
    for (int i = 0; i < 3000 && threads() < 2; i++)
        usleep(10000);
    return threads() == 2 ? 0 : fail("no control thread");
}

static int do_fork(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (threads() != 1)
            _exit(fail("a child with a second thread"));
        /* Awake again in the child, on a connection of its own. */
        _exit(declare(RTLD_DEFAULT, 3));
    }
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return fail("the child failed");
    return threads() == 2 ? 0 : fail("the parent's control thread is gone");
}

static int sockets(void)
{
    char path[64];
    char target[64];
    int n = 0;

    for (int fd = 3; fd < 4096; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n += readlink(path, target, sizeof(target)) > 7 && !memcmp(target, "socket:", 7);
    }
    return n;
}

/* Every descriptor is closed and each number used again: the agent must not touch those files. */
static int do_closeall(const char *dir)
{
    static int fds[REUSED];
    char path[4096];

    for (int i = 0; i < 3000 && sockets() <= OWN_SOCKETS; i++)
        usleep(10000);
    for (int fd = 3; fd < 65536; fd++)
        close(fd);
    for (int i = 0; i < REUSED; i++) {
        snprintf(path, sizeof(path), "%s/%d", dir, i);
        fds[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fds[i] < 0)
            return fail("open");
    }
    /* Wakes the control thread again and again, and until it has connected anew. */
    for (int round = 0; round < 20 || (round < 3000 && sockets() <= OWN_SOCKETS); round++) {
        const struct agent_program_api *api = dlsym(RTLD_DEFAULT, TIDE_AGENT_PROGRAM_API_SYMBOL);

        api->set_local(1 + (unsigned)round % 2, 0);
        usleep(20000);
    }
    for (int i = 0; i < REUSED; i++)
        if (fcntl(fds[i], F_GETFD) < 0 || lseek(fds[i], 0, SEEK_END) != 0)
            return fail("a file was closed or written to");
    return threads() == 2 ? 0 : fail("the control thread is gone");
}

/* Each descriptor of the agent is closed, and its thread woken by another at once. */
static int do_closehalf(void)
{
    const struct agent_program_api *api = dlsym(RTLD_DEFAULT, TIDE_AGENT_PROGRAM_API_SYMBOL);

    signal(SIGPIPE, SIG_DFL);
    for (int fd = 3; fd < 4096; fd++) {
        if (close(fd) != 0)
            continue;
        api->set_local(1 + (unsigned)fd % 2, 0);
        usleep(300000); /* it has made them anew */
    }
    return threads() == 2 ? 0 : fail("the control thread is gone");
}

static double processor_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* The daemon has accepted nobody, and goes; then all descriptors are closed. */
static int do_closelate(const char *socket)
{
    double before;

    for (int i = 0; i < 3000 && sockets() <= OWN_SOCKETS; i++)
        usleep(10000);
    unlink(socket);
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    before = processor_s();
    sleep(2);
    return processor_s() - before < 0.5 ? 0 : fail("the control thread does not sleep");
}

static int do_dlclose(const char *path, int awake)
{
    void *library = dlopen(path, RTLD_NOW);

    if (!library)
        return fail(dlerror());
    if (awake && declare(library, 2) != 0)
        return 1;
    if (dlclose(library) != 0)
        return fail(dlerror());
    usleep(400000); /* a few ticks of its thread in code that must still be there */
    return threads() == 1 + awake ? 0 : fail("threads after dlclose");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    setvbuf(stderr, NULL, _IOLBF, 0);
    if (!strcmp(what, "count"))
        return threads() == 1 ? 0 : fail("a second thread after exec");
    if (!strcmp(what, "dlclose") && argc > 2)
        return do_dlclose(argv[2], argc > 3);
    if (declare(RTLD_DEFAULT, 4) != 0)
        return 1;
    if (!strcmp(what, "exit"))
        return 0;
    if (!strcmp(what, "fork"))
        return do_fork();
    if (!strcmp(what, "closehalf"))
        return do_closehalf();
    if (!strcmp(what, "closelate") && argc > 2)
        return do_closelate(argv[2]);
    if (!strcmp(what, "closeall") && argc > 2)
        return do_closeall(argv[2]);
    if (!strcmp(what, "exec"))
        execl("/proc/self/exe", argv[0], "count", (char *)NULL);
    return fail("usage");
}
