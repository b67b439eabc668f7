/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between child and parent: golden files in both directions, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/payload.h"
#include "power/cap/caps.h"

#define BOOT UINT64_C(8112963841460668169)

static char bytes[PAYLOAD_BYTES_MAX + 1];
static size_t len;
static struct error err;

static void load(const char *name)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), GOLDEN "/%s.json", name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    len = fread(bytes, 1, sizeof(bytes) - 1, f);
    fclose(f);
    while (len && bytes[len - 1] == '\n')
        len--;
    bytes[len] = '\0';
}

static void same(char *text)
{
    assert_non_null(text);
    assert_string_equal(text, bytes);
    free(text);
}

/* Reads the golden file, and writes the same bytes again. */
#define BOTH_WAYS(kind, type, name, value)                                                         \
    load(name);                                                                                    \
    if (payload_##kind##_read(bytes, len, &(value), &err) < 0)                                     \
        fail_msg("%s: %s", name, err.text);                                                        \
    same(payload_##kind##_text(&(value)))

static void golden_files_are_read_and_written_alike(void **state)
{
    static struct payload_energy energy;
    struct payload_state s;
    struct payload_demand demand;
    struct payload_ask ask;
    struct payload_ack ack;
    struct payload_event event;
    struct lease_message lease;
    struct payload_receipt receipt;
    struct payload_cmd cmd;
    struct payload_reading reading;
    static struct payload_shrunk shrunk;

    BOTH_WAYS(state, struct payload_state, "state-gone", s);
    assert_false(s.online);
    BOTH_WAYS(state, struct payload_state, "state", s);
    assert_string_equal(s.role, "unit");
    assert_int_equal(s.boot, BOOT);
    assert_int_equal(s.switches, 0);
    assert_int_equal(s.cap_uw, PAYLOAD_UNTOLD);
    BOTH_WAYS(state, struct payload_state, "state-unit", s);
    assert_int_equal(s.switches, 2);
    assert_string_equal(s.item[1].name, "fridge");
    assert_true(s.item[1].always_on);
    assert_true(s.item[0].command);
    assert_int_equal(s.absent_s, 0);
    assert_int_equal(s.budget_used_uj, UINT64_C(120000000000000));
    BOTH_WAYS(energy, struct payload_energy, "energy", energy);
    assert_int_equal(energy.count, 2);
    assert_int_equal(energy.record[0].total.uj, UINT64_C(9223372036854775000)); /* above 2^53 */
    assert_int_equal(energy.record[1].boot, BOOT);
    assert_int_equal(energy.record[1].total.basis, POWER_CALIBRATED);
    assert_int_equal(energy.record[1].gap_ms, 250);
    BOTH_WAYS(demand, struct payload_demand, "demand", demand);
    assert_int_equal(demand.demand.count, 3);
    assert_int_equal(demand.draw.basis, POWER_MODELLED);
    BOTH_WAYS(demand, struct payload_demand, "demand-untold", demand);
    assert_int_equal(demand.draw.basis, POWER_UNKNOWN);
    BOTH_WAYS(ask, struct payload_ask, "ask", ask);
    BOTH_WAYS(ack, struct payload_ack, "ack", ack);
    assert_true(ack.kept);
    BOTH_WAYS(event, struct payload_event, "event", event);
    assert_string_equal(event.type, "switch");
    free(event.data);
    BOTH_WAYS(lease, struct lease_message, "lease", lease);
    assert_int_equal(lease.kind, CAP_BREAKER);
    BOTH_WAYS(receipt, struct payload_receipt, "receipt", receipt);
    assert_int_equal(receipt.seq, 42);
    BOTH_WAYS(cmd, struct payload_cmd, "cmd", cmd);
    assert_string_equal(cmd.name, "lights");
    BOTH_WAYS(shrunk, struct payload_shrunk, "shrunk", shrunk);
    assert_int_equal(shrunk.nodes, 2);
    assert_string_equal(shrunk.node[1].name, "pc2");
    assert_int_equal(shrunk.node[0].cores, 5);
    assert_int_equal(shrunk.jobs, 1);
    assert_string_equal(shrunk.job[0].user, "ada");
    BOTH_WAYS(reading, struct payload_reading, "reading", reading);
    assert_true(reading.slow && reading.has_uw && !reading.has_uj);
    assert_int_equal(reading.uw, 83500000);
}

/* The golden message with one part replaced is refused, and the reason names what is wrong. */
static void refused(const char *name, const char *old, const char *new, const char *reason)
{
    static char changed[2 * PAYLOAD_BYTES_MAX];
    static union {
        struct payload_state state;
        struct payload_energy energy;
        struct payload_demand demand;
        struct payload_ask ask;
        struct payload_ack ack;
        struct payload_event event;
        struct lease_message lease;
        struct payload_receipt receipt;
        struct payload_cmd cmd;
        struct payload_reading reading;
        struct payload_shrunk shrunk;
    } value, before;
    char *at;
    int r;

    load(name);
    at = strstr(bytes, old);
    assert_non_null(at);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - bytes), bytes, new, at + strlen(old));
    memset(&value, 0x5a, sizeof(value));
    before = value;
    err.text[0] = '\0';
#define READ(kind)                                                                                 \
    if (strncmp(name, #kind, strlen(#kind)) == 0)                                                  \
        r = payload_##kind##_read(changed, strlen(changed), &value.kind, &err);                    \
    else
    READ(state)
    READ(energy)
    READ(demand)
    READ(ask)
    READ(ack) READ(event) READ(lease) READ(receipt) READ(cmd) READ(reading) READ(shrunk) r = 0;
    if (r != -EINVAL || !strstr(err.text, reason))
        fail_msg("%s with %s for %s: %d '%s', not '%s'", name, new, old, r, err.text, reason);
    assert_memory_equal(&value, &before, sizeof(value));
}

static void what_is_wrong_is_refused_by_name(void **state)
{
    refused("shrunk", "\"pc2\"", "\"PC 2\"", "'node'");
    refused("shrunk", "\"jobs\":2", "\"jobs\":-2", "'jobs'");
    refused("shrunk", "\"cores\":3", "\"cores\":2147483648", "'cores'");
    refused("shrunk", "\"user\":\"ada\"", "\"user\":5", "'user'");
    refused("shrunk", "\"nodes\":", "\"knots\":", "'nodes' is missing");
    refused("ask", "\"v\":1", "\"v\":2", "'v' is an unknown version");
    refused("ask", "{", "[", "no JSON");
    refused("ask", "\"boot\"", "\"boat\"", "'boot' is missing");
    refused("ask", "86400000000000", "-1", "'stamp'");
    refused("ask", "86400000000000", "1.5", "'stamp'");
    refused("ask", "86400000000000", "18446744073709551615", "no JSON");
    refused("ask", "86400000000000", "\"1\"", "'stamp'");
    refused("ask", "\"stamp\"", "\"boot\":1,\"stamp\"", "duplicate");
    refused("state", "true", "1", "'online'");
    refused("state", "\"unit\"", "\"a\\u0007b\"", "'role' has a control character");
    refused("state-unit", "\"fridge\"", "7", "'name'");
    refused("state-unit", "\"command\":true", "\"command\":1", "'command'");
    refused("state-unit", "\"switches\":[", "\"switches\":{\"a\":[", "no JSON");
    refused("state-unit", "\"cap_uw\":800000000", "\"cap_uw\":-1", "'cap_uw'");
    refused("energy", "\"records\":[{", "\"records\":{\"x\":[{", "no JSON");
    refused("energy", "\"seq\":42", "\"seq\":41", "'seq' is not larger than before");
    refused("energy", "\"low\":118000000", "\"low\":120000001", "'low'");
    refused("energy", "\"high\":122000000", "\"high\":119000000", "'high'");
    refused("energy", "\"uj\":120000000", "\"uj\":-5", "'uj'");
    refused("energy", "\"calibrated\"", "\"sworn\"", "'basis' is an unknown word");
    refused("energy", "\"to\":1763856001000", "\"to\":1", "'to'");
    refused("energy", "\"meter:main\"",
            "\"meter:0123456789012345678901234567890123456789012345678901234567890123\"",
            "'point' is too long");
    refused("demand", "[90000000,3000000]", "[90000000,9000000]", "'points'");
    refused("demand", "[90000000,3000000]", "[90000000]", "'points'");
    refused("demand", "[90000000,3000000]", "[1,1],[2,2],[3,3],[4,4],[5,5],[6,6],[7,7]",
            "'points'");
    refused("demand", "\"high\":72000000", "\"high\":70500000", "'high'");
    refused("lease", "\"ttl\":30000", "\"ttl\":3000000", "'ttl' is too large");
    refused("lease", "\"breaker\"", "\"fuse\"", "'kind'");
    refused("event", "{\"switch\":\"lights\",\"on\":false}", "[]", "'data'");
    refused("cmd", "\"lab3\"", "\"../x\"", "'unit'");
    refused("reading", "\"uw\":83500000", "\"uw\":-1", "'uw'");
    refused("reading", "\"uw\":83500000", "\"ux\":1", "'uw'");
    refused("reading", "\"error\":10", "\"error\":1001", "'error'");
}

static void what_a_newer_peer_adds_is_ignored(void **state)
{
    static const char text[] = "{\"v\":1,\"new\":{\"x\":[1]},\"boot\":5,\"seq\":6}";
    struct payload_receipt r;

    assert_int_equal(payload_receipt_read(text, strlen(text), &r, &err), 0);
    assert_int_equal(r.seq, 6);
}

static void what_is_too_long_is_not_even_read(void **state)
{
    struct payload_receipt r;
    char *text = malloc(PAYLOAD_BYTES_MAX + 1);

    memset(text, ' ', PAYLOAD_BYTES_MAX + 1);
    assert_int_equal(payload_receipt_read(text, PAYLOAD_BYTES_MAX + 1, &r, &err), -EINVAL);
    assert_non_null(strstr(err.text, "65537 bytes"));
    free(text);
}

static void topics_are_read_as_they_are_made(void **state)
{
    static const char *const wrong[] = {
        "",
        "tide/1/lab3/up",
        "tide/1/lab3/up/energy/x",
        "tide/1/lab3/down/energy",
        "tide/2/lab3/up/energy",
        "tide/1//up/energy",
        "tide/1/Lab3/up/energy",
        "tide/1/-lab3/up/energy",
        "tide/1/a/b/up/energy",
        "tide/1/+/up/energy",
        "tide/1/0123456789012345678901234567890123456789012345678901234567890123/up/energy",
    };
    char topic[TOPIC_MAX], name[EDGE_NAME_MAX];
    enum topic_leaf leaf;

    for (unsigned i = 0; i < TOPIC_LEAF_MAX; i++) {
        topic_make("lab3", i, topic);
        assert_int_equal(topic_read(topic, name, &leaf), 0);
        assert_string_equal(name, "lab3");
        assert_int_equal(leaf, i);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(topic_read(wrong[i], name, &leaf), -EINVAL);
    assert_true(edge_name_valid("a"));
    assert_false(edge_name_valid("a b"));
    assert_false(edge_name_valid("a-"));
    assert_false(edge_name_valid(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_files_are_read_and_written_alike),
        cmocka_unit_test(what_is_wrong_is_refused_by_name),
        cmocka_unit_test(what_a_newer_peer_adds_is_ignored),
        cmocka_unit_test(what_is_too_long_is_not_even_read),
        cmocka_unit_test(topics_are_read_as_they_are_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
