/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of `tide run` and `tide submit`: the options that describe a job, its
 * registration, and how a process becomes the program. If the daemon or the agent is missing, the
 * program runs as if it had been started without tide. Single-threaded; used by the two.
 */
#pragma once

#include "cli/api.h"
#include "cli/terms.h"

struct launch {
    const struct command *cmd; /* the command whose options these are, for messages */
    const char *name;          /* NULL: made from the command line */
    long threads;              /* 0: not given */
    json_t *terms;             /* NULL: none; launch_done() frees them */
    char **argv;               /* program and arguments, ended by NULL; borrowed */
    pid_t pid;                 /* the job's first process; 0: this one */
    const char *cpus;          /* the CPUs of a daemon that is started, "0-3"; NULL: all */
    bool queue;                /* the job waits for its turn … */
    bool script;               /* it starts programs, and counts for no cores itself */
    bool held;                 /* … and for `tide release` before that */
    bool no_slices;            /* the kernel's time slices stay as they are */
    bool spin;                 /* idle threads spin as their runtimes like it */
    bool sockets;              /* requests are read from its sockets */
};

enum { LAUNCH_THREADS = 256, LAUNCH_NO_SLICES, LAUNCH_SPIN, LAUNCH_SOCKETS };

/* Entries of a table of long options, for terms_options(). */
/* clang-format off */
#define LAUNCH_OPTIONS                                                                             \
    {"name", required_argument, NULL, 'n'},                                                        \
    {"threads", required_argument, NULL, LAUNCH_THREADS},                                          \
    {"no-slices", no_argument, NULL, LAUNCH_NO_SLICES},                                            \
    {"spin", no_argument, NULL, LAUNCH_SPIN},                                                      \
    {"sockets", no_argument, NULL, LAUNCH_SOCKETS}
/* clang-format on */

/* The lines of a command's help about these options and the attributes. */
#define LAUNCH_HELP                                                                                \
    "  -n, --name NAME    what to call the job (default: after the script or program)\n"           \
    "      --threads K    exactly K threads, until 'tide set JOB --auto'\n"                        \
    "      --no-slices    keep the kernel's time slices, else it gets 20 ms each\n"                \
    "      --spin         leave idle threads spinning, else they sleep soon\n"                     \
    "      --sockets      time its requests for --slo on its sockets\n" TERMS_HERE

/*
 * Takes the value of option_next() if it is one of these. Returns CLI_OK, or CLI_USAGE after the
 * message.
 */
int launch_take(struct launch *l, int option);

/* Takes the operands as the program. Returns CLI_OK, or CLI_USAGE after the message. */
int launch_command(struct launch *l, int argc, char **argv);

void launch_done(struct launch *l);

/* Checks that the program can be executed; else prints why: CLI_NO_PROGRAM, CLI_CANNOT_RUN. */
int launch_find(const struct launch *l);

/*
 * Makes sure that the user's own daemon runs; if it is started, with the CPUs @cpus (NULL: all).
 * 0 or positive, or -errno with *err.
 */
int launch_start_daemon(const char *cpus, struct error *err);

/*
 * Registers the process as the job; starts the user's daemon when there is none. Returns 0 with
 * the daemon's answer, which may be a refusal (status >= 400), or -errno with *err.
 */
int launch_register(const struct launch *l, struct api_answer *ret, struct error *err);

/*
 * Prepares this process, or only its environment if the job is another one, for the program: time
 * slice, agent, variables. @job is the daemon's answer. Prints one line about each missing part.
 */
void launch_prepare(const struct launch *l, const json_t *job);

/*
 * Sets the variables that size the program's runtimes (base/startup.h). Takes back first what a job
 * has set that tide itself runs in. Returns 0 or -ENOMEM. startup.c.
 */
int launch_size(const struct launch *l);

/*
 * With how many threads launch_size() starts runtimes; 0: it leaves them their number, or the user
 * has set OpenMP's, which most of them read. startup.c.
 */
unsigned launch_sized(const struct launch *l);

/* Becomes the program. Returns CLI_NO_PROGRAM or CLI_CANNOT_RUN after the message. */
int launch_exec(const struct launch *l);
