/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/suggest.h"

#include <string.h>

const struct command *const commands[] = {
    &command_run,    &command_docker, &command_adopt,   &command_submit,  &command_queue,
    &command_cancel, &command_hold,   &command_release, &command_ps,      &command_set,
    &command_pin,    &command_unpin,  &command_top,     &command_explain, &command_history,
    &command_events, &command_policy, &command_setup,   &command_sim,     &command_record,
    &command_signal, &command_doctor, &command_version, &command_help,    NULL,
};

const struct command *command_find(const char *name)
{
    for (const struct command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

int command_unknown(const char *name)
{
    const char *names[ARRAY_LEN(commands)];
    const char *nearest;
    size_t n;

    for (n = 0; commands[n]; n++)
        names[n] = commands[n]->name;
    nearest = suggest_nearest(name, names, n);
    if (name[0] == '-')
        return cli_usage(NULL, "there is no option '%s'", name);
    if (!nearest)
        return cli_usage(NULL, "there is no command '%s'", name);
    return cli_error(NULL, CLI_USAGE, "'tide help' lists the commands.",
                     "there is no command '%s': did you mean '%s'?", name, nearest);
}

int command_dispatch(int argc, char **argv)
{
    const struct command *cmd;

    if (argc < 2) {
        command_help.run(1, (char *[]){"help", NULL});
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        cmd = &command_help;
    else if (strcmp(argv[1], "--version") == 0)
        cmd = &command_version;
    else
        cmd = command_find(argv[1]);
    return cmd ? cmd->run(argc - 1, argv + 1) : command_unknown(argv[1]);
}

int main(int argc, char **argv)
{
    int r = docker_is_plugin(argv[0]) ? docker_plugin(argc, argv) : command_dispatch(argc, argv);

    /* A full disk or a closed pipe must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && r == CLI_OK)
        r = cli_error(NULL, CLI_FAILED, NULL, "cannot write the output: %s", strerror(errno));
    return r;
}
