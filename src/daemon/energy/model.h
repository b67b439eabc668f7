/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's power curve as a person states it, tide.conf's power-model=:
 *
 *   points:IDLE,FULL            W of the idle and of the fully busy machine
 *   points:W,W,W,W              at no load, 10 %, 50 % and full load
 *   assumed:YEAR:SOCKETS        a machine of that year; its error is wide
 *
 * Pure; any thread; used by config.c (which checks it) and cap.c.
 */
#pragma once

#include "base/error.h"
#include "power/model/watts.h"

/*
 * Reads it for a machine of @cores cores; an empty text is no model (ret->count 0). Returns 0, or
 * -EINVAL with what is wrong and which forms there are.
 */
int model_parse(const char *text, uint32_t cores, struct watts *ret, struct error *err);
