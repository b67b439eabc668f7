/* SPDX-License-Identifier: Apache-2.0 */
/* Machines from the nodes of a Kubernetes cluster, by kubectl and with its rights. */
#include "cli/remote/inventory.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/remote/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERROR_WORD "bad-inventory"

#define KUBECTL_MS 30000 /* its own limit does not bound a program that fetches credentials */
#define ANSWER_MAX (INVENTORY_MACHINES_MAX * (INVENTORY_NAME_MAX + 64))

extern char **environ;

static int start(const char *selector, int out, pid_t *ret)
{
    static char nodes[] = "-o=jsonpath={range .items[*]}{.metadata.name}{\" \"}"
                          "{.status.addresses[?(@.type==\"InternalIP\")].address}{\"\\n\"}{end}";
    char *argv[] = {"kubectl",        "get", "nodes", "--request-timeout=10s", "-l",
                    (char *)selector, nodes, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int r = dial_signals(&attributes);

    if (r != 0)
        return -r;
    r = posix_spawn_file_actions_init(&actions);
    if (r != 0) {
        posix_spawnattr_destroy(&attributes);
        return -r;
    }
    r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawnp(ret, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

/* Reads to the end; a longer answer is cut. Returns the text or NULL; *ret_late: it came to none.
 */
static char *read_all(int fd, bool *ret_late)
{
    uint64_t until_ns = clock_now_ns() + KUBECTL_MS * NS_PER_MS;
    char *text = malloc(ANSWER_MAX + 1);
    size_t len = 0;

    *ret_late = false;
    while (text && len < ANSWER_MAX) {
        uint64_t now_ns = clock_now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = now_ns < until_ns ? poll(&p, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1) : 0;
        ssize_t n = ready > 0 ? read(fd, text + len, ANSWER_MAX - len) : 0;

        if ((ready < 0 || n < 0) && errno == EINTR)
            continue;
        *ret_late = ready == 0;
        if (ready <= 0 || n <= 0)
            break;
        len += (size_t)n;
    }
    if (text)
        text[len] = '\0';
    return text;
}

/* "NAME ADDRESS [ADDRESS…]" a line */
static int take_nodes(struct inventory *i, char *text, const char *template, struct error *err)
{
    char *line;
    int r = 0;

    while (r == 0 && (line = strsep(&text, "\n"))) {
        char *name = strsep(&line, " "), *address = line ? strsep(&line, " ") : NULL;

        if (name && *name)
            r = inventory_add(i, name, address && *address ? address : name, "", template, err);
    }
    return r;
}

int inventory_from_nodes(struct inventory *i, const char *selector, const char *template,
                         struct error *err)
{
    _cleanup_free_ char *text = NULL;
    int pipes[2], status = 0, r;
    bool late = false;
    pid_t pid;

    if (*selector == '-' || !*selector)
        return error_set(err, -EINVAL, "kubernetes: a label selector is missing");
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
    r = start(selector, pipes[1], &pid);
    close(pipes[1]);
    if (r == 0)
        text = read_all(pipes[0], &late);
    close(pipes[0]);
    if (r < 0)
        return error_set(err, r == -ENOENT ? -EINVAL : r, "kubernetes: cannot run kubectl: %s",
                         strerror(-r));
    if (late)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (late)
        return error_set(err, -EINVAL, "kubernetes: kubectl has listed no nodes for %d s",
                         KUBECTL_MS / 1000);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, -EINVAL, "kubernetes: kubectl could not list the nodes");
    return take_nodes(i, text, template, err);
}
