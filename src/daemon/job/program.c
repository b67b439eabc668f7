/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/program.h"

#include "base/cleanup.h"
#include "base/fnv.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096

/* ---- the shape of arguments ------------------------------------------------------------------ */

static bool is_digit(const char *text, const char *end)
{
    return text < end && *text >= '0' && *text <= '9';
}

/* Behind a number: digits, with a point and an exponent where digits follow these. */
static const char *skip_number(const char *text, const char *end)
{
    while (is_digit(text, end)) {
        const char *next = text + 1;

        if (next < end && *next == '.' && is_digit(next + 1, end))
            next++;
        else if (next < end && (*next == 'e' || *next == 'E')) {
            const char *exponent = next + 1;

            exponent += exponent < end && (*exponent == '-' || *exponent == '+');
            next = is_digit(exponent, end) ? exponent : next;
        }
        text = next;
    }
    return text;
}

static uint64_t add_without_numbers(uint64_t hash, const char *text, const char *end)
{
    while (text < end) {
        if (is_digit(text, end)) {
            hash = fnv_bytes(hash, "0", 1);
            text = skip_number(text, end);
        } else {
            hash = fnv_bytes(hash, text++, 1);
        }
    }
    return hash;
}

/* The last component of each part between '='. */
static uint64_t add_word(uint64_t hash, const char *word)
{
    for (;;) {
        const char *end = word + strcspn(word, "="), *last = end, *from;

        while (last > word + 1 && last[-1] == '/')
            last--;
        for (from = last; from > word && from[-1] != '/';)
            from--;
        hash = add_without_numbers(hash, from, last);
        hash = fnv_bytes(hash, end, 1); /* '=' or NUL */
        if (!*end)
            return hash;
        word = end + 1;
    }
}

/* Appends the components of @path to @text, an absolute path; "." and ".." as they read. */
static void append_path(char *text, size_t size, const char *path)
{
    size_t len = strlen(text);

    for (size_t n; *(path += strspn(path, "/")); path += n) {
        n = strcspn(path, "/");
        if (n == 1 && path[0] == '.')
            continue;
        if (n == 2 && path[0] == '.' && path[1] == '.') {
            while (len > 0 && text[--len] != '/')
                ;
        } else if (len + 1 + n < size) {
            text[len++] = '/';
            memcpy(text + len, path, n);
            len += n;
        }
        text[len] = '\0';
    }
}

static uint64_t add_path(uint64_t hash, const char *cwd, const char *path)
{
    char text[2 * PATH_MAX] = "";

    if (path[0] != '/')
        append_path(text, sizeof(text), cwd);
    append_path(text, sizeof(text), path);
    return fnv_bytes(hash, text, strlen(text) + 1);
}

uint64_t program_hash(const char *exe, uint64_t inode, const char *cwd, const char *words,
                      size_t len)
{
    uint64_t hash = fnv_bytes(FNV_START, exe, strlen(exe) + 1);
    bool named = false;

    hash = fnv_bytes(hash, &inode, sizeof(inode));
    for (const char *word = words, *end = words + len; word < end; word += strlen(word) + 1) {
        if (word == words || !*word)
            continue;
        if (*word != '-' && !named) {
            named = true;
            hash = add_path(hash, cwd, word);
        } else {
            hash = add_word(hash, word);
        }
    }
    return hash;
}

/* ---- /proc ----------------------------------------------------------------------------------- */

static int read_link(int root, pid_t pid, const char *which, char ret[PATH_MAX])
{
    char name[48];
    ssize_t len;

    snprintf(name, sizeof(name), "proc/%d/%s", (int)pid, which);
    len = readlinkat(root, name, ret, PATH_MAX - 1);
    if (len < 0)
        return -errno;
    ret[len] = '\0';
    return 0;
}

/*
 * The kernel tells the inode with the mappings, of which the executable's are the first: asking the
 * file itself could wait for a server. Returns 0 where it is not found.
 */
static uint64_t read_inode(int root, pid_t pid, const char *exe)
{
    char name[48], maps[PAGE + 1];
    size_t len = strlen(exe);

    snprintf(name, sizeof(name), "proc/%d/maps", (int)pid);
    if (file_read(root, name, maps, sizeof(maps)) < 0)
        return 0;
    for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
        uint64_t inode;
        int path = 0;

        if (sscanf(line, "%*s %*s %*s %*s %" SCNu64 " %n", &inode, &path) == 1 && path > 0 &&
            (size_t)(end - line - path) == len && memcmp(line + path, exe, len) == 0)
            return inode;
    }
    return 0;
}

int program_read(int root, pid_t pid, uint64_t *ret)
{
    _cleanup_free_ char *words = NULL;
    char exe[PATH_MAX], cwd[PATH_MAX];
    size_t len;
    int r = read_link(root, pid, "exe", exe);

    if (r == 0)
        r = read_link(root, pid, "cwd", cwd);
    if (r == 0)
        r = proc_read_cmdline(root, pid, &words, &len);
    if (r == 0 && len == 0)
        r = -ESRCH;
    if (r == 0)
        *ret = program_hash(exe, read_inode(root, pid, exe), cwd, words, len);
    return r;
}

uint64_t program_processor(int root)
{
    /* The lines, from the first to the last, that tell processors of x86-64 and aarch64 apart. */
    static const char *const lines[][2] = {{"\nmodel name", "\nmodel name"},
                                           {"\nCPU implementer", "\nCPU part"}};
    char text[PAGE + 1] = "";

    if (file_read(root, "proc/cpuinfo", text, sizeof(text)) < 0)
        return FNV_START;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        const char *from = strstr(text, lines[i][0]), *to = from ? strstr(from, lines[i][1]) : NULL;

        if (to)
            return fnv_bytes(FNV_START, from + 1, (size_t)(to - from) + strcspn(to + 1, "\n"));
    }
    return FNV_START;
}
