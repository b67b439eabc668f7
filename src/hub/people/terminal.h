/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the audit log for what people do by commands on the hub's machine. Any thread. */
#pragma once

#include "base/error.h"
#include "hub/people/people.h"

/* The row names the user who runs the command; for root under sudo, the person who used sudo. */
void terminal_audit(struct people *p, const char *what, const char *target,
                    const struct error *failed);

/* The same with the file of the hub's directory, which is made if it is missing. */
void terminal_audit_in(const char *dir, const char *what, const char *target,
                       const struct error *failed);
