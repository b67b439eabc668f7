/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glibc 2.34 moved a few symbols to a new version. This file binds them to their first version, so
 * that an agent linked on a current system loads under glibc 2.17. The dl functions are weak: a
 * program without libdl cannot have loaded a runtime either, so there the agent stays inert.
 * The agent looks up other moved functions (pthread_create) or uses the system call (fstat).
 */
#pragma once

#include "agent/processor.h"

#include <dlfcn.h>

#ifdef __GLIBC__
__asm__(".symver dlsym,dlsym@" PROCESSOR_FIRST_GLIBC);
__asm__(".symver dlopen,dlopen@" PROCESSOR_FIRST_GLIBC);
__asm__(".symver dladdr,dladdr@" PROCESSOR_FIRST_GLIBC);
#endif

#pragma weak dlsym
#pragma weak dlopen
#pragma weak dladdr
