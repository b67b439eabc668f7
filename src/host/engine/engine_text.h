/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses answers of engines into structs. Pure: any bytes give structs or a reason.
 * Any thread; called by engine.c, unit tests and the fuzzer.
 */
#pragma once

#include "host/engine/engine.h"

/* Whether @text may stand in a path: letters, digits, "_.-", shorter than ENGINE_ID_MAX. */
bool engine_is_id(const char *text);

/* ---- the first question, /_ping: headers alone ---- */

struct engine_greeting {
    enum engine_kind kind;
    unsigned api;     /* the version of Docker's API to use is 1.@api */
    char prefix[24];  /* of paths: "/v1.41", "/v4.0.0/libpod" */
    char version[48]; /* "docker 1.41", "podman 4.3.1" */
};

/* Returns 0, -EPROTO (no engine speaks so) or -EOPNOTSUPP (too old) with the reason. */
int engine_parse_greeting(const char *head, struct engine_greeting *ret, struct error *err);

/* ---- answers ---- */

/* Containers; their texts belong to the parsed document. */
struct engine_containers {
    struct engine_container *list;
    size_t n;
    void *document;
};

void engine_containers_done(struct engine_containers *containers);

/*
 * Each returns 0; -EBADMSG (no such answer) or -EMSGSIZE (more than the caps of engine.h) with the
 * reason; -ENOMEM. The containers are freed with engine_containers_done, on success only.
 */
int engine_parse_list(const char *text, size_t len, struct engine_containers *ret,
                      struct error *err);
int engine_parse_inspect(const char *text, size_t len, struct engine_containers *ret,
                         struct error *err);

/*
 * The engine's own words in an answer that is no success: one printable line, never empty, cut at
 * ERROR_TEXT_MAX. @cause (may be NULL) is what podman calls the kind of error, or "".
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
 * kind of object or action, which we do not need) or -EBADMSG, -ENOMEM.
 */
int engine_parse_event(const char *text, size_t len, struct engine_event_text *ret,
                       struct error *err);
void engine_event_done(struct engine_event_text *event);

/* The events that engine_parse_event knows, as a filter of /events: JSON. */
extern const char engine_event_filter[];
