/* SPDX-License-Identifier: Apache-2.0 */
/* tide-power.conf: what is accepted names its unit, and each of its meters can be opened. */
#include "input.h"
#include "unit/config.h"
#include "unit/device/kinds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct unit_config *config = NULL;
    char *text = input_text(data, size), why[64];
    struct error err = {0};

    if (unit_config_parse(text, "fuzz", &config, &err) == 0) {
        CHECK(edge_name_valid(config->name));
        for (unsigned i = 0; i < config->meters; i++)
            CHECK(device_config_check(&config->meter[i], why, sizeof(why)) == 0);
    } else {
        CHECK(err.text[0]);
    }
    free(config);
    free(text);
    return 0;
}
