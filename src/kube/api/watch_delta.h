/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure half of watch.c: which objects of one kind the consumer has been told of, in which
 * version, so that it hears of every change once, whatever is listed or repeated. No I/O, no clock.
 * Objects are told apart by namespace, name and UID; versions are compared when they are decimal
 * numbers, as those of every API server are, else only for equality. Event loop's thread.
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
    WATCH_DELETED, /* what was missed has only namespace, name and uid, in its metadata */
    WATCH_SYNCED,  /* all that there is has been told; no object. Again after every new list */
    WATCH_LOST,    /* from watch.c: the server does not answer as it should; no object */
    WATCH_BACK,    /* … and does again */
};

/* @object is borrowed until it returns; NULL where there is none. */
typedef void watch_fn(void *arg, enum watch_change change, json_t *object);

struct watch_delta;

struct watch_delta *watch_delta_new(watch_fn *fn, void *arg); /* NULL: out of memory */
struct watch_delta *watch_delta_free(struct watch_delta *k);  /* takes NULL, returns NULL */

size_t watch_delta_count(const struct watch_delta *k);

/* From where a watch goes on; "": list first. Until the next call. */
const char *watch_delta_version(const struct watch_delta *k);

/*
 * A new list in pages: watch_delta_list_end tells what is gone. A list that breaks off is begun
 * anew. watch_delta_list_page returns 0 with the next page's token ("": it was the last; borrowed
 * from @list), -EBADMSG or -ENOMEM.
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
 * An object as a write of ours was answered: the consumer knows it before the watch comes to it.
 * Ignored where it cannot be told that it is newer than all that the watch has brought.
 */
void watch_delta_learn(struct watch_delta *k, json_t *object);
