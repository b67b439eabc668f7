/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machines of a person: names and addresses, from a file, from DNS or from Kubernetes. Any
 * thread; reading may ask a name server or run kubectl.
 *
 * A line of the file is one of
 *
 *     NAME ADDRESS                       address.h says what an address is
 *     dns:NAME [ADDRESS]                 the targets of this name's SRV records
 *     kubernetes:SELECTOR [ADDRESS]      the nodes with these labels
 *
 * with comments behind '#'. In the ADDRESS of the last two a star stands for the machine's own
 * name or address; without ADDRESS it is ssh.
 */
#pragma once

#include "cli/remote/address.h"

#include <limits.h>
#include <stddef.h>

#define INVENTORY_VARIABLE     "TIDE_FLEET"
#define INVENTORY_SYSTEM       "/etc/tide/fleet"
#define INVENTORY_BYTES_MAX    (256 << 10)
#define INVENTORY_MACHINES_MAX 1024
#define INVENTORY_NAME_MAX     256

struct machine {
    char name[INVENTORY_NAME_MAX];
    struct address address;
};

struct inventory {
    struct machine *machine;
    size_t n;
    char from[PATH_MAX]; /* the file */
};

/*
 * Reads @given: a file, or a line "dns:…" or "kubernetes:…". NULL: what TIDE_FLEET says, else
 * ~/.config/tide/fleet, else /etc/tide/fleet. Returns 0; -ENOENT: there is none; or another -errno
 * with *err.
 */
int inventory_read(const char *given, struct inventory *ret, struct error *err);
void inventory_done(struct inventory *i);

/* The address of a machine: @name is one itself, or a name in the inventory. 0 or -errno. */
int inventory_resolve(const char *name, struct address *ret, struct error *err);

/*
 * Adds a machine. @template NULL: ssh. @port "" or what the source says of the port. Returns 0,
 * -ENOSPC or -EINVAL; for dns.c and nodes.c.
 */
int inventory_add(struct inventory *i, const char *name, const char *host, const char *port,
                  const char *template, struct error *err);

/* Add the targets of SRV records; the nodes with labels. */
int inventory_from_dns(struct inventory *i, const char *name, const char *template,
                       struct error *err);
int inventory_from_nodes(struct inventory *i, const char *selector, const char *template,
                         struct error *err);
