/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads values from JSON that somebody else wrote. A reader remembers the first fault and its
 * place. After that every read returns its default, so that a parser reads on and checks once, at
 * the end. Absent and null are the same. Event loop's thread; used by object.c, etj.c and
 * chief_report.c.
 *
 * A lenient reader is for objects that exist whatever we think of them, and use room: it skips an
 * impossible value, and takes the largest possible one for a value that is too large.
 */
#pragma once

#include "kube/object/object.h"

struct reader {
    struct error err;
    char where[128]; /* "spec.containers[2].": put in front of a key */
    bool lenient;
};

/* Sets the prefix. */
__attribute__((format(printf, 2, 3))) void read_at(struct reader *r, const char *fmt, ...);

/* Notes what is wrong with @key; a lenient reader ignores it. */
__attribute__((format(printf, 3, 4))) void read_fault(struct reader *r, const char *key,
                                                      const char *fmt, ...);

const json_t *read_object(struct reader *r, const json_t *in, const char *key);
/* At most KUBE_LIST_MAX entries. */
const json_t *read_array(struct reader *r, const json_t *in, const char *key);
/* Returns a borrowed text of at most KUBE_TEXT_MAX bytes; NULL: none. */
const char *read_string(struct reader *r, const json_t *in, const char *key);
/* Cuts a longer string to KUBE_TEXT_MAX bytes; the caller owns it. */
char *read_clipped(struct reader *r, const json_t *in, const char *key);
/* The same as read_string(); the caller owns it. */
char *read_text(struct reader *r, const json_t *in, const char *key);
char *read_copy(struct reader *r, const char *text);
bool read_bool(struct reader *r, const json_t *in, const char *key, bool otherwise);
int64_t read_int(struct reader *r, const json_t *in, const char *key, int64_t otherwise,
                 int64_t min, int64_t max);
/* Not negative and finite. */
double read_real(struct reader *r, const json_t *in, const char *key, double otherwise);
/* Nanoseconds since 1970; 0: none. */
int64_t read_time(struct reader *r, const json_t *in, const char *key);
/* The index of the string in @names (@count of them), or @otherwise where there is none. */
int read_name(struct reader *r, const json_t *in, const char *key, const char *const *names,
              int count, int otherwise);

/* "cpu" and "memory" of requests or limits; leaves pods alone. -1 for an absent value. */
void read_resources(struct reader *r, const json_t *in, const char *key, struct kube_amount *ret);
/* A quantity, as string or number, in thousandths or whole. */
int64_t read_quantity(struct reader *r, const json_t *in, const char *key, bool milli,
                      int64_t otherwise);

void read_meta(struct reader *r, const json_t *object, struct kube_meta *ret);
void read_labels(struct reader *r, const json_t *in, const char *key, struct kube_labels *ret);
/* nodeSelector, affinity, tolerations of a pod's spec. */
void read_place(struct reader *r, const json_t *spec, struct kube_place *ret);
/* Requirements of a term or selector: @key holds them. */
void read_term(struct reader *r, const json_t *in, const char *key, bool field,
               struct kube_term *term);
/* Requests and limits of a pod of such a spec; @own are the resources of KUBE_CONTAINER instead of
 * those that are written there. @ret_mcpu and @ret_limit_mcpu are that container's part. */
void read_pod_request(struct reader *r, const json_t *spec, const json_t *own,
                      struct kube_amount *ret_request, struct kube_amount *ret_limit,
                      int64_t *ret_mcpu, int64_t *ret_limit_mcpu);

/* Adds all of a list of resources but cores, memory and pods to *@ret. Amounts that cannot be read
 * are left out. */
void read_extras(struct reader *r, const json_t *in, const char *key, struct kube_extras *ret);

/* Memory for @count things of @size bytes, zeroed; a fault where there is none. */
void *read_alloc(struct reader *r, size_t count, size_t size);
/* 0, or the code with the text in *err. */
int read_end(const struct reader *r, struct error *err);

void kube_meta_done(struct kube_meta *meta);
void kube_extras_done(struct kube_extras *extras);
void kube_labels_done(struct kube_labels *labels);
void kube_term_done(struct kube_term *term);
void kube_place_done(struct kube_place *place);
