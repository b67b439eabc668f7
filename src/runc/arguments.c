/* SPDX-License-Identifier: Apache-2.0 */
#include "runc/arguments.h"

#include <stddef.h>
#include <string.h>

/* The options of runc and crun that take a value: before the verb, and behind it. */
static const char *const global_options[] = {"log",  "log-format", "log-level",      "root",
                                             "criu", "rootless",   "cgroup-manager", NULL};
static const char *const create_options[] = {"bundle", "b", "console-socket", "pid-file",
                                             "config", "f", "preserve-fds",   NULL};
static const char *const exec_options[] = {"process",
                                           "p",
                                           "console-socket",
                                           "pid-file",
                                           "cwd",
                                           "env",
                                           "e",
                                           "user",
                                           "u",
                                           "additional-gids",
                                           "g",
                                           "process-label",
                                           "apparmor",
                                           "cap",
                                           "c",
                                           "preserve-fds",
                                           "cgroup",
                                           NULL};

/* An option: its name without dashes and "=value", and its value if it has one. */
struct option {
    const char *name, *value;
    size_t length; /* of the name */
};

static bool is(const struct option *option, const char *name)
{
    return strlen(name) == option->length && strncmp(name, option->name, option->length) == 0;
}

/*
 * Reads the option at *argv and moves behind it. Returns false at an operand or the end. An unknown
 * option without "=" counts as one without a value. If it does have a value, that value is taken as
 * the verb or the id, and tide-runc then leaves the container alone.
 */
static bool next_option(char *const **argv, const char *const *with_value, struct option *ret)
{
    const char *word = **argv;
    const char *equals;

    if (!word || word[0] != '-' || !word[1])
        return false;
    ++*argv;
    ret->name = word + (word[1] == '-' ? 2 : 1);
    equals = strchr(ret->name, '=');
    ret->length = equals ? (size_t)(equals - ret->name) : strlen(ret->name);
    ret->value = equals ? equals + 1 : NULL;
    for (; !equals && *with_value; with_value++)
        if (is(ret, *with_value) && **argv)
            ret->value = *(*argv)++;
    return ret->length > 0; /* "--" ends the options */
}

struct arguments arguments_read(char *const *argv)
{
    struct arguments a = {.bundle = "."};
    struct option option;
    bool exec;

    if (!*argv++)
        return a;
    while (next_option(&argv, global_options, &option)) {
        if (is(&option, "log"))
            a.log = option.value;
        else if (is(&option, "log-format"))
            a.log_json = option.value && strcmp(option.value, "json") == 0;
    }
    if (!*argv)
        return a;
    exec = strcmp(*argv, "exec") == 0;
    if (!exec && strcmp(*argv, "create") != 0 && strcmp(*argv, "run") != 0)
        return a;
    argv++;
    while (next_option(&argv, exec ? exec_options : create_options, &option)) {
        if (!exec && (is(&option, "bundle") || is(&option, "b")))
            a.bundle = option.value;
        else if (exec && (is(&option, "process") || is(&option, "p")))
            a.process = option.value;
    }
    a.id = *argv;
    if (a.id && (exec ? a.process : a.bundle))
        a.verb = exec ? ARGUMENTS_EXEC : ARGUMENTS_CREATE;
    return a;
}
