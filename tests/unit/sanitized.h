/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of rounds of a random test. It is smaller under a sanitizer, where each round takes
 * much longer. Builds without find rare cases; builds with one check memory and threads.
 */
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESS 1
#elif __has_feature(thread_sanitizer)
#define SANITIZED_THREAD 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED_ADDRESS 1
#elif defined(__SANITIZE_THREAD__)
#define SANITIZED_THREAD 1
#endif

#if defined(SANITIZED_ADDRESS)
#define TIMES(n) ((n) / 4)
#elif defined(SANITIZED_THREAD)
#define TIMES(n) ((n) / 10)
#else
#define TIMES(n) (n)
#endif
