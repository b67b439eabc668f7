/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "cli/translate.h"
#include "cli/why/why.h"

#include <assert.h>
#include <ctype.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ERROR_WORD "output-failed"

/* One write(2) for each line keeps it whole when programs share the terminal. */
__attribute__((format(printf, 4, 0))) static void print_line(const struct command *cmd,
                                                             const char *word, const char *hint,
                                                             const char *fmt, va_list ap)
{
    _cleanup_free_ char *text = NULL;
    char why[64] = "";

    if (!hint || !*hint)
        hint = why_cure(word);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    if (word && *word)
        snprintf(why, sizeof(why), "\nSee 'tide why %.31s'.", word);
    fflush(stdout);
    fprintf(stderr, "tide: %s%s%s%s%s%s\n", cmd ? cmd->name : "", cmd ? ": " : "",
            text ? text : "out of memory", hint && *hint ? "\n" : "", hint ? hint : "", why);
}

int cli_error_as(const struct command *cmd, int code, const char *word, const char *hint,
                 const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(cmd, word, hint, fmt, ap);
    va_end(ap);
    return code;
}

int cli_no_memory(const struct command *cmd)
{
    return cli_error_as(cmd, CLI_FAILED, "out-of-memory", NULL, "out of memory");
}

int cli_usage_as(const struct command *cmd, const char *word, const char *fmt, ...)
{
    char hint[64];
    va_list ap;

    snprintf(hint, sizeof(hint), "Try 'tide help%s%s'.", cmd ? " " : "", cmd ? cmd->name : "");
    va_start(ap, fmt);
    print_line(cmd, word, hint, fmt, ap);
    va_end(ap);
    return CLI_USAGE;
}

int cli_end(const struct command *cmd, int r)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && r == CLI_OK)
        return cli_error(cmd, CLI_FAILED, NULL, "cannot write the output: %s", strerror(errno));
    return r;
}

void cli_note(const struct command *cmd, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(cmd, NULL, NULL, fmt, ap);
    va_end(ap);
}

void cli_note_as(const struct command *cmd, const char *word, const char *fmt, ...)
{
    _cleanup_free_ char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    if (word && *word && text)
        cli_note(cmd, "%s (tide why %s)", text, word);
    else
        cli_note(cmd, "%s", text ? text : "out of memory");
}

static void print_attribute(const struct attribute *a)
{
    const char *text = translated(a->text);
    char option[32];

    snprintf(option, sizeof(option), "--%s %s", a->key, a->value);
    printf("      %-14s ", option);
    if (a->kind == KIND_NUMBER && !a->none)
        printf(translated("%s, %lld to %lld (default %lld)"), text, (long long)a->least,
               (long long)a->most, (long long)a->usual);
    else
        fputs(text, stdout);
    putchar('\n');
    for (int64_t i = a->least; a->kind == KIND_CHOICE && i <= a->most; i++)
        printf("%21s%-10s %s\n", "", a->choices[i].name, translated(a->choices[i].text));
}

int cli_help(const struct command *cmd)
{
    const char *attributes = strchr(cmd->help, '\f'); /* TERMS_HERE */
    _cleanup_free_ char *before =
        attributes ? strndup(cmd->help, (size_t)(attributes - cmd->help)) : strdup(cmd->help);
    const char *brief = translated(cmd->brief);

    printf("%s: tide %s%s%s\n\n%c%s.\n\n", translated("Usage"), cmd->name, *cmd->usage ? " " : "",
           cmd->usage, toupper((unsigned char)brief[0]), brief + 1);
    fputs(before ? translated(before) : "", stdout);
    for (each_attribute(a))
        if (attributes && attribute_is_of(a, cmd->takes))
            print_attribute(a);
    fputs(attributes ? translated(attributes + 1) : "", stdout);
    return CLI_OK;
}

bool cli_color(void)
{
    const char *off = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return !(off && *off) && term && strcmp(term, "dumb") != 0 && isatty(STDOUT_FILENO);
}

/*
 * Reads the locale from the environment: setlocale() would load its tables on each start, and
 * nothing else here needs them. No locale at all (containers, cron) counts as UTF-8.
 */
static bool utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);

        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return true;
}

void cli_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1 && utf8())
        setlocale(LC_CTYPE, "C.UTF-8");
}

const char *cli_glyph(enum cli_glyph glyph)
{
    static const char *const text[][2] = {
        [CLI_ARROW] = {"->", "→"},
        [CLI_DOTS] = {"...", "…"},
    };
    static_assert(ARRAY_LEN(text) == CLI_GLYPH_MAX, "one text for each glyph");

    return text[glyph][utf8()];
}
