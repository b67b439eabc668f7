/* SPDX-License-Identifier: Apache-2.0 */
/* Machines from SRV records: priority and weight have no meaning here, as all are wanted. */
#include "cli/remote/inventory.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-inventory"

#define ANSWER_MAX 65536

static int failed(const char *name, int why, struct error *err)
{
    return error_set(err, why == TRY_AGAIN ? -EAGAIN : -EINVAL, "dns: %.100s has no SRV record: %s",
                     name,
                     why == HOST_NOT_FOUND ? "there is no such name"
                     : why == TRY_AGAIN    ? "the name server does not answer"
                     : why == NO_DATA      ? "it has records of other types"
                                           : "the name server refuses");
}

/* "PRIORITY WEIGHT PORT TARGET" */
static int add_target(struct inventory *i, ns_msg *message, const ns_rr *record,
                      const char *template, struct error *err)
{
    const unsigned char *data = ns_rr_rdata(*record);
    char host[NS_MAXDNAME], port[8];

    if (ns_rr_rdlen(*record) < 7 || ns_name_uncompress(ns_msg_base(*message), ns_msg_end(*message),
                                                       data + 6, host, sizeof(host)) < 0)
        return error_set(err, -EBADMSG, "dns: a record is broken");
    if (strcmp(host, ".") == 0 || !*host)
        return 0; /* there is no such service */
    snprintf(port, sizeof(port), "%u", ns_get16(data + 4));
    return inventory_add(i, host, host, port, template, err);
}

int inventory_from_dns(struct inventory *i, const char *name, const char *template,
                       struct error *err)
{
    static __thread unsigned char answer[ANSWER_MAX];
    struct __res_state state;
    ns_msg message;
    int len, r = 0;

    memset(&state, 0, sizeof(state));
    if (res_ninit(&state) < 0)
        return error_set(err, -EIO, "dns: /etc/resolv.conf cannot be read");
    len = res_nquery(&state, name, ns_c_in, ns_t_srv, answer, sizeof(answer));
    if (len < 0)
        r = failed(name, state.res_h_errno, err);
    res_nclose(&state);
    if (r == 0 && ns_initparse(answer, len < ANSWER_MAX ? len : ANSWER_MAX, &message) < 0)
        r = error_set(err, -EBADMSG, "dns: the answer for %.100s is broken", name);
    for (int k = 0; r == 0 && k < ns_msg_count(message, ns_s_an); k++) {
        ns_rr record;

        if (ns_parserr(&message, ns_s_an, k, &record) < 0)
            r = error_set(err, -EBADMSG, "dns: the answer for %.100s is broken", name);
        else if (ns_rr_type(record) == ns_t_srv)
            r = add_target(i, &message, &record, template, err);
    }
    return r;
}
