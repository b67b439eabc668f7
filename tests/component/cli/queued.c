/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the values that are queued with the signal SIGRTMIN+argv[1], one a line. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int values[2];

static void handler(int number, siginfo_t *info, void *context)
{
    if (write(values[1], &info->si_value.sival_int, sizeof(int)) < 0)
        _exit(1);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    int value;

    if (pipe(values) < 0 || sigaction(SIGRTMIN + atoi(argv[1]), &action, NULL) < 0)
        return 1;
    printf("ready\n");
    fflush(stdout);
    while (read(values[0], &value, sizeof(value)) == sizeof(value)) {
        printf("%d\n", value);
        fflush(stdout);
    }
    return 0;
}
