/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster at one moment: the input of kube_reconcile(). Pointers are borrowed from the caches
 * and stay valid during the call. The order of the arrays does not matter.
 *
 * Filled in by the controller's loop, and by tests and the benchmark.
 */
#pragma once

#include "kube/object/object.h"

enum kube_kueue {
    KUBE_KUEUE_ABSENT,  /* the cluster has none: the labels of queues mean nothing */
    KUBE_KUEUE_UNKNOWN, /* nobody can tell yet, or its objects are not all known */
    KUBE_KUEUE_KNOWN
};

struct kube_world {
    int64_t now_ns;  /* CLOCK_MONOTONIC: for durations */
    int64_t wall_ns; /* since 1970: for texts, and to compare with times that others wrote */
    uint64_t trust;  /* changes with the authority that chiefs have to trust */
    const struct kube_node *const *nodes;
    size_t node_count;
    const struct kube_pod *const *pods; /* of the whole cluster: foreign pods use room, too */
    size_t pod_count;
    const struct kube_etj *const *etjs;
    size_t etj_count;
    const bool *held; /* for each etj: earlier actions are not done yet; NULL: for none */
    const struct kube_quota *const *quotas;
    size_t quota_count;
    const struct kube_pdb *const *pdbs;
    size_t pdb_count;
    const struct kube_report *const *reports; /* at most one per training */
    size_t report_count;
    enum kube_kueue kueue;
    const char *kueue_version; /* of its group; set if it is known */
    const struct kube_workload *const *workloads;
    size_t workload_count;
    const struct kube_flavor *const *flavors;
    size_t flavor_count;
    const struct kube_class *const *classes; /* PriorityClasses */
    size_t class_count;
    const struct kube_class *const *queue_classes; /* WorkloadPriorityClasses */
    size_t queue_class_count;
};
