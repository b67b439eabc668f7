/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/bind.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct in6_addr only;

void bind_only_at(const struct in6_addr *address)
{
    only = *address;
}

static bool is_tcp(int fd)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* gRPC may also write IPv4's any-address as an IPv6 one. */
static bool is_any(const struct in6_addr *address)
{
    static const struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    return IN6_IS_ADDR_UNSPECIFIED(address) || IN6_ARE_ADDR_EQUAL(address, &mapped);
}

static int bind_address(int fd, const struct sockaddr *address, socklen_t len)
{
    return (int)syscall(SYS_bind, fd, address, len);
}

static int bind_six(int fd, struct sockaddr_in6 six)
{
    if (is_any(&six.sin6_addr) && is_tcp(fd))
        six.sin6_addr = only;
    return bind_address(fd, (struct sockaddr *)&six, sizeof(six));
}

static int bind_four(int fd, struct sockaddr_in four)
{
    if (four.sin_addr.s_addr == INADDR_ANY && IN6_IS_ADDR_V4MAPPED(&only) && is_tcp(fd))
        memcpy(&four.sin_addr, &only.s6_addr[12], sizeof(four.sin_addr));
    return bind_address(fd, (struct sockaddr *)&four, sizeof(four));
}

/* Needs another name in C, because libc declares the address as a union. */
__attribute__((visibility("default"))) int bind_instead(int fd, const struct sockaddr *address,
                                                        socklen_t len) __asm__("bind");

int bind_instead(int fd, const struct sockaddr *address, socklen_t len)
{
    if (!IN6_IS_ADDR_UNSPECIFIED(&only) && address) {
        if (address->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6))
            return bind_six(fd, *(const struct sockaddr_in6 *)address);
        if (address->sa_family == AF_INET && len >= sizeof(struct sockaddr_in))
            return bind_four(fd, *(const struct sockaddr_in *)address);
    }
    return bind_address(fd, address, len);
}
