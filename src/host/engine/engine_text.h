/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses answers of engines into structs. Pure: any bytes give structs or a reason.
 * Any thread; called by engine.c, unit tests and the fuzzer.
 */
#pragma once

#include "host/engine/engine.h"

/* True if @text may stand in a path: letters, digits, "_.-", shorter than ENGINE_ID_MAX. */
bool engine_is_id(const char *text);

/* ---- the first question, /_ping: only headers ---- */

struct engine_greeting {
    enum engine_kind kind;
    unsigned api;     /* Docker's API version to use is 1.@api */
    char prefix[24];  /* of paths: "/v1.41", "/v4.0.0/libpod" */
    char version[48]; /* "docker 1.41", "podman 4.3.1", "pods 1.41" */
};

/* Returns 0, -EPROTO (no engine answers like this) or -EOPNOTSUPP (too old) with the reason. */
int engine_parse_greeting(const char *head, struct engine_greeting *ret, struct error *err);

/* ---- answers ---- */

/* Containers; the parsed document owns their texts. */
struct engine_containers {
    struct engine_container *list;
    size_t n;
    void *document;
};

void engine_containers_done(struct engine_containers *containers);

/*
 * Each returns 0; -EBADMSG (no such answer) or -EMSGSIZE (beyond the caps of engine.h) with the
 * reason; -ENOMEM. On success free the containers with engine_containers_done.
 */
int engine_parse_list(const char *text, size_t len, struct engine_containers *ret,
                      struct error *err);
int engine_parse_inspect(const char *text, size_t len, struct engine_containers *ret,
                         struct error *err);

/*
 * Writes the engine's own words for a failure: one printable line, never empty, cut at
 * ERROR_TEXT_MAX. @cause (may be NULL) is podman's name for the kind of error, or "".
 */
void engine_parse_failure(const char *text, size_t len, char ret_message[ERROR_TEXT_MAX],
                          char *ret_cause, size_t cause_size);

/* ---- events ---- */

struct engine_event_text {
    struct engine_event event;
    void *document;
};

/*
 * Parses one line of the stream. Returns 1 (an event; free it with engine_event_done), 0 (another
 * kind of object or action, which the caller does not need) or -EBADMSG, -ENOMEM.
 */
int engine_parse_event(const char *text, size_t len, struct engine_event_text *ret,
                       struct error *err);
void engine_event_done(struct engine_event_text *event);

/* Writes the events that engine_parse_event knows, as a filter of /events: JSON. */
extern const char engine_event_filter[];
