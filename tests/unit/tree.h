/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree in a private temporary directory, written from a table: the recorded /proc, /sys
 * and cgroup files that readers with a settable root are tested on. Header only, single-threaded.
 */
#pragma once

#include <assert.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
    char path[32];
    int fd;
};

struct tree_file {
    const char *path; /* a trailing slash makes an empty directory */
    const char *text;
};

static inline void tree_write(const struct tree *tree, const char *path, const char *text)
{
    char part[512];
    int fd;

    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        mkdirat(tree->fd, part, 0755); /* mostly there already; a failure shows at openat */
    }
    if (path[strlen(path) - 1] == '/')
        return;
    fd = openat(tree->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror(path);
        abort();
    }
    close(fd);
}

static inline void tree_init(struct tree *tree, const struct tree_file *files, size_t n)
{
    strcpy(tree->path, "/tmp/tide-tree-XXXXXX");
    if (!mkdtemp(tree->path) ||
        (tree->fd = open(tree->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        perror(tree->path);
        abort();
    }
    for (size_t i = 0; i < n; i++)
        tree_write(tree, files[i].path, files[i].text);
}

static inline int tree_unlink(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static inline void tree_done(struct tree *tree)
{
    close(tree->fd);
    nftw(tree->path, tree_unlink, 16, FTW_DEPTH | FTW_PHYS);
}
