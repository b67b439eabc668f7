/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API server's question about a pod (AdmissionReview, admission.k8s.io/v1), and the answer,
 * which always allows it. Pure; any thread; called by webhook.c and the fuzzer.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define REVIEW_MAX (4u << 20) /* bytes of a question; the API server's objects have 1.5 MiB */
#define REVIEW_POD_MAX                                                                             \
    (1u << 20)              /* bytes of one about a pod that is changed: it has to fit in again */
#define REVIEW_SPACE_MAX 64 /* bytes of a namespace's name, NUL included */

struct review {
    json_t *whole;     /* owned */
    const char *uid;   /* of the question; borrowed from the whole, as the following */
    const json_t *pod; /* NULL: it is not about a new pod */
    char name_space[REVIEW_SPACE_MAX];
    bool dry_run; /* nothing may be written anywhere */
};

/* Returns 0, or -EBADMSG (no question, or one of an unknown version) with *err. */
int review_read(const char *body, size_t len, struct review *ret, struct error *err);

/*
 * Takes @patch over (NULL: the pod stays as it is). Returns the answer's text, which the caller
 * frees; NULL: out of memory.
 */
char *review_answer(const struct review *r, json_t *patch);

void review_done(struct review *r);
