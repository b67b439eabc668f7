/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c includes this file before the agent's sources: atomics, futexes, mutexes and clocks become
 * steps of the explorer. Atomics keep their C meaning; a number that is only counted or measured
 * (model_is_step) is no step. gcc only.
 */
#pragma once

#include "base/clock.h"
#include "base/slice.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Called before each operation; model_relaxed() also says whether an older value is read. */
void model_load(const volatile void *at, int order);
void model_store(const volatile void *at);
bool model_relaxed(const volatile void *at, uint32_t *ret_older);
long model_syscall(long number, ...);
void model_lock(pthread_mutex_t *lock);
void model_unlock(pthread_mutex_t *lock);
uint64_t model_now(void);
uint64_t model_slice(uint64_t ns);
int model_close(int fd);
int model_open(const char *path);
ssize_t model_read(int fd, char *to, size_t size);

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_strong

#define atomic_load(p) atomic_load_explicit(p, __ATOMIC_SEQ_CST)
#define atomic_load_explicit(p, order)                                                             \
    __extension__({                                                                                \
        __auto_type _at = (p);                                                                     \
        __typeof__((void)0, *_at) _value;                                                          \
        uint32_t _older;                                                                           \
        model_load(_at, order);                                                                    \
        if ((order) == __ATOMIC_RELAXED && model_relaxed(_at, &_older))                            \
            _value = (__typeof__(_value))(uintptr_t)_older;                                        \
        else                                                                                       \
            __atomic_load(_at, &_value, __ATOMIC_SEQ_CST);                                         \
        _value;                                                                                    \
    })
#define atomic_store(p, v) atomic_store_explicit(p, v, __ATOMIC_SEQ_CST)
#define atomic_store_explicit(p, v, order)                                                         \
    __extension__({                                                                                \
        __auto_type _at = (p);                                                                     \
        __typeof__((void)0, *_at) _new = (v);                                                      \
        model_store(_at);                                                                          \
        __atomic_store(_at, &_new, __ATOMIC_SEQ_CST);                                              \
    })
#define atomic_exchange(p, v)                                                                      \
    __extension__({                                                                                \
        __auto_type _at = (p);                                                                     \
        __typeof__((void)0, *_at) _new = (v);                                                      \
        __typeof__((void)0, *_at) _old;                                                            \
        model_store(_at);                                                                          \
        __atomic_exchange(_at, &_new, &_old, __ATOMIC_SEQ_CST);                                    \
        _old;                                                                                      \
    })
#define atomic_fetch_add(p, v)                 (model_store(p), __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST))
#define atomic_fetch_add_explicit(p, v, order) atomic_fetch_add(p, v)
#define atomic_compare_exchange_weak(p, expected, v)                                               \
    __extension__({                                                                                \
        __auto_type _at = (p);                                                                     \
        __typeof__((void)0, *_at) _new = (v);                                                      \
        model_store(_at);                                                                          \
        __atomic_compare_exchange(_at, expected, &_new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    })
#define atomic_compare_exchange_strong(p, expected, v) atomic_compare_exchange_weak(p, expected, v)

#define syscall(...)            model_syscall(__VA_ARGS__)
#define pthread_mutex_lock(l)   model_lock(l)
#define pthread_mutex_unlock(l) model_unlock(l)
#define clock_now_ns()          model_now()
#define slice_set(ns)           model_slice(ns)
#define open(path, ...)         model_open(path)
#define read(fd, to, size)      model_read(fd, to, size)
#define close(fd)               model_close(fd)
