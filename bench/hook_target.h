/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/hook_target stands where TensorFlow's library does: a worker's loop that calls, through the
 * PLT, the members which the agent interposes. Here they do nothing, so that what is measured is
 * the way to them.
 */
#pragma once

#include <stdint.h>

#define HOOK_ROUNDS 1000

struct hook_times {              /* picoseconds a call, one number a round */
    uint64_t stock[HOOK_ROUNDS]; /* a member that nobody interposes */
    uint64_t pass[HOOK_ROUNDS];  /* between two closures: MaybeGetTask */
    uint64_t idle[HOOK_ROUNDS];  /* around the pool's sleep: WaitForWork */
};

extern struct hook_times hook_times; /* filled by one run of the worker's loop */
