/* SPDX-License-Identifier: Apache-2.0 */
/* The log of tide-kube: lines on stderr. Event loop's thread; called by the main functions. */
#pragma once

#define KUBE_LOG_BURST    200 /* lines in KUBE_LOG_WINDOW_S; whoever connects can cause lines */
#define KUBE_LOG_WINDOW_S 10

/* @arg is ignored: parts of the controller call it as a callback. */
void kube_log(void *arg, const char *text);
