/* SPDX-License-Identifier: Apache-2.0 */
/* Policies for units, and their seals: golden files in both directions, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "edge/bundle.h"
#include "edge/sealed.h"

/* RFC 8032, 7.1, test 3, as in test_host_seal.c. */
static const char key[] = "-----BEGIN PRIVATE KEY-----\n"
                          "MC4CAQAwBQYDK2VwBCIEIMWqjfQ/n4N77bdELzHct7Fm04U1B28JS4XOOi4LRFj3\n"
                          "-----END PRIVATE KEY-----\n";

static char golden[BUNDLE_BYTES_MAX];
static size_t golden_len;
static struct error err;

static int load(void **state)
{
    FILE *f = fopen(GOLDEN "/policy.json", "rb");

    assert_non_null(f);
    golden_len = fread(golden, 1, sizeof(golden) - 1, f);
    fclose(f);
    while (golden_len && golden[golden_len - 1] == '\n')
        golden_len--;
    golden[golden_len] = '\0';
    return 0;
}

static void the_golden_policy_is_read_and_written_alike(void **state)
{
    _cleanup_free_ char *text = NULL;
    struct bundle *b;

    if (bundle_read(golden, golden_len, NULL, &b, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(b->number, 7);
    assert_string_equal(b->area, "unlp/lab3");
    assert_int_equal(b->set.count, 6);
    assert_int_equal(b->set.rule[2].condition, IF_WINDOW);
    assert_int_equal(b->set.rule[2].window.from_min, 1080);
    assert_true(b->set.rule[3].alone == UINT64_C(36000000000000));
    assert_string_equal(b->set.rule[5].off, "ac lights");
    text = bundle_text(b);
    assert_string_equal(text, golden);
    bundle_free(b);
}

/* 2026-11-23 is a Monday; Buenos Aires is three hours behind UTC. */
static void what_is_in_force_follows_from_the_bundle_alone(void **state)
{
    struct rule_now now = {.utc_s = 1795392000 + 20 * 3600, .synchronised = true};
    struct rule_view v;
    struct bundle *b;

    assert_int_equal(bundle_read(golden, golden_len, NULL, &b, &err), 0);
    now.carbon = now.price = RULE_UNKNOWN;
    rules_view(&b->set, b->area, &now, &v); /* 17:00 */
    assert_int_equal(v.cap_uw, 1200000000);
    assert_int_equal(v.budget_uj, UINT64_C(324000000000000));
    assert_int_equal(tariff_price(&b->tariff, b->set.zone, now.utc_s), 98500);
    now.utc_s += 3600; /* 18:00 */
    rules_view(&b->set, b->area, &now, &v);
    assert_int_equal(v.cap_uw, 800000000);
    assert_int_equal(v.kind, KIND_BREAKER);
    assert_int_equal(tariff_price(&b->tariff, b->set.zone, now.utc_s), 140000);
    bundle_free(b);
}

static void carbon_is_known_from_its_first_hour_to_the_end_of_its_last(void **state)
{
    struct bundle *b;

    assert_int_equal(bundle_read(golden, golden_len, NULL, &b, &err), 0);
    assert_int_equal(bundle_carbon(b, 1795391999999), RULE_UNKNOWN);
    assert_int_equal(bundle_carbon(b, 1795392000000), 310);
    assert_int_equal(bundle_carbon(b, 1795395599999), 310);
    assert_int_equal(bundle_carbon(b, 1795399199999), 280);
    assert_int_equal(bundle_carbon(b, 1795399200000), RULE_UNKNOWN);
    bundle_free(b);
}

static void only_rules_that_touch_the_area_are_written(void **state)
{
    _cleanup_free_ char *text = NULL;
    struct bundle *b;

    assert_int_equal(bundle_read(golden, golden_len, NULL, &b, &err), 0);
    strcpy(b->rule[0].area, "unlp/lab4");
    strcpy(b->rule[1].area, "unlp/lab3/desk"); /* below it */
    strcpy(b->rule[2].area, "unlp/lab33");
    text = bundle_text(b);
    assert_null(strstr(text, "unlp/lab4"));
    assert_null(strstr(text, "unlp/lab33"));
    assert_non_null(strstr(text, "unlp/lab3/desk"));
    bundle_free(b);
}

/* The golden policy with one part replaced is refused, and the reason names what is wrong. */
static void refused(const char *old, const char *new, const char *reason)
{
    static char changed[2 * BUNDLE_BYTES_MAX];
    struct bundle *b = NULL;
    const char *at = strstr(golden, old);

    assert_non_null(at);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - golden), golden, new,
             at + strlen(old));
    err.text[0] = '\0';
    assert_int_equal(bundle_read(changed, strlen(changed), NULL, &b, &err), -EINVAL);
    assert_null(b);
    if (!strstr(err.text, reason))
        fail_msg("'%s' -> '%s': %s", old, new, err.text);
}

