/* SPDX-License-Identifier: Apache-2.0 */
/* Results of libtide as those of DLB. Pure; used by lewi.c and drom.c. */
#pragma once

/* @r: 0, TIDE_PARTIAL or -errno. TIDE_PARTIAL is DLB_NOTED. */
int result_of(int r);
