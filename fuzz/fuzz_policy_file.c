/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An organization's power policy: what is refused has a place and a reason; what is accepted has
 * no contradiction, can be told at any time, and differs in nothing from itself.
 */
#include "hub/compile/explain.h"
#include "hub/compile/policy.h"
#include "hub/compile/yaml.h"
#include "input.h"
#include "power/rules/rules_check.h"

#define MONDAY INT64_C(1795392000)

static void tell(const struct power_policy *p)
{
    struct rule_now now = {MONDAY + 12345, true, 300, RULE_UNKNOWN, 60};
    struct rule_fault fault;
    char *text, rule[RULE_TEXT_MAX];
    size_t len;
    FILE *f = open_memstream(&text, &len);

    CHECK(f);
    CHECK(rules_check(&p->set, MONDAY, &fault) == 0);
    CHECK(explain_diff(p, p, f) == 0);
    for (uint32_t i = 0; i < p->set.count; i++) {
        explain_rule(p, i, rule);
        CHECK(*rule && area_below(p->set.rule[i].area, p->org));
        explain_area(p, p->set.rule[i].area, NULL, &now, f);
    }
    fclose(f);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);
    struct power_policy p;
    struct error err = {0};
    uint32_t line, column;

    if (policy_compile(text, size, NULL, MONDAY, &p, &err) == 0) {
        if (p.set.count < 64)
            tell(&p);
        policy_done(&p);
    } else {
        CHECK(err.code < 0 && strnlen(err.text, ERROR_TEXT_MAX) < ERROR_TEXT_MAX);
        CHECK(size > YAML_BYTES_MAX || sscanf(err.text, "%u:%u: ", &line, &column) == 2);
    }
    free(text);
    return 0;
}
