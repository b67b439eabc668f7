/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An area's own broker: the files of a mosquitto through which the area's machines speak to
 * tide-power with TLS, and its plugs without. They lie in STATE/broker:
 *
 *     mosquitto.conf, acl, plugs.acl   written anew by each start of 'tide-power broker'
 *     revoked.crl, revoked             the hub's list of certificates; names of revoked machines
 *     pid                              the mosquitto's
 *
 * Data's way: enrolment writes the first list; the hub sends each change as down/revoked, this
 * module writes it and has the running mosquitto read it. Event loop's thread, or the command's.
 * Used by area.c and by cmd_broker.c.
 */
#pragma once

#include "base/error.h"
#include "unit/config.h"

#include <stdbool.h>
#include <stdint.h>

#define BROKER_LIST_MAX (256 << 10) /* bytes of down/revoked */

struct broker_listens {
    const char *address;      /* of the machines' listener; NULL: every address */
    unsigned port;            /* with TLS */
    const char *plug_address; /* of the plugs' listener; NULL: there is none */
    unsigned plug_port;
    const char *user; /* whom mosquitto becomes if root starts it; NULL: nobody special */
};

/* Writes all that mosquitto needs. -EINVAL: the unit's certificate is for no host. */
int broker_write(const struct unit_config *config, const struct broker_listens *listens,
                 struct error *err);

/* Whether the unit has one. */
bool broker_is_there(const char *state_dir);

/*
 * Takes a message: names with blanks between, a line's end, and the list (PEM). Returns 1: it is
 * news, and the running broker reads it; 0: it is the present one; -errno with *err: nothing
 * changed.
 */
int broker_take_list(const struct unit_config *config, const void *bytes, size_t len,
                     struct error *err);

/* The running broker, if there is one, reads its certificate and lists again. */
void broker_reload(const char *state_dir);

/* Replaces STATE/broker/NAME. */
int broker_put(const char *state_dir, const char *name, const char *text, struct error *err);
