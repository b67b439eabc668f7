/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/terminal.h"

#include "hub/people/audit.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "hub-state"

void terminal_audit(struct people *p, const char *what, const char *target,
                    const struct error *failed)
{
    const struct passwd *user = getpwuid(getuid());
    const char *sudo = getenv("SUDO_USER");
    struct audit_row row = {.from = "terminal"};
    struct error err = {0};

    snprintf(row.user, sizeof(row.user), "%s", sudo ? sudo : user ? user->pw_name : "?");
    snprintf(row.what, sizeof(row.what), "%s", what);
    snprintf(row.target, sizeof(row.target), "%s", target);
    snprintf(row.outcome, sizeof(row.outcome), "%s%.100s", failed->code ? "failed: " : "done",
             failed->code ? failed->text : "");
    if (audit_append(p, &row, &err) < 0)
        error_print(error_why(&err), "tide-hub: %s", err.text);
}

void terminal_audit_in(const char *dir, const char *what, const char *target,
                       const struct error *failed)
{
    struct people *p = NULL;
    struct error err = {0};
    char path[PATH_MAX];
    mode_t before = umask(077);
    int n = snprintf(path, sizeof(path), "%s/" PEOPLE_FILE, dir);

    if (n > 0 && (size_t)n < sizeof(path) &&
        people_open(path, &(struct people_options){0}, &p, &err) < 0)
        error_print(error_why(&err), "tide-hub: not in the audit log: %s", err.text);
    umask(before);
    if (p)
        terminal_audit(p, what, target, failed);
    people_close(p);
}
