/* SPDX-License-Identifier: Apache-2.0 */
/* DLB_PollDROM and the callbacks: how a program that follows DLB follows its target. */
#pragma once

void poll_begin(int ncpus); /* of DLB_Init; 0: as many as the process's CPUs */
void poll_done(void);
void poll_after_fork(void); /* in the child, which has no pool and follows nothing */
