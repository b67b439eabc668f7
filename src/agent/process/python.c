/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/python.h"

#include "agent/compat.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool python_is_here(void)
{
    typedef int (*is_initialized_fn)(void);
    typedef const char *(*version_fn)(void);
    is_initialized_fn is_initialized = (is_initialized_fn)dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    version_fn version = (version_fn)dlsym(RTLD_DEFAULT, "Py_GetVersion");

    /* Without a GIL other threads are anywhere while the main thread is at its safe point. */
    return is_initialized && version && is_initialized() && !strstr(version(), "free-threading");
}

bool python_call_soon(int (*fn)(void *))
{
    typedef int (*add_fn)(int (*)(void *), void *);
    add_fn add = (add_fn)dlsym(RTLD_DEFAULT, "Py_AddPendingCall");

    return add && python_is_here() && add(fn, NULL) == 0;
}

bool python_sleeps(void)
{
    char path[64], text[256];
    const char *state;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    state = strrchr(text, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}
