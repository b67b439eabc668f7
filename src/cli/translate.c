/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/translate.h"

#include "base/cleanup.h"
#include "cli/cli.h"

#include <libintl.h>
#include <limits.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOMAIN       "threadtide"
#define LANGUAGE_MAX 32

/* The person's wish, as setlocale() and gettext() look for it; "": none. */
static const char *asked(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_MESSAGES", "LANG"};
    const char *value;

    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        value = getenv(variables[i]);
        if (value && *value)
            return value;
    }
    return "";
}

/*
 * A locale that is not installed, as in most containers, is no reason not to translate: a language
 * alone does, in a locale that is always there. (Since glibc 2.40 this finds nothing.)
 */
static void take_language(void)
{
    const char *locale = setlocale(LC_MESSAGES, ""), *wanted = asked();
    char language[LANGUAGE_MAX];

    if (locale || strcspn(wanted, "_.@") < 2 || strncmp(wanted, "C.", 2) == 0)
        return;
    snprintf(language, sizeof(language), "%.*s", (int)strcspn(wanted, ".@"), wanted);
    if (setlocale(LC_MESSAGES, "C.UTF-8"))
        setenv("LANGUAGE", language, 0);
}

/* Beside the program where it is installed and where it was built. */
static bool find(void)
{
    static const char *const folders[] = {"../share/locale", "po"};
    char program[PATH_MAX], folder[PATH_MAX + 32];

    if (cli_folder(program) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        snprintf(folder, sizeof(folder), "%s/%s", program, folders[i]);
        if (access(folder, X_OK) == 0 && bindtextdomain(DOMAIN, folder)) {
            take_language();
            return bind_textdomain_codeset(DOMAIN, "UTF-8") != NULL;
        }
    }
    return false;
}

const char *translated(const char *text)
{
    static enum { UNKNOWN, ABSENT, THERE } state;

    if (state == UNKNOWN)
        state = find() ? THERE : ABSENT;
    return state == THERE && *text ? dgettext(DOMAIN, text) : text; /* "" is the file's head */
}
