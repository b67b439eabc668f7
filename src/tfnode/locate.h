/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the installed TensorFlow: the directory with its C API, which every wheel has. Called once
 * by main.c, one thread; reads the environment.
 */
#pragma once

#include "base/error.h"

#include <limits.h>

#define LOCATE_LIBRARY    "libtensorflow_cc.so.2"
#define LOCATE_LOOKED_MAX 4096

struct located {
    char library[PATH_MAX];         /* the file itself */
    char looked[LOCATE_LOOKED_MAX]; /* the searched directories, a line each, cut at the end */
};

/*
 * @given (may be NULL) is the directory with the library or the one above it; no other is searched.
 * Without it the search goes through $VIRTUAL_ENV, $CONDA_PREFIX, the directories of $PYTHONPATH,
 * those of the first python3 in $PATH, the user's own, the system's; the newest Python wins.
 * @root: "" normally; tests give a directory that stands for "/".
 * Returns 0 or -ENOENT, and fills in ret->looked in both cases.
 */
int locate_tensorflow(const char *given, const char *root, struct located *ret);
