/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose constructor calls back the test that loads it. */
#include <dlfcn.h>

__attribute__((constructor)) static void begin(void)
{
    void (*in_constructor)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "in_constructor");

    in_constructor();
}
