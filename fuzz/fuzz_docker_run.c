/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words behind `docker run`, one a line; the lines behind a line "%" are in the file ENV_FILE.
 * docker gets every word that is not tide's, in the same order.
 */
#include "cli/docker/docker_words.h"
#include "input.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS_MAX 64
#define FILE_FD   9
#define ENV_FILE  "/proc/self/fd/9" /* as the corpus calls it */

static const struct command command = {.name = "docker"};

static void write_file(const char *text)
{
    size_t len = text ? strlen(text) : 0;

    if (access(ENV_FILE, F_OK) < 0) {
        int fd = memfd_create("env-file", 0);

        CHECK(fd >= 0 && dup2(fd, FILE_FD) == FILE_FD);
        close(fd);
    }
    CHECK(ftruncate(FILE_FD, 0) == 0 && pwrite(FILE_FD, text, len, 0) == (ssize_t)len);
}

static void check_words(const struct docker_words *read, char *const *words, size_t n)
{
    size_t at = 0;

    CHECK(read->theirs.n <= n && (!read->theirs.word || !read->theirs.word[read->theirs.n]));
    for (size_t i = 0; i < read->theirs.n; i++) {
        const char *word = read->theirs.word[i];

        while (at < n && strncmp(words[at], word, strlen(word)) != 0) /* "-ite …" leaves "-it" */
            at++;
        CHECK(at++ < n);
    }
    for (at = 0; read->image && words[at] != read->image; at++)
        CHECK(at < n);
    CHECK(!member_long(read->terms, "max") ||
          member_long(read->terms, "min") <= member_long(read->terms, "max"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *rest = text, *words[WORDS_MAX + 1];
    char *file = strstr(text, "\n%\n");
    struct docker_words read;
    size_t n = 0;

    if (strstr(text, "/dev")) { /* avoids endless files */
        free(text);
        return 0;
    }
    if (file)
        *file = '\0';
    write_file(file ? file + 3 : NULL);
    while (n < WORDS_MAX && rest)
        words[n++] = strsep(&rest, "\n");
    words[n] = NULL;
    CHECK((size_t)docker_words_global(words) <= n);
    if (docker_words_read(&command, words, &read) == CLI_OK)
        check_words(&read, words, n);
    docker_words_done(&read);
    free(text);
    return 0;
}