static void what_cannot_be_is_refused_with_the_member(void **state)
{
    refused("\"number\":7", "\"number\":0", "'number' is zero");
    refused("\"number\":7", "\"number\":-7", "'number'");
    refused("1795996800000", "9223372036854775807", "'until'");
    refused("unlp/lab3", "unlp//lab3", "'area'");
    refused("Buenos_Aires", "../../../../etc/passwd", "time zone");
    refused("\"zone\":0", "\"zone\":1", "line 6");
    refused("\"days\":31", "\"days\":0", "line 6");
    refused("[1795395600000,280]", "[1795392000000,280]", "'carbon'");
    refused("[1795395600000,280]", "[1795395600000]", "'carbon'");
    refused("[1795395600000,280]", "7", "'carbon'");
    refused("\"verb\":\"cap\"", "\"verb\":\"cup\"", "'verb'");
    refused("\"amount\":1200000000", "\"amount\":1.2", "'amount'");
    refused("\"kind\":\"breaker\"", "\"kind\":\"maybe\"", "'kind'");
    refused("\"off\":\"ac lights\"", "\"off\":\"\"", "line 10");
    refused("\"currency\":\"ARS\"", "\"currency\":\"\"", "'currency'");
    refused("\"amount\":300000000", "\"amount\":900000000", "line 5"); /* above 18:00's cap */
    refused("\"rules\":[", "\"rules\":[7,", "'verb'");
    refused("\"v\":1", "\"v\":2", "'v'");
}

/* Without the file nobody knows when its windows are open, and the other rules hold all the same.
 */
static void a_policy_without_the_file_of_its_zone_holds_and_is_completed_later(void **state)
{
    struct rule_now now = {1795392000 + 20 * 3600, true, RULE_UNKNOWN, RULE_UNKNOWN, 900};
    _cleanup_free_ char *text = NULL;
    struct rule_view v;
    struct bundle *b;

    if (bundle_read(golden, golden_len, "/nonexistent", &b, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(bundle_zones(b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no time zone 'America/Argentina/Buenos_Aires'"));
    rules_view(&b->set, b->area, &now, &v); /* 17:00 */
    assert_int_equal(v.cap_uw, 800000000);
    assert_int_equal(v.floor_uw, 300000000);
    assert_int_equal(v.kind, KIND_BREAKER);
    assert_int_equal(rules_next(&b->set, b->area, &now, RULE_OFF, 0), 5);
    assert_true(tariff_price(&b->tariff, b->set.zone, now.utc_s) == RULE_UNKNOWN);
    text = bundle_text(b);
    assert_string_equal(text, golden);
    b->zones.root = NULL;
    assert_int_equal(bundle_zones(b, &err), 0);
    rules_view(&b->set, b->area, &now, &v);
    assert_int_equal(v.cap_uw, 1200000000);
    assert_int_equal(tariff_price(&b->tariff, b->set.zone, now.utc_s), 98500);
    bundle_free(b);
}

static void a_seal_opens_for_its_unit_and_its_use_alone(void **state)
{
    _cleanup_free_ char *public = NULL, *sealed = NULL, *other = NULL, *others_public = NULL;
    size_t len, text_len;
    const char *text;

    assert_int_equal(seal_public(key, &public), 0);
    assert_int_equal(seal_make_key(&other, &others_public, &err), 0);
    assert_int_equal(sealed_make(key, SEALED_POLICY, "lab3", golden, &sealed, &len), 0);
    assert_int_equal(len, golden_len + SEAL_BYTES);
    assert_int_equal(sealed_open(public, SEALED_POLICY, "lab3", sealed, len, &text, &text_len), 0);
    assert_int_equal(text_len, golden_len);
    assert_memory_equal(text, golden, golden_len);
#define REFUSED(code, pem, context, name, len)                                                     \
    assert_int_equal(sealed_open(pem, context, name, sealed, len, &text, &text_len), code)
    REFUSED(-EBADMSG, others_public, SEALED_POLICY, "lab3", len);
    REFUSED(-EBADMSG, public, SEALED_CMD, "lab3", len);
    REFUSED(-EBADMSG, public, SEALED_POLICY, "lab4", len);
    REFUSED(-EBADMSG, public, SEALED_POLICY, "lab3", len - 1);
    REFUSED(-EINVAL, public, SEALED_POLICY, "lab3", SEAL_BYTES);
    REFUSED(-EINVAL, key, SEALED_POLICY, "lab3", len);
    sealed[len - 1] ^= 1;
    REFUSED(-EBADMSG, public, SEALED_POLICY, "lab3", len);
}

/* The name and the text cannot be shifted against each other: a NUL stands between. */
static void a_name_cannot_borrow_from_the_text(void **state)
{
    _cleanup_free_ char *public = NULL, *sealed = NULL;
    size_t len, text_len;
    const char *text;

    assert_int_equal(seal_public(key, &public), 0);
    assert_int_equal(sealed_make(key, SEALED_CMD, "lab", "3{}", &sealed, &len), 0);
    memmove(sealed + SEAL_BYTES, sealed + SEAL_BYTES + 1, len - SEAL_BYTES - 1);
    assert_int_equal(sealed_open(public, SEALED_CMD, "lab3", sealed, len - 1, &text, &text_len),
                     -EBADMSG);
    assert_int_equal(sealed_make(key, SEALED_CMD, "Lab", "{}", &sealed, &len), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_golden_policy_is_read_and_written_alike, load),
        cmocka_unit_test_setup(what_is_in_force_follows_from_the_bundle_alone, load),
        cmocka_unit_test_setup(carbon_is_known_from_its_first_hour_to_the_end_of_its_last, load),
        cmocka_unit_test_setup(only_rules_that_touch_the_area_are_written, load),
        cmocka_unit_test_setup(what_cannot_be_is_refused_with_the_member, load),
        cmocka_unit_test_setup(a_policy_without_the_file_of_its_zone_holds_and_is_completed_later,
                               load),
        cmocka_unit_test_setup(a_seal_opens_for_its_unit_and_its_use_alone, load),
        cmocka_unit_test(a_name_cannot_borrow_from_the_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
