/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the pod of somebody else elastic: the JSON patch with which the webhook answers. A patch
 * after which the API server would refuse the pod is worse than none, since failurePolicy does not
 * cover it: whatever could conflict is left alone. Pure; any thread; called by review.c.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#define INJECT_KEY        "threadtide.io/inject"        /* label, annotation: "true", "false" */
#define INJECT_EXCEPT     "threadtide.io/inject-except" /* annotation: containers, with commas */
#define INJECT_SIZES      "threadtide.io/inject-sizes"  /* annotation: "false": no variables */
#define INJECT_DONE       "threadtide.io/injected"      /* annotation: what was done */
#define INJECT_JOB        "threadtide.io/job"           /* label: a pod of tide-kube's own */
#define INJECT_CONFIG_MAP "threadtide-agent"            /* the object and the volume */

#define INJECT_SAID_MAX    2048                /* bytes of that annotation, NUL included */
#define INJECT_STORAGE_MIN (INT64_C(64) << 20) /* bytes that a pod has to be allowed to store */
#define INJECT_NOTES_MAX   (256u << 10)        /* bytes of all annotations: the API's limit */

/*
 * The pod's volume with the agent, of a ConfigMap in its namespace: a volume of this kind may be
 * missing, and every level of Pod Security allows it. NULL: out of memory.
 */
json_t *inject_volume(void);

/*
 * @pod: as the API server sends it. @sizes: also set the variables that size runtimes. @note: do no
 * more than to say in the annotation that this kept us from it; NULL: nothing did. Returns a list
 * of operations, or NULL: nothing to do (the pod does not want it, or cannot say why not).
 */
json_t *inject_patch(const json_t *pod, bool sizes, const char *note);
