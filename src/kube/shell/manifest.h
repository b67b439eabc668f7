/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the JSON that the controller writes: a training's pods, service, status, patches and
 * events, and the members that answer its chief.
 *
 * A pod is the user's template plus what a training needs: lists are extended, and an entry of ours
 * with the same name wins. The caller owns each result (json_decref); NULL: out of memory. Event
 * loop's thread; called by act.c and chiefs_channel.c.
 */
#pragma once

#include "kube/view/action.h"

/* Where chiefs reach the controller, and how they recognise it. */
struct kube_pod_settings {
    const char *controller; /* host and port: "tide-kube.threadtide.svc:8443" */
    const char *ca_pem;     /* the authority that signs its certificate */
    const char *node_image; /* its container copies /opt/threadtide; NULL: users' images have it */
};

/* The name of a pod: "NAME-worker-3"; the ConfigMap is "NAME-ca". */
void kube_pod_name(const struct kube_etj *etj, enum kube_role role, uint32_t index,
                   char ret[KUBE_NAME_MAX + 1]);

json_t *kube_owner_json(const struct kube_etj *etj); /* ownerReferences */

/* Whole objects: a pod for CREATE_POD; a service and a ConfigMap for CREATE_SERVICE. */
json_t *kube_pod_json(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                      const struct kube_new_pod *new_pod);
json_t *kube_service_json(const struct kube_etj *etj);
json_t *kube_config_json(const struct kube_pod_settings *settings, const struct kube_etj *etj);

/* For server-side apply on …/status: apiVersion, kind, metadata.name and all of the status. */
json_t *kube_status_json(const struct kube_etj *etj, const struct kube_status *status);

/* For server-side apply on the etj: our finalizer, beside those of others. */
json_t *kube_finalizer_json(const struct kube_etj *etj);
/*
 * A JSON patch that removes our finalizer, whoever added it. An apply removes only fields that we
 * own, but the finalizer may come with the user's manifest.
 */
json_t *kube_let_go_json(const struct kube_etj *etj);

/* Strategic merge patches of a pod, and of its subresource `resize`. */
json_t *kube_leave_json(const char *why);
json_t *kube_resize_json(const struct kube_pod *pod, int64_t mcpu, int64_t limit_mcpu);

/* An events.k8s.io/v1 Event about the training; @name is unique. */
json_t *kube_event_json(const struct kube_action *action, const char *name, const char *controller,
                        int64_t wall_ns);

/* {"generation": …, "mode": …, "slots": …, "suspend": …, "ps": […], "worker": […]} */
json_t *kube_members_json(const struct kube_members *members);
