/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores that programs lend and borrow (`tide_ctl_lend`): who has which of them before a decision.
 * Daemon's event loop only; called by decision.c.
 */
#pragma once

struct daemon;

/* Loans stay within a user: lent cores that no job there borrows are divided as idle cores. */
void loans_settle(const struct daemon *d);
