/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the command line with which engines call an OCI runtime, as runc(8) and crun(1) define it.
 * It picks out only the words that tide-runc needs, and refuses none. Pure; called by tide-runc and
 * its unit test.
 */
#pragma once

#include <stdbool.h>

enum arguments_verb {
    ARGUMENTS_OTHER,  /* another verb, or not understood: the real runtime handles it alone */
    ARGUMENTS_CREATE, /* create or run: bundle and id are set */
    ARGUMENTS_EXEC,   /* exec with a process.json: process and id are set */
    ARGUMENTS_VERB_MAX
};

struct arguments {
    enum arguments_verb verb;
    bool log_json;
    const char *log;     /* NULL: none */
    const char *bundle;  /* "." when not given */
    const char *process; /* NULL: none */
    const char *id;
};

/* Reads @argv: argv[0] is the program, NULL ends it. The result points into @argv. */
struct arguments arguments_read(char *const *argv);
