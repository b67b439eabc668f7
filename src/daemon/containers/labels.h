/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels io.threadtide.* of a container: what a job is asked for, written by whoever started
 * it. A label that says nothing sensible is left out and noted; it never keeps a container from
 * running. Pure; called by container.c and the fuzzer.
 */
#pragma once

#include "daemon/job/job.h"
#include "host/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* io.threadtide=false: it is to be left alone, whatever else is said. */
bool labels_refuse(const struct engine_label *labels, size_t n);

/* Any label of ours makes a container elastic that does not refuse. */
bool labels_elastic(const struct engine_label *labels, size_t n);

/* The name of its control directory that `tide docker run` chose, or NULL. */
const char *labels_key(const struct engine_label *labels, size_t n);

/* The token of the job whose program has started it, or NULL. */
const char *labels_job(const struct engine_label *labels, size_t n);

/* The service of a Compose file that it is one of, or NULL. */
const char *labels_service(const struct engine_label *labels, size_t n);

/* 1 to CONTAINER_KEY_MAX letters, digits, - and _: no way to another directory. */
bool labels_key_valid(const char *key);

/*
 * Fills in *req, whose other members keep what they say. A deadline that is a duration ("90s")
 * counts from @start_ms, in milliseconds since 1970 as is RFC 3339's. @note (size bytes, may be
 * cut) names the first label that is left out, says what it takes and how many more there are; ""
 * when all are good.
 */
void labels_parse(const struct engine_label *labels, size_t n, uint64_t start_ms,
                  struct job_request *req, char *note, size_t size);
