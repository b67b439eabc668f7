/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/gateway.h"

#include "base/cleanup.h"
#include "base/wholefile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-gateway-file"

#define BLANKS " \t\r"

/* Letters of a token: a header has no room for anything else. */
#define TOKEN_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

static int take_token(const char *text, char ret[GATEWAY_TEXT_MAX], struct error *err)
{
    size_t len = strlen(text);

    if (len == 0 || len >= GATEWAY_TEXT_MAX || strspn(text, TOKEN_LETTERS) != len)
        return error_set(err, -EINVAL,
                         "the token is empty, too long, or has other characters than "
                         "a token of tide-gate");
    memcpy(ret, text, len + 1);
    return 0;
}

static int take_path(const char *text, char ret[GATEWAY_TEXT_MAX], struct error *err)
{
    if (*text != '/' || strlen(text) >= GATEWAY_TEXT_MAX)
        return error_set(err, -EINVAL, "'%.60s' is no absolute path", text);
    strcpy(ret, text);
    return 0;
}

static int take_word(const char *word, bool all, struct gateway *g, struct error *err)
{
    if (strncmp(word, "token=", 6) == 0)
        return all ? error_set(err, -EINVAL, "a token is for one gateway: name it instead of '*'")
                   : take_token(word + 6, g->token, err);
    if (strncmp(word, "ca=", 3) == 0)
        return take_path(word + 3, g->ca, err);
    if (strncmp(word, "cert=", 5) == 0)
        return take_path(word + 5, g->cert, err);
    if (strncmp(word, "key=", 4) == 0)
        return take_path(word + 4, g->key, err);
    return error_set(err, -EINVAL, "'%.20s' is neither token=, ca=, cert= nor key=", word);
}

/* 2: the line is for @a, 1: for all, 0: for another one. */
static int fits(const char *host, const struct address *a)
{
    char text[ADDRESS_TEXT_MAX];
    struct address one;

    if (strcmp(host, "*") == 0)
        return 1;
    snprintf(text, sizeof(text), "https://%s", host);
    return address_parse(text, &one, NULL) == 0 && address_equal(&one, a) ? 2 : 0;
}

static int take_line(char *line, const struct address *a, int *ret_fits, struct gateway *ret,
                     struct error *err)
{
    struct gateway g = {0};
    const char *word;
    char *rest = line;
    int how, r = 0;

    line[strcspn(line, "#")] = '\0';
    word = strtok_r(line, BLANKS, &rest);
    how = word ? fits(word, a) : 0;
    if (how <= *ret_fits)
        return 0;
    while (r == 0 && (word = strtok_r(NULL, BLANKS, &rest)))
        r = take_word(word, how == 1, &g, err);
    if (r < 0)
        return r;
    *ret_fits = how;
    *ret = g;
    return 0;
}

static int find_file(char ret[PATH_MAX])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;

    if (config && *config == '/')
        n = snprintf(ret, PATH_MAX, "%s/tide/gateways", config);
    else if (home && *home == '/')
        n = snprintf(ret, PATH_MAX, "%s/.config/tide/gateways", home);
    return n < 0 || n >= PATH_MAX ? -ENOENT : 0;
}

static int read_file(const struct address *a, struct gateway *g, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    char path[PATH_MAX], *rest, *line;
    struct stat status;
    int r = find_file(path), how = 0;
    unsigned number = 0;
    size_t len;

    if (r == 0)
        r = wholefile_read(path, GATEWAY_FILE_MAX, &text, &len, &status);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    if (r < 0)
        return error_set(err, r, "%.180s: %s", path, strerror(-r));
    for (rest = text; r == 0 && (line = strsep(&rest, "\n"));) {
        struct error why = {0};

        number++;
        r = take_line(line, a, &how, g, &why);
        if (r < 0)
            error_set(err, r, "%.100s, line %u: %.120s", path, number, why.text);
    }
    if (r == 0 && *g->token && status.st_mode & 077)
        return error_set(err, -EPERM, "%.140s has a token, and others may read it: chmod 600 it",
                         path);
    return r;
}

int gateway_find(const struct address *a, struct gateway *ret, struct error *err)
{
    const char *token = a->named ? getenv(GATEWAY_TOKEN) : NULL;
    struct gateway g = {0};
    int r = read_file(a, &g, err);

    if (r == 0 && token && *token)
        r = take_token(token, g.token, err);
    if (r < 0)
        return error_word(err, r, "host-unreachable");
    *ret = g;
    return 0;
}

int gateway_headers(const struct address *a, char ret[GATEWAY_HEADERS_MAX], struct error *err)
{
    struct gateway g;
    int r;

    ret[0] = '\0';
    if (!a->gateway)
        return 0;
    r = gateway_find(a, &g, err);
    if (r == 0 && *g.token)
        snprintf(ret, GATEWAY_HEADERS_MAX, "Authorization: Bearer %s\r\n", g.token);
    return r;
}
