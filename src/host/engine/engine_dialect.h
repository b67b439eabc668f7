/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that Docker and libpod take in different forms. Pure; any thread, called by engine.c
 * alone.
 */
#pragma once

#include "host/engine/engine.h"

#include <jansson.h>

struct engine_dialect {
    const char *grace;        /* name of engine_stop's parameter */
    const char *events_query; /* beside filter and since */

    /* Returns the body; NULL: out of memory. */
    json_t *(*update)(const struct engine_update *update);

    /*
     * Chooses another form for an update that was answered with @status: writes another quota to
     * *ret. False: there is no other form.
     */
    bool (*other_quota)(const struct engine_quota *quota, int status, const char *message,
                        struct engine_quota *ret);

    /* Writes the value of `since` that asks for events from @time_ns on, inclusive. */
    void (*since)(uint64_t time_ns, char *buf, size_t size);
};

extern const struct engine_dialect engine_docker, engine_podman;

/* ---- building bodies ---- */

/* Adds @value, taking ownership, under @key; a NULL value, or no memory, makes *ok false. */
void body_add(bool *ok, json_t *object, const char *key, json_t *value);

/* Returns @body, or frees it and returns NULL when not @ok. */
json_t *body_finish(bool ok, json_t *body);

json_t *body_cpus(const struct cpuset *cpus);

/* Memory and swap together, as both engines count swap; -1: no limit. */
json_t *body_swap(const struct engine_update *update);
