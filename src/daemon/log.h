/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's log: one line on stderr; at most NODE_LOG_BURST lines in ten seconds. */
#pragma once

#define NODE_LOG_BURST 40
__attribute__((format(printf, 1, 2))) void node_log(const char *fmt, ...);
