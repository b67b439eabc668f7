/* SPDX-License-Identifier: Apache-2.0 */
/* How a job's share becomes cores, and the names of the ways. Any thread, pure; used by node. */
#pragma once

enum placement { PLACEMENT_SHARED, PLACEMENT_EXCLUSIVE, PLACEMENT_QUOTA, PLACEMENT_MAX };

const char *placement_name(enum placement placement);
int placement_parse(const char *text, enum placement *ret); /* 0 or -EINVAL */
