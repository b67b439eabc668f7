/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-host"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

#define SSH     "ssh://"
#define GATEWAY "https://"

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

static const char *parse_gateway(const char *rest, struct address *a)
{
    size_t len = strcspn(rest, "/");
    const char *wrong = take_host(rest, len, a);

    if (wrong)
        return wrong;
    if (rest[len] && strcmp(rest + len, "/") != 0)
        return "behind the host of a gateway stands a port, and nothing else";
    if (!*a->port)
        strcpy(a->port, ADDRESS_GATEWAY_PORT);
    a->gateway = true;
    return NULL;
}

static const char *parse_ssh(const char *rest, struct address *a)
{
    const char *wrong;
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
    const char *wrong = "it is ssh://[USER@]HOST[:PORT] or https://HOST[:PORT]";

    if (strncmp(text, SSH, strlen(SSH)) == 0)
        wrong = parse_ssh(text + strlen(SSH), &a);
    else if (strncmp(text, GATEWAY, strlen(GATEWAY)) == 0)
        wrong = parse_gateway(text + strlen(GATEWAY), &a);
    if (wrong)
        return error_set(err, -EINVAL, "'%.100s' is no address of a machine: %s", text, wrong);
    *ret = a;
    return 0;
}

bool address_equal(const struct address *a, const struct address *b)
{
    return a->gateway == b->gateway && strcmp(a->host, b->host) == 0 &&
           strcmp(a->user, b->user) == 0 && strcmp(a->port, b->port) == 0 &&
           strcmp(a->program, b->program) == 0;
}

void address_text(const struct address *a, char ret[ADDRESS_TEXT_MAX])
{
    bool bracket = strchr(a->host, ':');

    snprintf(ret, ADDRESS_TEXT_MAX, "%s%s%s%s%s%s%s%s%s", a->gateway ? GATEWAY : SSH, a->user,
             *a->user ? "@" : "", bracket ? "[" : "", a->host, bracket ? "]" : "",
             *a->port ? ":" : "", a->port, a->program);
}
