/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eigen's own thread pool behind the names that TensorFlow gives it, so that the agent's hooks
 * govern it as in TensorFlow: tsl::thread::ThreadPool around Eigen::ThreadPoolTempl, in a shared
 * object, every call of a member through the PLT. Its ABI needs C++.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct eigen_pool;

/* @name decides whose target it follows ("…Eigen", "Compute"). @spin as TensorFlow's low latency.
 */
struct eigen_pool *eigen_pool_new(const char *name, int threads, int spin);
void eigen_pool_free(struct eigen_pool *pool); /* runs what is queued, joins the workers */

/* Runs fn(arg) once on some worker, or here when the queue is full. Any thread. */
void eigen_pool_schedule(struct eigen_pool *pool, void (*fn)(void *arg), void *arg);

int eigen_pool_threads(const struct eigen_pool *pool); /* as the ThreadPool says */
int eigen_pool_shards(const struct eigen_pool *pool);  /* as its device says, to ops */
int eigen_pool_pieces(const struct eigen_pool *pool);  /* as Eigen's pool says, to oneDNN */
int eigen_pool_worker(const struct eigen_pool *pool);  /* the calling worker's id, -1: none */

/* 1: Eigen asks for work in MaybeGetTask (as TensorFlow 2.21), 0: in LocalSteal (older). */
int eigen_pool_has_gate(void);

#ifdef __cplusplus
}
#endif
