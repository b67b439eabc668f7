/* SPDX-License-Identifier: Apache-2.0 */
/* Values as JSON, as events, history and the HTTP interface have them. Pure but for memory. */
#pragma once

#include "base/cpuset.h"

#include <jansson.h>

struct job;

/* Each is a new reference, or NULL without memory. */

/* A text of an agent, which may be any bytes: what is not UTF-8 is shown as '?'. */
json_t *shown_text(const char *s);

json_t *shown_cpuset(const struct cpuset *set);
json_t *shown_cores(const struct job *j); /* those it may run on now */
