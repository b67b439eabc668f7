/* SPDX-License-Identifier: Apache-2.0 */
/* `tide-kube inject`: brings the agent into pods that ask for it. Called by main.c. */
#pragma once

int inject_main(int argc, char **argv);
