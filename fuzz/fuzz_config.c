/* SPDX-License-Identifier: Apache-2.0 */
/* tide.conf: an accepted file is printed as a text that means the same. */
#include "daemon/config.h"
#include "input.h"

#include <string.h>

static char *print(const struct config *c)
{
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    CHECK(out);
    config_print(c, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *first, *second;
    struct error err = {0};
    struct config c, again;

    config_init(&c);
    if (config_parse(&c, "tide.conf", text, &err) < 0) {
        CHECK(strncmp(err.text, "tide.conf:", 10) == 0);
        free(text);
        return 0;
    }
    CHECK(c.heartbeat_ms >= 100 && c.heartbeat_ms <= 500 && c.placement < PLACEMENT_MAX);
    first = print(&c);
    config_init(&again);
    /* A list of single CPUs can be longer than a line may be. */
    if (config_parse(&again, "tide.conf", first, &err) == 0) {
        second = print(&again);
        CHECK(strcmp(first, second) == 0);
        free(second);
    } else {
        CHECK(strstr(err.text, "longer than"));
    }
    free(first);
    free(text);
    return 0;
}
