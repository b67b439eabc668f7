/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct engine, for its two halves: engine.c (finding the engine, its news) and
 * engine_call.c (calls).
 */
#pragma once

#include "base/error.h"
#include "host/engine/engine_dialect.h"
#include "host/engine/engine_text.h"
#include "host/net/transfer.h"

#include <sys/un.h>

#define ENGINE_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)
#define ENGINE_SEEN_MAX 256 /* events remembered to recognize their repetition */

/* The phases of the stream of events; the timer means something else in each. */
enum engine_phase {
    AWAY,     /* no engine answers: wait, then ask again */
    ASKING,   /* /_ping is under way */
    OPENING,  /* /events is under way: until its answer begins */
    RESUMING, /* the stream began anew: does the engine still know the last event that we saw? */
    LIVE,
};

struct engine_seen {
    uint64_t time_ns, hash;
};

struct engine_call;

struct engine {
    struct transfers *http;
    struct transfer_server server; /* at path */
    engine_news_fn *news;
    void *arg;
    const struct engine_dialect *dialect; /* NULL: no engine has answered yet */
    struct engine_greeting greeting;
    struct engine_call *calls;
    int64_t tickets;     /* ticket of the last call */
    int64_t stream;      /* the transfer of /_ping or /events */
    uint64_t last_ns;    /* time of the newest event, or when we began to listen */
    uint64_t arrived_ns; /* CLOCK_MONOTONIC: when the stream of events began */
    size_t skipped;      /* bytes skipped of an event that is too long; 0: none */
    unsigned n_calls, n_seen, backoff_ms;
    int epoll_fd, timer_fd;
    enum engine_phase phase;
    bool have_last;
    struct engine_seen seen[ENGINE_SEEN_MAX];
    struct error broken; /* why we gave up the stream */
    char path[ENGINE_PATH_MAX];
    char lost[ENGINE_PATH_MAX + ERROR_TEXT_MAX]; /* the last reason; "": the engine answers */
};

/* Breaks off all calls. */
void engine_calls_free(struct engine *e);
