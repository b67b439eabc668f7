/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/address.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

#define SCHEME "ssh://"

/* Copies @len bytes if they are of @allowed and do not begin as an option does. */
static bool take(const char *from, size_t len, const char *allowed, char *to, size_t size)
{
    if (len >= size || *from == '-')
        return false;
    memcpy(to, from, len);
    to[len] = '\0';
    return strspn(to, allowed) == len;
}

static bool good_port(const char *text)
{
    return strlen(text) <= 5 && strspn(text, "0123456789") == strlen(text) && atoi(text) > 0 &&
           atoi(text) < 65536;
}

/* "HOST", "HOST:PORT", "[ADDRESS]:PORT" */
static const char *take_host(const char *text, size_t len, struct address *a)
{
    bool bracket = *text == '[';
    const char *end = bracket ? memchr(text, ']', len) : memchr(text, ':', len);
    size_t host = end ? (size_t)(end - text) : len;
    const char *port;

    if (bracket && !end)
        return "a bracket is not closed";
    if (host == bracket || !take(text + bracket, host - bracket,
                                 bracket ? LETTERS ":.%" : LETTERS ".-_", a->host, sizeof(a->host)))
        return "the host's name is missing, or has other characters than letters, digits, '.', '-' "
               "and '_'";
    port = text + host + bracket;
    if (port == text + len)
        return NULL;
    if (*port != ':' ||
        !take(port + 1, len - (size_t)(port + 1 - text), "0123456789", a->port, sizeof(a->port)) ||
        !good_port(a->port))
        return "the port is no number from 1 to 65535";
    return NULL;
}

static const char *parse(const char *text, struct address *a)
{
    const char *rest = text + strlen(SCHEME), *wrong;
    size_t len = strcspn(rest, "/");
    const char *path = rest + len, *at = memchr(rest, '@', len);

    if (at &&
        (at == rest || !take(rest, (size_t)(at - rest), LETTERS "._-", a->user, sizeof(a->user))))
        return "the user's name has other characters than letters, digits, '.', '-' and '_'";
    if (at) {
        len -= (size_t)(at + 1 - rest);
        rest = at + 1;
    }
    wrong = take_host(rest, len, a);
    if (wrong || strcmp(path, "/") == 0 || !*path)
        return wrong;
    if (!take(path, strlen(path), LETTERS "/._+-", a->program, sizeof(a->program)))
        return "the program's path has other characters than letters, digits and /._+-";
    return NULL;
}

int address_parse(const char *text, struct address *ret, struct error *err)
{
    struct address a = {0};
    const char *wrong = strncmp(text, SCHEME, strlen(SCHEME)) == 0
                            ? parse(text, &a)
                            : "it is ssh://[USER@]HOST[:PORT]";

    if (wrong)
        return error_set(err, -EINVAL, "'%.100s' is no address of a machine: %s", text, wrong);
    *ret = a;
    return 0;
}

void address_text(const struct address *a, char ret[ADDRESS_TEXT_MAX])
{
    bool bracket = strchr(a->host, ':');

    snprintf(ret, ADDRESS_TEXT_MAX, SCHEME "%s%s%s%s%s%s%s%s", a->user, *a->user ? "@" : "",
             bracket ? "[" : "", a->host, bracket ? "]" : "", *a->port ? ":" : "", a->port,
             a->program);
}
