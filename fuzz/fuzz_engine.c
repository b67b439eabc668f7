/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of a container engine; the first byte chooses the parser. An accepted answer keeps to the
 * limits of host/engine/engine.h.
 */
#include "host/engine/engine_text.h"
#include "input.h"

#include <stdio.h>

static void check_containers(const char *text, size_t size, bool list)
{
    struct engine_containers found;
    int r = list ? engine_parse_list(text, size, &found, NULL)
                 : engine_parse_inspect(text, size, &found, NULL);

    if (r < 0)
        return;
    CHECK(found.n <= ENGINE_CONTAINERS_MAX && (list || found.n == 1));
    for (size_t i = 0; i < found.n; i++) {
        const struct engine_container *c = &found.list[i];

        CHECK(engine_is_id(c->id) && strlen(c->id) < ENGINE_ID_MAX);
        CHECK(c->name && c->image && c->limits.cgroup_parent);
        CHECK(c->state < ENGINE_STATE_MAX && engine_state_name(c->state));
        CHECK(c->pid >= 0 && c->started_ns >= 0 && c->n_labels <= ENGINE_LABELS_MAX);
        CHECK(c->limits.quota.quota_us >= -1);
        for (size_t j = 0; j < c->n_labels; j++)
            CHECK(engine_label(c, c->labels[j].key) && c->labels[j].value);
        for (uint32_t mcpu = 0; mcpu < 5000; mcpu += 999) {
            struct engine_quota quota = engine_quota_make(&c->limits.quota, mcpu, 2);

            CHECK(mcpu == 0 || engine_quota_mcpu(&quota) > 0);
        }
    }
    engine_containers_done(&found);
}

static void check_short(const char *text, size_t size)
{
    char message[ERROR_TEXT_MAX], cause[8];

    engine_parse_failure(text, size, message, cause, sizeof(cause));
    CHECK(message[0] && strlen(cause) < sizeof(cause));
    for (const char *c = message; *c; c++)
        CHECK((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void check_greeting(const char *text)
{
    struct engine_greeting greeting;

    if (engine_parse_greeting(text, &greeting, NULL) == 0)
        CHECK(greeting.prefix[0] == '/' && greeting.version[0]);
}

static void check_event(const char *text, size_t size)
{
    struct engine_event_text event;

    if (engine_parse_event(text, size, &event, NULL) != 1)
        return;
    CHECK(engine_is_id(event.event.id) && event.event.name);
    CHECK(event.event.action < ENGINE_ACTION_MAX);
    engine_event_done(&event);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size == 0)
        return 0;
    text = input_text(data + 1, size - 1);
    switch (data[0]) {
    case 'l':
        check_containers(text, size - 1, true);
        break;
    case 'i':
        check_containers(text, size - 1, false);
        break;
    case 's':
        check_short(text, size - 1);
        break;
    case 'g':
        check_greeting(text);
        break;
    case 'e':
        check_event(text, size - 1);
    }
    free(text);
    return 0;
}
