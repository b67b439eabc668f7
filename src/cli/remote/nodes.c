/* SPDX-License-Identifier: Apache-2.0 */
/* Machines from the nodes of a Kubernetes cluster, by kubectl and with its rights. */
#include "cli/remote/inventory.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAX (INVENTORY_MACHINES_MAX * (INVENTORY_NAME_MAX + 64))

extern char **environ;

static int start(const char *selector, int out, pid_t *ret)
{
    static char nodes[] = "-o=jsonpath={range .items[*]}{.metadata.name}{\" \"}"
                          "{.status.addresses[?(@.type==\"InternalIP\")].address}{\"\\n\"}{end}";
    char *argv[] = {"kubectl",        "get", "nodes", "--request-timeout=10s", "-l",
                    (char *)selector, nodes, NULL};
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);

    if (r != 0)
        return -r;
    r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawnp(ret, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* Reads to the end; a longer answer is cut. Returns the text or NULL. */
static char *read_all(int fd)
{
    char *text = malloc(ANSWER_MAX + 1);
    size_t len = 0;

    while (text && len < ANSWER_MAX) {
        ssize_t n = read(fd, text + len, ANSWER_MAX - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
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
    pid_t pid;

    if (*selector == '-' || !*selector)
        return error_set(err, -EINVAL, "kubernetes: a label selector is missing");
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
    r = start(selector, pipes[1], &pid);
    close(pipes[1]);
    if (r == 0)
        text = read_all(pipes[0]);
    close(pipes[0]);
    if (r < 0)
        return error_set(err, r == -ENOENT ? -EINVAL : r, "kubernetes: cannot run kubectl: %s",
                         strerror(-r));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, -EINVAL, "kubernetes: kubectl could not list the nodes");
    return take_nodes(i, text, template, err);
}
