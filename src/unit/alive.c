/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/alive.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"

#define ERROR_WORD "unit-silent"

#define PATIENCE_S 5

static const char question[] = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                               "Connection: close\r\n\r\n";
static const char answer[] = "HTTP/1.1 200";

static int failed(void)
{
    return errno == EAGAIN || errno == EINPROGRESS ? -ETIMEDOUT : -errno;
}

/* An event loop that stands still answers nothing, though the kernel takes the connection. */
static int ask(uint16_t port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char got[sizeof(answer)] = "";
    ssize_t n;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ||
        send(fd, question, strlen(question), MSG_NOSIGNAL) < 0)
        return failed();
    n = recv(fd, got, strlen(answer), MSG_WAITALL);
    if (n < 0)
        return failed();
    return strcmp(got, answer) == 0 ? 0 : -EBADMSG;
}

int alive_ask(const struct unit_config *config, struct error *err)
{
    int r;

    if (!config->metrics || !config->metrics_port)
        return error_set(err, -EINVAL, "--alive asks at the port of [unit] metrics=, which is %s",
                         config->metrics ? "any free one: name it" : "missing");
    r = ask(config->metrics_port);
    if (r == -ETIMEDOUT)
        return error_set(err, r,
                         "no answer at 127.0.0.1:%u within %d s: its event loop stands still",
                         config->metrics_port, PATIENCE_S);
    return r < 0 ? error_set(err, r, "no answer at 127.0.0.1:%u: %s", config->metrics_port,
                             strerror(-r))
                 : 0;
}
