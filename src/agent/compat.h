/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binds the few libc symbols that moved to a new version in glibc 2.34 to their first one, so that
 * an agent linked on a current system loads under glibc 2.17. The dl functions are weak: a program
 * without libdl cannot have loaded a runtime either, so there the agent stays inert.
 * Everything else that moved (pthread_create, fstat, …) is looked up or called as a system call.
 */
#pragma once

#include <dlfcn.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define AGENT_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define AGENT_FIRST_GLIBC "GLIBC_2.17"
#endif

#ifdef AGENT_FIRST_GLIBC
__asm__(".symver dlsym,dlsym@" AGENT_FIRST_GLIBC);
__asm__(".symver dlopen,dlopen@" AGENT_FIRST_GLIBC);
__asm__(".symver dladdr,dladdr@" AGENT_FIRST_GLIBC);
#endif

#pragma weak dlsym
#pragma weak dlopen
#pragma weak dladdr
