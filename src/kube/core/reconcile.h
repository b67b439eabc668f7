/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what to do in the cluster: a world goes in, a list of actions comes out.
 *
 * Pure but for allocation: no clock, no I/O, no chance. The same world and memory give the same
 * actions. Facts that must survive a crash are in the API's objects, never in memory alone: indices
 * (the status reserves one before its pod exists), pods that were asked to leave (an annotation),
 * restarts, the generation of the members. So the controller may start from any state between two
 * actions. Memory holds what can be lost: measured rates and waiting times.
 *
 * The actions of one training stand together, and each rests on the ones before it. When one fails,
 * the rest of that training's actions are dropped, and it is reconciled anew. Actions that inform
 * the chief or give pods back precede those that create or resize, so they never wait for these. A
 * refused creation drops only later creations, a refused resize only later resizes. Until all its
 * actions are done, the world marks a training as held, and a plan has none for it. Trainings do
 * not depend on each other.
 *
 * Event loop's thread; called by shell/controller.c, the tests and the benchmark.
 */
#pragma once

#include "kube/view/action.h"

/* Sets the defaults of a controller: policy `throughput`. */
void kube_settings_init(struct kube_settings *settings);

/* Returns 0 or -ENOMEM. On -ENOMEM *ret_plan and the memory are unchanged. */
int kube_reconcile(const struct kube_settings *settings, const struct kube_world *world,
                   struct kube_memory *memory, struct kube_plan *ret_plan);
