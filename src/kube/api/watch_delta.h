/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure half of watch.c: remembers which version of each object the consumer knows, so that it
 * hears of every change once, whatever is listed or repeated. No I/O, no clock. Namespace, name and
 * UID identify an object. Versions are ordered if they are decimal numbers, as every API server's
 * are; others are compared only for equality. Event loop's thread.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Bytes of one event. The largest object of etcd has 1.5 MiB, and a '<' or a control character in
 * it is six bytes of JSON.
 */
#define WATCH_DELTA_LINE_MAX (16u << 20)

enum watch_change {
    WATCH_ADDED,
    WATCH_CHANGED,
    WATCH_DELETED, /* if the watch missed it, metadata has only namespace, name and uid */
    WATCH_SYNCED,  /* the consumer knows all objects; after every list; no object */
    WATCH_LOST,    /* from watch.c: the server does not answer as it should; no object */
    WATCH_BACK,    /* from watch.c: it answers again; no object */
};

/* @object is borrowed until it returns; NULL where there is none. */
typedef void watch_fn(void *arg, enum watch_change change, json_t *object);

struct watch_delta;

struct watch_delta *watch_delta_new(watch_fn *fn, void *arg); /* NULL: out of memory */
struct watch_delta *watch_delta_free(struct watch_delta *k);  /* takes NULL, returns NULL */

size_t watch_delta_count(const struct watch_delta *k);

/* The version from which a watch goes on; "": list first. Valid until the next call. */
const char *watch_delta_version(const struct watch_delta *k);

/*
 * A new list in pages. watch_delta_list_end() reports the objects that are gone; a list that breaks
 * off starts anew. watch_delta_list_page() returns 0 with the next page's token ("": last page;
 * borrowed from @list), -EBADMSG or -ENOMEM.
 */
void watch_delta_list_begin(struct watch_delta *k);
int watch_delta_list_page(struct watch_delta *k, json_t *list, const char **ret_continue,
                          struct error *err);
void watch_delta_list_end(struct watch_delta *k);

/*
 * One line of a watch. 0; -ESTALE: the version is too old, list anew; -EREMOTEIO: the server ends
 * the watch, with its reason; -EBADMSG: no event; -ENOMEM.
 */
int watch_delta_event(struct watch_delta *k, const char *line, size_t len, struct error *err);

/*
 * Takes the object in the answer to our own write, so that the consumer knows it before the watch
 * brings it. Ignores an object that is not known to be newer than everything from the watch.
 */
void watch_delta_learn(struct watch_delta *k, json_t *object);
