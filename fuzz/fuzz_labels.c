/* SPDX-License-Identifier: Apache-2.0 */
/* A container's labels, one "KEY=VALUE" a line: any labels give a valid job. */
#include "daemon/containers/labels.h"
#include "input.h"

#include <ctype.h>
#include <string.h>

#define LABELS_MAX 16

static size_t split(char *text, struct engine_label *labels)
{
    size_t n = 0;
    char *rest = text, *line;

    while (n < LABELS_MAX && (line = strsep(&rest, "\n"))) {
        char *value = strchr(line, '=');

        if (!value)
            continue;
        *value = '\0';
        labels[n++] = (struct engine_label){.key = line, .value = value + 1};
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), note[JOB_REASON_MAX];
    struct job_request req = {.asked = attributes_usual()};
    struct engine_label labels[LABELS_MAX];
    size_t n = split(text, labels);
    const char *key = labels_key(labels, n);

    labels_elastic(labels, n);
    labels_parse(labels, n, 1000, &req, note, sizeof(note));
    for (each_attribute(a))
        CHECK(attribute_holds(a, attribute_get(a, &req.asked)));
    CHECK(!req.asked.max || req.asked.min <= req.asked.max);
    CHECK(!key || (*key && !strpbrk(key, "/.")));
    CHECK(strnlen(note, sizeof(note)) < sizeof(note));
    for (const char *c = note; *c; c++)
        CHECK(isprint((unsigned char)*c));
    free(text);
    return 0;
}
