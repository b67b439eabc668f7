/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kubectl tide dashboard`: the page of the cluster on loopback, with the rights of the caller's
 * kubeconfig. It reads lists when the page asks, at most one look at a time, and less often the
 * longer a look takes. Event loop's thread; used by kubectl.c.
 */
#pragma once

#include "kube/kubectl/kubectl.h"

/* Serves until SIGINT, SIGTERM or SIGHUP. Returns 0 or -errno, having said why. */
int cluster_page_serve(struct kubectl *k, long port, bool browser);
