/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that glibc before 2.34 and Linux before 5.9 lack. Programs are built against glibc 2.28,
 * too.
 *
 * Any thread, and between fork() and exec(): async-signal-safe.
 */
#pragma once

/*
 * Closes the descriptors from @first to @last, both inclusive; those that are not open do not
 * matter. Before Linux 5.9, which has no close_range(2), it closes those below the limit
 * RLIMIT_NOFILE one by one.
 */
void older_close_range(unsigned first, unsigned last);
