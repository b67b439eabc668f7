/* SPDX-License-Identifier: Apache-2.0 */
/* Values as JSON, as events, history and the HTTP interface have them. Pure but for memory. */
#pragma once

#include "base/cpuset.h"

#include <jansson.h>

struct job;

/* Each is a new reference, or NULL without memory. */

/* A text from an agent may hold any bytes; those that are not UTF-8 become '?'. */
json_t *shown_text(const char *s);

json_t *shown_cpuset(const struct cpuset *set);
json_t *shown_cores(const struct job *j); /* cores that the job may run on now */
