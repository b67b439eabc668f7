/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what to do in the cluster: a world goes in, a list of actions comes out.
 *
 * Pure but for allocation: no clock, no I/O, no chance. The same world and memory give the same
 * actions. What must survive a crash of the controller is in the API's objects, never in the
 * memory alone: indices (reserved in the status before a pod is made), pods that were asked to
 * leave (an annotation), restarts, the generation of the members. So it may start from any state
 * between two actions. The memory holds what can be lost: measured rates and times of waiting.
 *
 * The actions of one training stand together and in order, and each rests on the ones before it:
 * when one fails, the rest of that training's are dropped, and it is reconciled anew. What the
 * chief is told and what is given back come before what is made and resized, and do not wait for
 * it; what is refused there drops only what else was to be made, or resized. Until all are done
 * the world says that the training is held, and there are no others for it. Trainings do not
 * depend on each other.
 *
 * Event loop's thread; called by main.c, the tests and the benchmark.
 */
#pragma once

#include "kube/view/action.h"

/* What a controller has if nobody says otherwise: policy `throughput`. */
void kube_settings_init(struct kube_settings *settings);

/* 0 or -ENOMEM; then *ret_plan is untouched, and the memory is as it was. */
int kube_reconcile(const struct kube_settings *settings, const struct kube_world *world,
                   struct kube_memory *memory, struct kube_plan *ret_plan);
