/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of help in the language of the person, from po/LANGUAGE/LC_MESSAGES/threadtide.po. Changes
 * the process's locale for messages at the first call. Single-threaded; used by cli_help() and
 * `tide help`.
 */
#pragma once

/* Returns @text where nobody has translated it. */
const char *translated(const char *text);
