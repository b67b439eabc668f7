/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The key at the beginning of a line, or NULL. */
static const char *find_key(const char *text, const char *key)
{
    for (const char *line = text; line;) {
        if (strncmp(line, key, strlen(key)) == 0)
            return line;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return NULL;
}

static const char *next_line(const char *at)
{
    const char *end = strchr(at, '\n');

    return end ? end + 1 : at + strlen(at);
}

/* How far the list's first item is indented: lines without one, and remarks, say nothing. */
static int indent_of(const char *list)
{
    for (const char *line = list; *line; line = next_line(line)) {
        size_t blanks = strspn(line, " ");

        if (line[blanks] == '-')
            return (int)blanks;
        if (line[blanks] != '\n' && line[blanks] != '#')
            break;
    }
    return 0;
}

static int join(const char *text, const char *at, const char *more, char **ret)
{
    return asprintf(ret, "%.*s%s%s", (int)(at - text), text, more, at) < 0 ? -ENOMEM : 0;
}

int place_in_text(const char *text, const char *area, const char *unit, char **ret)
{
    const char *list = find_key(text, "areas:"), *at;
    char entry[320];

    if (!list) {
        at = find_key(text, "rules:");
        snprintf(entry, sizeof(entry), "areas:\n- {area: %s, unit: %s}\n", area, unit);
        return at ? join(text, at, entry, ret) : -EINVAL;
    }
    at = list + strlen("areas:");
    at += strspn(at, " ");
    if (*at == '[') {
        const char *first = at + 1 + strspn(at + 1, " \n");

        snprintf(entry, sizeof(entry), "{area: %s, unit: %s}%s", area, unit,
                 *first == ']' ? "" : ", ");
        return join(text, at + 1, entry, ret);
    }
    at = next_line(at);
    snprintf(entry, sizeof(entry), "%s%*s- {area: %s, unit: %s}\n",
             at > text && at[-1] == '\n' ? "" : "\n", indent_of(at), "", area, unit);
    return join(text, at, entry, ret);
}
