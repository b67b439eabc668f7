/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-tls HOST PORT CA CERT KEY: the way of `tide --host https://…` to a gateway, as ssh is to
 * other machines; started by dial.c, not by people.
 *
 *     tide ─ socket pair ─ standard input and output ─▶ tunnel.c: libcurl ═ TLS ═▶ tide-gate
 *
 * Which token is shown stands in the requests, which tide writes: this program sees bytes. Its one
 * line on standard error says why there is no connection.
 */
#include "host/net/tunnel.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct error err = {0};
    int flags;

    if (argc != 6) {
        fputs("Usage: tide-tls HOST PORT CA CERT KEY\n'tide --host https://HOST' runs this.\n",
              stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags >= 0)
        fcntl(STDOUT_FILENO, F_SETFL, flags | O_NONBLOCK);
    if (tunnel_run(&(struct tunnel){argv[1], argv[2], argv[3], argv[4], argv[5]}, STDIN_FILENO,
                   STDOUT_FILENO, &err) == 0)
        return EXIT_SUCCESS;
    if (*err.text)
        dprintf(STDERR_FILENO, "%s\n", err.text); /* tide gives it its word */
    return EXIT_FAILURE;
}
