// SPDX-License-Identifier: Apache-2.0
#include "registers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <modbus/modbus.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define COUNT 0x0180
#define VOLTS 230.0f
#define HERTZ 50.0f

struct registers {
    modbus_t *modbus;
    modbus_mapping_t *map;
    int listening;
    int peer[REGISTERS_PEERS_MAX]; /* -1: free */
};

static int listen_on(uint16_t port, uint16_t *ret_port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, REGISTERS_PEERS_MAX) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
        int r = -errno;

        close(fd);
        return r;
    }
    *ret_port = ntohs(address.sin_port);
    return fd;
}

int registers_new(uint16_t port, struct registers **ret, uint16_t *ret_port)
{
    struct registers *r = calloc(1, sizeof *r);

    if (!r)
        return -ENOMEM;
    memset(r->peer, -1, sizeof r->peer);
    r->listening = listen_on(port, ret_port);
    if (r->listening < 0) {
        int error = r->listening;

        free(r);
        return error;
    }
    r->modbus = modbus_new_tcp("127.0.0.1", *ret_port);
    r->map = modbus_mapping_new(0, 0, 0, COUNT);
    if (!r->modbus || !r->map) {
        registers_free(r);
        return -ENOMEM;
    }
    registers_set(r, 0, 0);
    *ret = r;
    return 0;
}

struct registers *registers_free(struct registers *r)
{
    if (!r)
        return NULL;
    for (unsigned i = 0; i < REGISTERS_PEERS_MAX; i++)
        if (r->peer[i] >= 0)
            close(r->peer[i]);
    close(r->listening);
    if (r->map)
        modbus_mapping_free(r->map);
    if (r->modbus)
        modbus_free(r->modbus);
    free(r);
    return NULL;
}

/* Not modbus_set_float_abcd(): up to libmodbus 3.1.6 it swaps the bytes of each register. */
static void set(struct registers *r, int at, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    r->map->tab_input_registers[at] = (uint16_t)(bits >> 16);
    r->map->tab_input_registers[at + 1] = (uint16_t)bits;
}

void registers_set(struct registers *r, uint64_t uw, uint64_t total_uj)
{
    float watts = (float)((double)uw / 1e6);
    float kwh = (float)((double)(total_uj / 3600000000ULL) / 1e3);

    for (int phase = 0; phase < 3; phase++) {
        set(r, 0x00 + 2 * phase, VOLTS);
        set(r, 0x06 + 2 * phase, watts / 3 / VOLTS);
        set(r, 0x0c + 2 * phase, watts / 3);
    }
    set(r, 0x34, watts);
    set(r, 0x46, HERTZ);
    set(r, 0x48, kwh);
    set(r, 0x156, kwh);
}

unsigned registers_fds(const struct registers *r, struct pollfd *ret)
{
    unsigned n = 0;

    ret[n++] = (struct pollfd){.fd = r->listening, .events = POLLIN};
    for (unsigned i = 0; i < REGISTERS_PEERS_MAX; i++)
        if (r->peer[i] >= 0)
            ret[n++] = (struct pollfd){.fd = r->peer[i], .events = POLLIN};
    return n;
}

static void accept_one(struct registers *r)
{
    int fd = accept4(r->listening, NULL, NULL, SOCK_CLOEXEC);
    /* libmodbus reads a whole request: whoever sends half of one is hung up on. */
    struct timeval half = {.tv_usec = 200000};

    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof half);
    for (unsigned i = 0; i < REGISTERS_PEERS_MAX; i++)
        if (r->peer[i] < 0) {
            r->peer[i] = fd;
            return;
        }
    close(fd);
}

static void answer(struct registers *r, int fd)
{
    uint8_t request[MODBUS_TCP_MAX_ADU_LENGTH];
    int n;

    modbus_set_socket(r->modbus, fd);
    n = modbus_receive(r->modbus, request);
    if (n == 0) /* for another station */
        return;
    if (n > 0 && modbus_reply(r->modbus, request, n, r->map) >= 0)
        return;
    for (unsigned i = 0; i < REGISTERS_PEERS_MAX; i++)
        if (r->peer[i] == fd)
            r->peer[i] = -1;
    close(fd);
}

void registers_serve(struct registers *r, const struct pollfd *ready, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (!ready[i].revents)
            continue;
        if (ready[i].fd == r->listening)
            accept_one(r);
        else
            answer(r, ready[i].fd);
    }
}
