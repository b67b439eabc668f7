/* SPDX-License-Identifier: Apache-2.0 */
/* tide-hub.conf, whatever stands in it. */
#include "hub/conf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct conf conf;
    struct error err = {0};
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    conf_init(&conf);
    if (conf_parse(&conf, "hub.conf", text, &err) == 0)
        conf_check(&conf, &err);
    else if (!*err.text)
        abort(); /* somebody has to mend it */
    free(text);
    return 0;
}
