/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tool (OMPT) in the program that it watches: prints "caller OBJECT" for the first regions.
 * NO_TOOL leaves the program, NO_PROGRAM a library with the tool.
 */
#include <dlfcn.h>
#include <omp-tools.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#ifndef NO_TOOL
static void on_parallel(ompt_data_t *task, const ompt_frame_t *frame, ompt_data_t *region,
                        unsigned threads, int flags, const void *caller)
{
    static const void *last;
    Dl_info info = {.dli_fname = "?"};

    (void)task, (void)frame, (void)region, (void)threads, (void)flags;
    if (caller == last)
        return;
    last = caller;
    dladdr(caller, &info);
    printf("caller %s\n", strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : "?");
    fflush(stdout);
}

static int start(ompt_function_lookup_t lookup, int device, ompt_data_t *data)
{
    ompt_set_callback_t set = (ompt_set_callback_t)lookup("ompt_set_callback");

    (void)device, (void)data;
    return set &&
           set(ompt_callback_parallel_begin, (ompt_callback_t)on_parallel) == ompt_set_always;
}

static void stop(ompt_data_t *data)
{
    (void)data;
}

ompt_start_tool_result_t *ompt_start_tool(unsigned version, const char *runtime)
{
    static ompt_start_tool_result_t result = {start, stop, {0}};

    (void)version, (void)runtime;
    return &result;
}

#endif

#ifndef NO_PROGRAM
int main(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    int heads = 0, had = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (poll(&in, 1, 2) == 0) {
        heads = 0;
#pragma omp parallel reduction(+ : heads)
        heads++;
        if (heads != had)
            printf("team %d\n", had = heads);
        fflush(stdout);
    }
    return 0;
}
#endif
