/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/tokens.h"

#include "base/cleanup.h"
#include "base/wholefile.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "config-error"

#define BLANKS " \t\r"
#define HEX    "0123456789abcdef"
#define DIGITS "0123456789"

/* ---- the file ---- */

static bool is_of(const char *text, const char *letters, size_t least, size_t most)
{
    size_t len = strlen(text);

    return len >= least && len <= most && strspn(text, letters) == len;
}

static int take_line(char *line, struct tokens *t, struct error *err)
{
    const char *word[5] = {0};
    struct token *more;
    char *rest = line;
    size_t n = 0;

    line[strcspn(line, "#")] = '\0';
    while (n < ARRAY_LEN(word) && (word[n] = strtok_r(n ? NULL : line, BLANKS, &rest)))
        n++;
    if (n == 0)
        return 0;
    if (n != 4 || strlen(word[0]) >= CONF_NAME_MAX ||
        !is_of(word[1], HEX, TOKEN_ID_LEN, TOKEN_ID_LEN) ||
        !is_of(word[2], HEX, SECRET_LEN, SECRET_LEN) || !is_of(word[3], DIGITS, 1, 15))
        return error_set(err, -EINVAL, "a line is USER ID HASH UNTIL, as 'tide-gate token' writes");
    if (t->n == TOKENS_MAX)
        return error_set(err, -EINVAL, "there are more than %d tokens", TOKENS_MAX);
    more = realloc(t->of, (t->n + 1) * sizeof(*more));
    if (!more)
        return error_set(err, -ENOMEM, "out of memory");
    t->of = more;
    more += t->n++;
    strcpy(more->user, word[0]);
    strcpy(more->id, word[1]);
    strcpy(more->hash, word[2]);
    more->until_s = strtoll(word[3], NULL, 10);
    return 0;
}

int gate_tokens_parse(char *text, struct tokens *ret, struct error *err)
{
    struct tokens t = {0};
    unsigned number = 0;
    char *line;
    int r = 0;

    while (r == 0 && (line = strsep(&text, "\n"))) {
        struct error why = {0};

        number++;
        r = take_line(line, &t, &why);
        if (r < 0)
            error_set(err, r, "line %u: %.200s", number, why.text);
    }
    if (r < 0)
        gate_tokens_done(&t);
    else
        *ret = t;
    return r;
}

int gate_tokens_read(const char *path, struct tokens *ret, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct error why = {0};
    struct stat status;
    size_t len;
    int r = wholefile_read(path, TOKENS_BYTES_MAX, &text, &len, &status);

    if (r == -ENOENT) {
        *ret = (struct tokens){0};
        return 0;
    }
    if (r < 0)
        return error_set(err, r, "%.200s: %s", path, strerror(-r));
    if (status.st_mode & 022)
        return error_set(err, -EPERM, "%.200s: others may write it: chmod go-w it", path);
    r = gate_tokens_parse(text, ret, &why);
    return r < 0 ? error_set(err, r, "%.100s, %.150s", path, why.text) : 0;
}

void gate_tokens_done(struct tokens *t)
{
    free(t->of);
    *t = (struct tokens){0};
}

/* ---- one of them ---- */

const struct token *gate_tokens_by_id(const struct tokens *t, const char *id, int64_t now_s)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->of[i].id, id) == 0)
            return t->of[i].until_s == 0 || t->of[i].until_s > now_s ? &t->of[i] : NULL;
    return NULL;
}

const struct token *gate_tokens_find(const struct tokens *t, const char *text, int64_t now_s)
{
    char id[TOKEN_ID_LEN + 1], hash[SECRET_LEN + 1];
    const struct token *found;

    if (strlen(text) != TOKEN_LEN || text[TOKEN_ID_LEN] != '-')
        return NULL;
    snprintf(id, sizeof(id), "%.*s", TOKEN_ID_LEN, text);
    found = gate_tokens_by_id(t, id, now_s);
    return found && secret_hash(text, TOKEN_LEN, hash) == 0 && strcmp(found->hash, hash) == 0
               ? found
               : NULL;
}

static int make(char ret[TOKEN_LEN + 1])
{
    char id[SECRET_LEN + 1], secret[SECRET_LEN + 1];
    int r = secret_make(id);

    if (r == 0)
        r = secret_make(secret);
    if (r == 0)
        snprintf(ret, TOKEN_LEN + 1, "%.*s-%s", TOKEN_ID_LEN, id, secret);
    return r;
}

/* In one write, so that two who add at the same time have a line each. */
static int append(const char *path, const char *line, const char *group, struct error *err)
{
    _cleanup_fd_ int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    const struct group *entry;
    bool fresh = false;

    if (fd < 0 && errno == ENOENT) {
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
        fresh = true;
    }
    if (fd < 0)
        return error_set(err, -errno, "%.200s: %s", path, strerror(errno));
    entry = fresh && geteuid() == 0 ? getgrnam(group) : NULL;
    if (entry && fchown(fd, (uid_t)-1, entry->gr_gid) < 0)
        return error_set(err, -errno, "%.200s: %s", path, strerror(errno));
    if (write(fd, line, strlen(line)) != (ssize_t)strlen(line) || fsync(fd) < 0)
        return error_set(err, -EIO, "%.200s: the line could not be written", path);
    return 0;
}

int gate_tokens_add(const char *path, const char *user, int64_t until_s, const char *group,
                    char ret[TOKEN_LEN + 1], struct error *err)
{
    char token[TOKEN_LEN + 1], hash[SECRET_LEN + 1], line[CONF_NAME_MAX + TOKEN_LEN + 64];
    int r;

    if (!*user || strlen(user) >= CONF_NAME_MAX || strpbrk(user, "#" BLANKS "\n"))
        return error_set(err, -EINVAL, "'%.60s' is no name of a user", user);
    r = make(token);
    if (r == 0)
        r = secret_hash(token, TOKEN_LEN, hash);
    if (r < 0)
        return error_set(err, r, "cannot make a token: %s", strerror(-r));
    snprintf(line, sizeof(line), "%s %.*s %s %" PRId64 "\n", user, TOKEN_ID_LEN, token, hash,
             until_s);
    r = append(path, line, group, err);
    if (r == 0)
        strcpy(ret, token);
    return r;
}
