/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives a container that is being made the agent's directory, its control directory, and
 * the environment with which the agent is loaded and runtimes are sized. The same as tide-runc
 * does, said in NRI's words. Pure; any thread.
 */
#pragma once

#include "base/startup.h"
#include "pods/message.h"

struct adjust_how {
    const char *agent_dir;   /* on the host */
    const char *control_dir; /* on the host, the container's own; NULL: it is no job */
    unsigned request, min, max, cores;
    bool sizes; /* variables that size runtimes, too */
};

/*
 * Appends a ContainerAdjustment to the CreateContainerResponse @answer. Whatever could keep the
 * container from starting is left out: mounts that would meet others, a variable that would become
 * too long. Returns whether anything was put; *ret tells how programs of the container are sized.
 */
bool adjust_put(struct buffer *answer, const struct adjust_how *how, const struct nri_container *c,
                struct startup *ret);
