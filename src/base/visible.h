/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of strangers before they reach a log, a terminal or a page: everything that is no printable
 * UTF-8 becomes '?': control characters (C1, too, which some terminals obey), overlong forms,
 * surrogates, cut sequences, and the marks that turn the direction of writing. Any thread.
 */
#pragma once

void visible(char *text); /* it becomes no longer */
