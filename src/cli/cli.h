/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide`, the command line: the common part of its commands.
 *
 * Each command has one file, cmd_NAME.c, which defines `command_NAME`; main.c finds the command by
 * its name and calls its function. Commands do not know each other. Messages go through
 * cli_error(): one line says what was wrong and where, and one what to do. Single-threaded.
 */
#pragma once

#include "base/error.h"
#include "proto/attribute.h"

#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Exit codes, documented in tide(1). `tide run` ends with the exit code of its program. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,       /* the machine failed: out of memory, a full disk */
    CLI_USAGE = 2,        /* the command line, or a value the daemon refuses */
    CLI_NOT_FOUND = 3,    /* no such job or process */
    CLI_DENIED = 4,       /* another user's job */
    CLI_UNREACHABLE = 5,  /* no daemon, or none that answers */
    CLI_PARTIAL = 6,      /* done for some processes only, or not acknowledged in time */
    CLI_CANNOT_RUN = 126, /* run, submit: the program is not executable, as env(1) has it */
    CLI_NO_PROGRAM = 127, /* run, submit: there is no such program */
};

/* Whether a command goes with `tide --host`. */
enum command_far {
    FAR_NEVER, /* it works on this machine: its processes, its files, its containers */
    FAR_GOES,  /* it only talks to the daemon */
    FAR_SAME,  /* no daemon has anything to say: --host changes nothing */
};

struct command {
    const char *name;
    const char *usage; /* arguments, as they follow the name: "JOB --threads K" */
    const char *brief; /* one line for the list of `tide help`, no full stop */
    const char *help;  /* options and examples; lines of at most 80 columns, ends with a newline */

    enum attributes_of takes; /* the attributes of jobs that are options of it */
    enum command_far far;

    /* argv[0] is the command's name. Returns an exit code; what it printed is flushed by main. */
    int (*run)(int argc, char **argv);
};

/*
 * Every command, in the order of `tide help`. A new command needs a row here and cmd_NAME.c, which
 * defines `command_NAME`. Only main.c has the table of them.
 */
#define COMMANDS(X)                                                                                \
    X(run)                                                                                         \
    X(docker)                                                                                      \
    X(adopt)                                                                                       \
    X(submit)                                                                                      \
    X(queue)                                                                                       \
    X(cancel)                                                                                      \
    X(hold)                                                                                        \
    X(release)                                                                                     \
    X(ps)                                                                                          \
    X(fleet)                                                                                       \
    X(set)                                                                                         \
    X(memory)                                                                                      \
    X(pin)                                                                                         \
    X(unpin)                                                                                       \
    X(top)                                                                                         \
    X(dashboard)                                                                                   \
    X(explain)                                                                                     \
    X(history)                                                                                     \
    X(energy)                                                                                      \
    X(events)                                                                                      \
    X(report)                                                                                      \
    X(policy)                                                                                      \
    X(power)                                                                                       \
    X(setup)                                                                                       \
    X(sim)                                                                                         \
    X(record)                                                                                      \
    X(signal)                                                                                      \
    X(doctor)                                                                                      \
    X(dial)                                                                                        \
    X(why)                                                                                         \
    X(version)                                                                                     \
    X(help)

#define COMMAND_DECLARE(name) extern const struct command command_##name;
COMMANDS(COMMAND_DECLARE)
#undef COMMAND_DECLARE

/* True if docker calls this program as its plugin; cmd_docker.c. */
bool docker_is_plugin(const char *program);

/*
 * Answers docker. Returns an exit code, or -1 when the words behind `docker tide` are a command of
 * tide, which main.c runs: *ret_skip words stand between the program's name and "tide".
 */
int docker_plugin(int argc, char **argv, int *ret_skip);

/*
 * If the job's @argv is `docker run`, becomes that command with an elastic container, as `docker
 * tide run` does. Returns -1 for another program, else the exit code.
 */
int docker_launch(char *const *argv);

/* ---- messages (message.c) ---- */

/*
 * "tide: <command>: <text>" and, when @hint is not NULL or empty, a second line with it, on stderr.
 * The text is a clause without full stop, a wrong value behind the name of its option; the hint is
 * a sentence that says what to do.
 * @cmd may be NULL (no command yet). Returns @code, so that a command writes `return cli_error(…)`.
 */
#define cli_error(cmd, code, hint, ...) cli_error_as(cmd, code, ERROR_WORD, hint, __VA_ARGS__)

/*
 * The same with another @word than that of the file's errors (ERROR_WORD, base/error.h): after the
 * hint, which without one is the cure of that word, comes a line "See 'tide why <word>'." A note
 * stays one line, which ends with "(tide why <word>)".
 */
__attribute__((format(printf, 5, 6))) int cli_error_as(const struct command *cmd, int code,
                                                       const char *word, const char *hint,
                                                       const char *fmt, ...);
__attribute__((format(printf, 3, 4))) void cli_note_as(const struct command *cmd, const char *word,
                                                       const char *fmt, ...);
__attribute__((format(printf, 3, 4))) int cli_usage_as(const struct command *cmd, const char *word,
                                                       const char *fmt, ...);

int cli_no_memory(const struct command *cmd); /* returns CLI_FAILED */

/* An error of usage, with the hint "Try 'tide help <command>'."; returns CLI_USAGE. */
#define cli_usage(cmd, ...) cli_usage_as(cmd, "usage", __VA_ARGS__)

/* Prints one line on stderr that is no failure: "tide: <command>: <text>". */
__attribute__((format(printf, 2, 3))) void cli_note(const struct command *cmd, const char *fmt,
                                                    ...);

/* Prints usage, brief and help of @cmd on stdout; returns CLI_OK. */
int cli_help(const struct command *cmd);

/* The program's last step: output that cannot be written turns CLI_OK into CLI_FAILED. */
int cli_end(const struct command *cmd, int r);

/* Writes the folder of this program, without a slash at its end. Returns 0 or -errno. */
int cli_folder(char ret[PATH_MAX]);

/*
 * Becomes @program, which lies beside this one. Returns an exit code after the message if it
 * cannot; become.c.
 */
int cli_become(const struct command *cmd, const char *program, char **argv);

/* True if stdout is a terminal that shows colours and NO_COLOR is not set. */
bool cli_color(void);

/*
 * Loads the character set, for commands that lay out columns (not for the others: it costs time on
 * each start). UTF-8 when the environment says nothing.
 */
void cli_locale(void);

enum cli_glyph { CLI_ARROW, CLI_DOTS, CLI_GLYPH_MAX };

/* "→" and "…", or "->" and "..." when the locale's character set is not UTF-8. */
const char *cli_glyph(enum cli_glyph glyph);

/* ---- options (option.c) ---- */

/*
 * getopt_long() that prints our messages and knows --help; both end the program. @options are ended
 * by zeroes (NULL: none). Parsing stops at the first operand when @in_order, for a command with a
 * command line behind its own options; else operands are moved to the end. Returns the option's
 * value with its argument in optarg, or -1 at the end (operands begin at optind).
 */
int option_next(const struct command *cmd, int argc, char **argv, const struct option *options,
                bool in_order);

/*
 * Reads @text as a decimal number between @min and @max. @name is its option or operand
 * ("--threads", "PID"), with which the message begins: "--threads: 0 is outside 1 … 4096". Returns
 * CLI_OK, or CLI_USAGE after the message.
 */
int option_number(const struct command *cmd, const char *text, const char *name, long min, long max,
                  long *ret);

/*
 * Reads the value of --since as whole seconds since 1970, not before 1. Returns CLI_OK, or
 * CLI_USAGE after the message.
 */
int option_since(const struct command *cmd, const char *text, uint64_t *ret_s);

/* Ends the program with a message unless @min to @max operands are left. */
void option_operands(const struct command *cmd, int argc, char **argv, int min, int max);
/* Parses the command line of a command without options of its own. */
void option_none(const struct command *cmd, int argc, char **argv, int min, int max);
