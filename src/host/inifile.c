/* SPDX-License-Identifier: Apache-2.0 */
#include "host/inifile.h"

#include <errno.h>
#include <ini.h>
#include <string.h>

#define ERROR_WORD "config-error"

#define BLANKS " \t\r"

struct reader {
    const struct inifile *file;
    inifile_set *set;
    void *arg;
    const char *at;  /* text that is still to be read */
    int line, wrong; /* the line read last, and the first with a mistake */
    struct error why;
};

/*
 * Hands inih the next line without leading blanks: inih would take an indented line for the
 * continuation of the one above, and hide a key.
 */
static char *next_line(char *buf, int size, void *arg)
{
    struct reader *r = arg;
    size_t len;

    if (!*r->at || r->wrong)
        return NULL;
    r->line++;
    r->at += strspn(r->at, BLANKS);
    len = strcspn(r->at, "\n");
    if (len >= (size_t)size) {
        r->wrong = r->line;
        error_set(&r->why, -EINVAL, "the line is longer than %d bytes", size - 1);
        return NULL;
    }
    memcpy(buf, r->at, len);
    buf[len] = '\0';
    r->at += len + (r->at[len] == '\n');
    return buf;
}

static int take_key(void *arg, const char *section, const char *key, const char *value)
{
    struct reader *r = arg;
    const struct inifile *f = r->file;
    struct error why = {0};

    if (!*section)
        error_set(&r->why, -EINVAL, "keys need a section: write [%s] above", f->section);
    else if (strcmp(section, f->section) != 0)
        error_set(&r->why, -EINVAL, "there is no section [%.40s]: %s is [%s]", section, f->whose,
                  f->section);
    else if (r->set(r->arg, key, value, &why) < 0)
        error_set(&r->why, -EINVAL, "%.40s: %.*s", key, ERROR_TEXT_MAX - 48, why.text);
    else
        return 1;
    r->wrong = r->line;
    return 0;
}

int inifile_parse(const struct inifile *f, const char *text, inifile_set *set, void *arg,
                  struct error *err)
{
    struct reader r = {.file = f, .set = set, .arg = arg, .at = text};
    int line = ini_parse_stream(next_line, &r, take_key, &r);

    if (line < 0)
        return error_set(err, -ENOMEM, "%.120s: out of memory", f->name);
    if (line > 0 && (!r.wrong || line < r.wrong))
        return error_set(err, -EINVAL, "%.120s:%d: neither [%s] nor KEY=VALUE nor # comment",
                         f->name, line, f->section);
    if (r.wrong)
        return error_set(err, -EINVAL, "%.120s:%d: %.*s", f->name, r.wrong, ERROR_TEXT_MAX - 136,
                         r.why.text);
    return 0;
}
