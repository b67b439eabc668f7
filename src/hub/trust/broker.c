/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/broker.h"

#include "edge/topic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Outboxes persist at the units, policies in the hub's store: the broker keeps nothing on disk.
 *
 * A flood that the hub is too slow for waits in one queue, the hub's: max_queued_bytes. All that is
 * kept, with retained messages, is memory_limit; a message beyond it is refused to its sender. The
 * memory that TLS needs for each connection comes on top: MemoryMax of the service is for both.
 */
static const char fixed[] = "tls_version tlsv1.3\n"
                            "require_certificate true\n"
                            "use_identity_as_username true\n"
                            "use_username_as_clientid true\n"
                            "allow_anonymous false\n"
                            "persistence false\n"
                            "max_inflight_messages 200\n"
                            "max_queued_messages 20000\n"
                            "max_queued_bytes 67108864\n"
                            "memory_limit 268435456\n"
                            "message_size_limit 262144\n"
                            "sys_interval 10\n"
                            "log_dest stderr\n"
                            "log_type error\n"
                            "log_type warning\n"
                            "log_type notice\n"
                            "log_type information\n"
                            "connection_messages true\n";

char *broker_config(const struct broker_options *o)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    fprintf(f, "# Written by tide-hub: changes are lost.\n");
    if (o->user)
        fprintf(f, "user %s\n", o->user);
    fprintf(f, "per_listener_settings false\n");
    fprintf(f, "listener %u%s%s\n", o->port, o->address ? " " : "", o->address ? o->address : "");
    fprintf(f, "cafile %s\ncertfile %s\nkeyfile %s\ncrlfile %s\n", o->ca, o->cert, o->key, o->list);
    fprintf(f, "acl_file %s\n%s", o->acl, fixed);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/*
 * A revoked unit is denied by name, too: its connection outlives the new list of revoked
 * certificates, which mosquitto looks at when somebody connects. A unit writes the topics that are,
 * no others: the broker keeps a retained message of each, and nothing else bounds how many.
 */
char *broker_acl(const struct authority *a)
{
    const struct authority_unit *unit;
    size_t n = authority_units(a, &unit), len;
    char *text = NULL, topic[TOPIC_MAX];
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    fprintf(f, "# Written by tide-hub: changes are lost.\n"
               "user " AUTHORITY_HUB "\n"
               "topic read tide/1/+/up/#\n"
               "topic write tide/1/+/down/#\n"
               "topic read $SYS/#\n");
    for (size_t i = 0; i < n; i++) {
        bool last = unit[i].revoked;

        for (size_t k = i + 1; k < n && last; k++)
            last = strcmp(unit[i].name, unit[k].name) != 0;
        if (last)
            fprintf(f, "user %s\ntopic deny #\n", unit[i].name);
    }
    for (enum topic_leaf leaf = 0; leaf < TOPIC_LEASE; leaf++)
        fprintf(f, "pattern write %s\n", topic_make("%u", leaf, topic));
    fprintf(f, "pattern read tide/1/%%u/down/#\n");
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}
