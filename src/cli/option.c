/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/moment.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "usage"

#define OPTIONS_MAX 64

/* Collects the short options: entries of @options whose value is a character. */
static void short_options(const struct option *options, bool in_order, char *buf, size_t size)
{
    size_t n = 0;

    if (in_order)
        buf[n++] = '+';
    buf[n++] = ':'; /* lets getopt tell a missing argument from an unknown option */
    for (; options->name && n + 3 < size; options++) {
        if (options->val >= 128)
            continue;
        buf[n++] = (char)options->val;
        if (options->has_arg == required_argument)
            buf[n++] = ':';
    }
    buf[n] = '\0';
}

/* Appends --help to @options. */
static void with_help(const struct option *options, struct option all[OPTIONS_MAX])
{
    size_t n = 0;

    for (; options && options[n].name; n++) {
        assert(n + 2 < OPTIONS_MAX);
        all[n] = options[n];
    }
    all[n] = (struct option){"help", no_argument, NULL, 'h'};
    all[n + 1] = (struct option){0};
}

int option_next(const struct command *cmd, int argc, char **argv, const struct option *options,
                bool in_order)
{
    struct option all[OPTIONS_MAX];
    char letters[64];
    int c;

    with_help(options, all);
    short_options(all, in_order, letters, sizeof(letters));
    opterr = 0;
    c = getopt_long(argc, argv, letters, all, NULL);
    if (c == ':')
        cli_usage(cmd, "%s needs a value", argv[optind - 1]);
    else if (c == '?' && optopt == 0 && strncmp(argv[optind - 1], "--host", 6) == 0)
        cli_error(cmd, CLI_USAGE, "Put it before the command: tide --host NAME COMMAND.",
                  "there is no option '%s' behind the command", argv[optind - 1]);
    else if (c == '?' && optopt == 0)
        cli_usage(cmd, "there is no option '%s'", argv[optind - 1]);
    else if (c == '?' && strncmp(argv[optind - 1], "--", 2) == 0)
        cli_usage(cmd, "%s: this option takes no value", argv[optind - 1]);
    else if (c == '?')
        cli_usage(cmd, "there is no option '-%c'", optopt);
    else if (c == 'h')
        exit(cli_end(cmd, cli_help(cmd)));
    if (c == ':' || c == '?')
        exit(CLI_USAGE);
    return c;
}

int option_number(const struct command *cmd, const char *text, const char *name, long min, long max,
                  long *ret)
{
    size_t sign = *text == '-';
    long value;

    if (!text[sign] || strspn(text + sign, "0123456789") != strlen(text + sign))
        return cli_usage(cmd, "%s: '%s' is no whole number (%ld %s %ld)", name, text, min,
                         cli_glyph(CLI_DOTS), max);
    errno = 0;
    value = strtol(text, NULL, 10);
    if (errno || value < min || value > max)
        return cli_usage(cmd, "%s: %s is outside %ld %s %ld", name, text, min, cli_glyph(CLI_DOTS),
                         max);
    *ret = value;
    return CLI_OK;
}

int option_since(const struct command *cmd, const char *text, uint64_t *ret_s)
{
    uint64_t ms;

    if (moment_past(text, clock_real_ms(), &ms) < 0)
        return cli_usage(cmd,
                         "--since: '%s' is no time (90s or 2h ago, 18:30, 2026-01-31, "
                         "'2026-01-31 18:30')",
                         text);
    *ret_s = ms < 1000 ? 1 : ms / 1000;
    return CLI_OK;
}

void option_operands(const struct command *cmd, int argc, char **argv, int min, int max)
{
    int n = argc - optind;

    if (n < min)
        exit(cli_usage(cmd, "an argument is missing: tide %s %s", cmd->name, cmd->usage));
    if (n > max)
        exit(cli_usage(cmd, "'%s' is one argument too many", argv[optind + max]));
}

void option_none(const struct command *cmd, int argc, char **argv, int min, int max)
{
    option_next(cmd, argc, argv, NULL, false);
    option_operands(cmd, argc, argv, min, max);
}
