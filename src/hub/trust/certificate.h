/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificate of the page: the organization's own files, read again when they change, or one
 * that the hub's authority signs and that is kept in the state (web.crt, web.key), so that a
 * browser that was told to trust it still does after a restart. Event loop's thread; used by
 * src/hub/serve.
 */
#pragma once

#include "host/trust/served.h"
#include "hub/conf.h"

#define CERTIFICATE_RENEW_DAYS 30

/*
 * Has new connections served with the present certificate, if it is another one. Returns 1: it is,
 * 0: nothing changed, or -errno: the last one stays.
 */
int certificate_look(struct served *s, const struct conf *conf, struct error *err);

/* The names for which it is: at most CONF_HOSTS_MAX, each CONF_HOST_MAX. Returns how many. */
unsigned certificate_hosts(const struct conf *conf, char ret[CONF_HOSTS_MAX][CONF_HOST_MAX]);
