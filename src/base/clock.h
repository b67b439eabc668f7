/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic and CPU time in nanoseconds, wall time in milliseconds. Any thread; header only. */
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* CLOCK_MONOTONIC: comparable between the processes of one machine since its boot. */
static inline uint64_t clock_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CLOCK_BOOTTIME: goes on while the machine sleeps, for leases, which end meanwhile. */
static inline uint64_t clock_boot_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CPU time of the calling thread: what its work costs, however busy the machine is. */
static inline uint64_t clock_thread_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CPU time of all threads of the process. */
static inline uint64_t clock_process_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CLOCK_REALTIME: since 1970; it jumps when somebody sets the clock. */
static inline uint64_t clock_real_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / NS_PER_MS;
}
