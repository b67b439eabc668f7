/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes' quantities ("500m", "1.5Gi", "1e3") and times ("2026-11-22T05:15:19Z") as integers,
 * and back. Any thread; used by object.c, etj.c, manifest.c and what prints.
 */
#pragma once

#include <stdint.h>

#define KUBE_MCPU_MAX     (INT64_C(1) << 30) /* a million cores */
#define KUBE_BYTES_MAX    (INT64_C(1) << 48) /* sums of 30,000 of them fit */
#define KUBE_TIME_TEXT    32                 /* bytes of a time as text, NUL included */
#define KUBE_QUANTITY_MAX 32                 /* bytes of a quantity as text, NUL included */

/*
 * Thousandths and whole units of a quantity; what lies between is rounded up, as the API server
 * does. Returns 0, -EINVAL (not a quantity, or negative) or -ERANGE (above KUBE_MCPU_MAX or
 * KUBE_BYTES_MAX).
 */
int kube_quantity_milli(const char *text, int64_t *ret_milli);
int kube_quantity_whole(const char *text, int64_t *ret_whole);

/* "1500m" as "1500m", 2000 as "2". */
void kube_milli_text(int64_t milli, char ret[KUBE_QUANTITY_MAX]);

/* RFC 3339 with Z or an offset: nanoseconds since 1970. 0 or -EINVAL. */
int kube_time(const char *text, int64_t *ret_ns);

/* In seconds, as metav1.Time has it, and in microseconds, as metav1.MicroTime. */
void kube_time_text(int64_t ns, char ret[KUBE_TIME_TEXT]);
void kube_micro_time_text(int64_t ns, char ret[KUBE_TIME_TEXT]);
