/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the handler of a path. Pure; private to this room, used by web.c. */
#pragma once

#include "hub/serve/call.h"

/*
 * The route of method and path, with the parts of the path in c->area and c->name. NULL: there is
 * none; *ret_other: another method has one. HEAD counts as GET.
 */
const struct route *routes_find(const char *method, const char *path, struct call *c,
                                bool *ret_other);
