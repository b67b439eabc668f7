/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the agent through its table, blocks in read() and says what became of it. */
#include "agent/program_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    const struct agent_program_api *api = dlsym(RTLD_DEFAULT, TIDE_AGENT_PROGRAM_API_SYMBOL);
    struct agent_state state;
    char text[16];
    ssize_t n;

    if (!api || api->declare(8) != 0)
        return 1;
    printf("ready\n");
    fflush(stdout);
    n = read(STDIN_FILENO, text, sizeof(text));
    if (n < 0)
        return errno;
    api->get(&state);
    printf("read %zd target %u\n", n, state.target);
    return 0;
}
