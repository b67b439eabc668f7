/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/inventory.h"

#include "base/cleanup.h"
#include "base/visible.h"
#include "base/wholefile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "bad-inventory"

#define DNS        "dns:"
#define KUBERNETES "kubernetes:"
#define TEMPLATE   "ssh://*"

/* ---- machines ---- */

static const struct machine *find(const struct inventory *i, const char *name)
{
    for (size_t k = 0; k < i->n; k++)
        if (strcmp(i->machine[k].name, name) == 0)
            return &i->machine[k];
    return NULL;
}

static int add(struct inventory *i, const char *name, const char *address, struct error *err)
{
    struct machine m;
    int r = address_parse(address, &m.address, err);

    if (r < 0)
        return r;
    if (i->n == INVENTORY_MACHINES_MAX)
        return error_set(err, -ENOSPC, "there are more than %d machines", INVENTORY_MACHINES_MAX);
    r = snprintf(m.name, sizeof(m.name), "%s", name);
    visible(m.name); /* no terminal and no JSON takes other names */
    if (r >= (int)sizeof(m.name) || strcmp(m.name, name) != 0 || strchr(name, '/'))
        return error_set(err, -EINVAL, "'%.100s' is no name of a machine", name);
    if (find(i, name))
        return error_set(err, -EINVAL, "the machine '%.100s' stands there twice", name);
    i->machine[i->n++] = m;
    return 0;
}

/*
 * Name servers and nodes say no more than a host: a node writes its own address, which could have
 * a user and a program otherwise, on any machine.
 */
static bool is_host(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:%";

    return *text && strspn(text, allowed) == strlen(text);
}

int inventory_add(struct inventory *i, const char *name, const char *host, const char *port,
                  const char *template, struct error *err)
{
    const char *star = strchr(template ? template : TEMPLATE, '*');
    const char *from = template ? template : TEMPLATE;
    char address[ADDRESS_TEXT_MAX];
    bool bracket = strchr(host, ':');

    if (!star)
        return error_set(err, -EINVAL, "'%.100s' has no '*' for the machine", from);
    if (!is_host(host))
        return error_set(err, -EINVAL, "'%.100s' of '%.60s' is no host", host, name);
    snprintf(address, sizeof(address), "%.*s%s%s%s%s%s%s", (int)(star - from), from,
             bracket ? "[" : "", host, bracket ? "]" : "", *port && star[1] != ':' ? ":" : "",
             star[1] != ':' ? port : "", star + 1);
    return find(i, name) ? 0 : add(i, name, address, err);
}

/* ---- lines ---- */

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Takes the next word out of the line; NULL: there is none. */
static char *next_word(char **line)
{
    char *word = *line + strspn(*line, " \t\r");

    if (!*word)
        return NULL;
    *line = word + strcspn(word, " \t\r");
    if (**line)
        *(*line)++ = '\0';
    return word;
}

static int take_line(struct inventory *i, char *line, bool alone, struct error *err)
{
    char *first, *second;

    line[strcspn(line, "#")] = '\0';
    first = next_word(&line);
    second = first ? next_word(&line) : NULL;
    if (!first)
        return 0;
    if (second && next_word(&line))
        return error_set(err, -EINVAL, "there are more than two words");
    if (has_prefix(first, DNS) || has_prefix(first, KUBERNETES))
        return alone ? 0
               : has_prefix(first, DNS)
                   ? inventory_from_dns(i, first + strlen(DNS), second, err)
                   : inventory_from_nodes(i, first + strlen(KUBERNETES), second, err);
    if (!second)
        return error_set(err, -EINVAL, "'%.60s' has no address", first);
    return add(i, first, second, err);
}

static int take_text(struct inventory *i, char *text, bool alone, struct error *err)
{
    unsigned number = 0;
    char *line;

    while ((line = strsep(&text, "\n"))) {
        struct error why = {0};
        int r;

        number++;
        r = take_line(i, line, alone, &why);
        if (r < 0)
            return error_word(
                err, error_set(err, r, "%.60s, line %u: %.150s", i->from, number, why.text),
                "bad-inventory");
    }
    return 0;
}

/* ---- the file ---- */

static int find_file(char ret[PATH_MAX])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;

    if (config && *config == '/')
        n = snprintf(ret, PATH_MAX, "%s/tide/fleet", config);
    else if (home && *home == '/')
        n = snprintf(ret, PATH_MAX, "%s/.config/tide/fleet", home);
    if (n >= 0 && n < PATH_MAX && access(ret, F_OK) == 0)
        return 0;
    strcpy(ret, INVENTORY_SYSTEM);
    return access(ret, F_OK) == 0 ? 0 : -ENOENT;
}

static int none(struct error *err)
{
    return error_word(err,
                      error_set(err, -ENOENT,
                                "there is no inventory of machines: neither ~/.config/tide/fleet "
                                "nor " INVENTORY_SYSTEM),
                      "no-inventory");
}

/* @alone: without the lines for which somebody has to be asked. */
static int read_it(const char *given, bool alone, struct inventory *ret, struct error *err)
{
    struct inventory i = {.machine = calloc(INVENTORY_MACHINES_MAX, sizeof(struct machine))};
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    int r = i.machine ? 0 : error_set(err, -ENOMEM, "out of memory");

    if (!given || !*given)
        given = getenv(INVENTORY_VARIABLE);
    if (r == 0 && given && *given)
        r = snprintf(i.from, sizeof(i.from), "%s", given) < PATH_MAX ? 0 : -ENAMETOOLONG;
    else if (r == 0)
        r = find_file(i.from) < 0 ? none(err) : 0;
    if (r == 0 && (has_prefix(i.from, DNS) || has_prefix(i.from, KUBERNETES))) {
        text = strdup(i.from);
        r = text ? 0 : error_set(err, -ENOMEM, "out of memory");
    } else if (r == 0) {
        char *path = realpath(i.from, NULL); /* a link to it is as good */

        r = path ? wholefile_read(path, INVENTORY_BYTES_MAX, &text, &len, &status) : -errno;
        free(path);
        if (r < 0)
            error_word(err, error_set(err, r, "%.180s: %s", i.from, strerror(-r)), "no-inventory");
    }
    if (r == 0)
        r = take_text(&i, text, alone, err);
    if (r < 0) {
        inventory_done(&i);
        return r;
    }
    *ret = i;
    return 0;
}

int inventory_read(const char *given, struct inventory *ret, struct error *err)
{
    return read_it(given, false, ret, err);
}

void inventory_done(struct inventory *i)
{
    free(i->machine);
    i->machine = NULL;
    i->n = 0;
}

int inventory_resolve(const char *name, struct address *ret, struct error *err)
{
    const struct machine *m = NULL;

    if (strstr(name, "://"))
        return error_word(err, address_parse(name, ret, err), "bad-host");
    for (int alone = 1; alone >= 0 && !m; alone--) {
        _cleanup_(inventory_done) struct inventory i = {0};
        int r = read_it(NULL, alone, &i, err);

        if (r < 0)
            return r == -ENOENT
                       ? error_word(
                             err,
                             error_set(err, -EINVAL,
                                       "'%.100s' is no address (ssh://HOST or https://HOST), and "
                                       "there is no inventory that has the name",
                                       name),
                             "bad-host")
                       : r;
        m = find(&i, name);
        if (m)
            *ret = m->address;
        else
            error_word(
                err,
                error_set(err, -EINVAL, "no machine is called '%.100s' in %.100s", name, i.from),
                "bad-host");
    }
    return m ? 0 : -EINVAL;
}
