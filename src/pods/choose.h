/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which containers of pods are jobs, which get the agent, and what their pods ask for them. Pure;
 * any thread.
 */
#pragma once

#include "pods/message.h"

#include <jansson.h>

#define CHOOSE_NAMESPACES_MAX 32
#define CHOOSE_NAME_MAX       64 /* of a job, as proto.h has it */

#define CHOOSE_PREFIX "threadtide.io/" /* of labels and annotations */

enum qos { QOS_GUARANTEED, QOS_BURSTABLE, QOS_BEST_EFFORT, QOS_MAX };

/* The administrator's choice. A pod's own word comes first. */
struct choice {
    const char *namespaces[CHOOSE_NAMESPACES_MAX]; /* whose pods are jobs */
    unsigned n_namespaces;
    unsigned qos;    /* a bit for each class whose pods are jobs */
    const char *own; /* our own namespace, whose pods stay as they are; NULL: unknown */
    bool inject;     /* every job gets the agent, also where its pod does not ask for it */
};

struct chosen {
    bool job;     /* tided shares cores among these */
    bool refused; /* its pod says no: `tide adopt` refuses, too */
    bool inject;  /* it gets the agent */
    bool ours;    /* a pod of the system or of ours, which nobody governs */
};

struct chosen choose(const struct choice *choice, const struct nri_pod *pod, struct span container);

enum qos choose_qos(const struct nri_pod *pod);
int choose_qos_parse(const char *word, enum qos *ret); /* 0 or -EINVAL */

/* Labels as a container of Docker would have them, see daemon/containers/labels.h; NULL: no memory.
 */
json_t *choose_labels(const struct chosen *chosen, const struct nri_pod *pod);

/* A number among the attributes that the pod asks for: "max"; 0: none. */
unsigned choose_number(const struct nri_pod *pod, const char *name);

/* Its name as a job: NAMESPACE.POD.CONTAINER, or what of its end there is room for. Returns @buf.
 */
const char *choose_name(const struct nri_pod *pod, struct span container,
                        char buf[CHOOSE_NAME_MAX]);
