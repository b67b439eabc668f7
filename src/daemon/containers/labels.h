/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container's labels io.threadtide.*: the attributes of its job, written by the person who
 * started it. An invalid label is left out and noted; it never keeps a container from running.
 * Pure; called by container.c and the fuzzer.
 */
#pragma once

#include "daemon/job/job.h"
#include "host/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* io.threadtide=false: the container never becomes a job, whatever its other labels say. */
bool labels_refuse(const struct engine_label *labels, size_t n);

/* Any label of ours makes a container elastic, unless it refuses. */
bool labels_elastic(const struct engine_label *labels, size_t n);

/* Name of the control directory that `tide docker run` chose, or NULL. */
const char *labels_key(const struct engine_label *labels, size_t n);

/* Token of the job whose program started the container, or NULL. */
const char *labels_job(const struct engine_label *labels, size_t n);

/* The container's Compose service, or NULL. */
const char *labels_service(const struct engine_label *labels, size_t n);

/* 1 to CONTAINER_KEY_MAX letters, digits, - and _, so that no key leads to another directory. */
bool labels_key_valid(const char *key);

/*
 * Sets in *req what labels ask for; the other members stay. A deadline that is a duration ("90s")
 * counts from @start_ms (milliseconds since 1970). @note (size bytes, may be cut) names the first
 * invalid label, the values that it takes and the number of further invalid ones; "": none.
 */
void labels_parse(const struct engine_label *labels, size_t n, uint64_t start_ms,
                  struct job_request *req, char *note, size_t size);
