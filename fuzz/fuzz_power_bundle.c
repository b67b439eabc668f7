/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy for a unit: what is accepted can be kept, can be written, and reads as the same again.
 */
#include "edge/bundle.h"
#include "input.h"
#include "power/rules/rules_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bundle *b, *again;
    struct error err = {0};
    struct rule_fault fault;
    struct rule_view view;
    struct rule_now now;
    char *text, *twice;

    if (bundle_read(data, size, NULL, &b, &err) < 0) {
        CHECK(err.code < 0 && err.text[0]);
        return 0;
    }
    now = (struct rule_now){(int64_t)(b->made_ms / 1000), true, bundle_carbon(b, b->made_ms),
                            RULE_UNKNOWN, 0};
    now.price = tariff_price(&b->tariff, b->set.zone, now.utc_s);
    CHECK(rules_check(&b->set, now.utc_s, &fault) == 0);
    rules_view(&b->set, b->area, &now, &view);
    CHECK(view.floor_uw <= view.cap_uw || bundle_zones(b, NULL) < 0); /* else caps count always */
    text = bundle_text(b);
    CHECK(text && bundle_read(text, strlen(text), NULL, &again, &err) == 0);
    twice = bundle_text(again);
    CHECK(twice && strcmp(text, twice) == 0);
    free(text);
    free(twice);
    bundle_free(b);
    bundle_free(again);
    return 0;
}
