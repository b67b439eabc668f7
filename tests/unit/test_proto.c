/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/proto.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void every_type_passes_its_own_check(void **state)
{
    for (unsigned type = PROTO_NONE + 1; type < PROTO_TYPE_MAX; type++) {
        union proto_message m;

        proto_init(&m, (enum proto_type)type, 7);
        assert_int_equal(m.h.cookie, 7);
        assert_int_equal(m.h.size, proto_size(type));
        assert_in_range(proto_size(type), sizeof(struct proto_header), PROTO_MESSAGE_MAX);
        assert_int_equal(proto_size(type) % 8, 0); /* no implicit padding at the end */
        assert_int_equal(proto_check(&m, proto_size(type), NULL), 0);
    }
    assert_int_equal(proto_size(PROTO_NONE), 0);
    assert_int_equal(proto_size(PROTO_TYPE_MAX), 0);
    assert_int_equal(proto_size(~0u), 0);
}

static void any_other_length_is_refused(void **state)
{
    for (unsigned type = PROTO_NONE + 1; type < PROTO_TYPE_MAX; type++) {
        for (size_t len = 0; len <= PROTO_MESSAGE_MAX; len++) {
            union proto_message m;

            proto_init(&m, (enum proto_type)type, 0);
            if (len != proto_size(type))
                assert_int_equal(proto_check(&m, len, NULL), -EBADMSG);
        }
    }
}

static void a_size_field_that_lies_is_refused(void **state)
{
    union proto_message m;

    proto_init(&m, PROTO_TARGET, 0);
    m.h.size++;
    assert_int_equal(proto_check(&m, sizeof(m.target), NULL), -EBADMSG);
}

static void foreign_and_unknown_messages_are_refused(void **state)
{
    union proto_message m;
    struct error err = {0};

    proto_init(&m, PROTO_LEASE, 0);
    m.h.magic ^= 1;
    assert_int_equal(proto_check(&m, sizeof(m.lease), &err), -EBADMSG);
    proto_init(&m, PROTO_LEASE, 0);
    m.h.type = PROTO_TYPE_MAX;
    assert_int_equal(proto_check(&m, sizeof(m.lease), &err), -EBADMSG);
    m.h.type = PROTO_NONE;
    assert_int_equal(proto_check(&m, sizeof(m.lease), &err), -EBADMSG);
}

static void another_version_is_named_in_the_error(void **state)
{
    union proto_message m;
    struct error err = {0};

    proto_init(&m, PROTO_LEASE, 0);
    m.h.version = 77;
    assert_int_equal(proto_check(&m, sizeof(m.lease), &err), -EPROTONOSUPPORT);
    assert_int_equal(err.code, -EPROTONOSUPPORT);
    assert_non_null(strstr(err.text, "77"));
}

/* A type's text fields: filled without a NUL, each must be ended by the check. */
struct text {
    enum proto_type type;
    size_t offset, size;
};

#define TEXT(TYPE, name, field)                                                                    \
    {                                                                                              \
        TYPE, offsetof(struct proto_##name, field), sizeof(((struct proto_##name *)0)->field)      \
    }

static const struct text texts[] = {
    TEXT(PROTO_HELLO, hello, token),
    TEXT(PROTO_HELLO, hello, job_id),
    TEXT(PROTO_HELLO, hello, job_name),
    TEXT(PROTO_HELLO, hello, comm),
    TEXT(PROTO_HELLO, hello, agent_version),
    TEXT(PROTO_BACKEND, backend, name),
    TEXT(PROTO_BACKEND, backend, version),
    TEXT(PROTO_BACKEND, backend, note),
    TEXT(PROTO_HEARTBEAT, heartbeat, unit),
    TEXT(PROTO_WELCOME, welcome, job_id),
    TEXT(PROTO_WELCOME, welcome, job_name),
    TEXT(PROTO_CONTROL, control, job),
    TEXT(PROTO_JOB, job, id),
    TEXT(PROTO_JOB, job, state),
    TEXT(PROTO_JOB, job, name),
    TEXT(PROTO_JOB, job, cores),
    TEXT(PROTO_JOB, job, unit),
    TEXT(PROTO_RESULT, result, text),
};

static void every_text_is_terminated(void **state)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        union proto_message m;
        const char *text = (const char *)m.bytes + texts[i].offset;

        proto_init(&m, texts[i].type, 0);
        memset(m.bytes + texts[i].offset, 'x', texts[i].size);
        assert_int_equal(proto_check(&m, proto_size(texts[i].type), NULL), 0);
        assert_int_equal(strnlen(text, texts[i].size), texts[i].size - 1);
    }
}

/* Numeric fields with a maximum. */
struct number {
    enum proto_type type;
    size_t offset;
    uint32_t max;
};

#define NUMBER(TYPE, name, field, max)                                                             \
    {                                                                                              \
        TYPE, offsetof(struct proto_##name, field), max                                            \
    }

static const struct number numbers[] = {
    NUMBER(PROTO_HELLO, hello, max, PROTO_THREADS_MAX),
    NUMBER(PROTO_BACKEND, backend, index, PROTO_BACKENDS_MAX - 1),
    NUMBER(PROTO_BACKEND, backend, max_intra, PROTO_THREADS_MAX),
    NUMBER(PROTO_BACKEND, backend, max_inter, PROTO_THREADS_MAX),
    NUMBER(PROTO_ACK, ack, status, PROTO_ACK_STATUS_MAX - 1),
    NUMBER(PROTO_HEARTBEAT, heartbeat, source, PROTO_SOURCE_MAX - 1),
    NUMBER(PROTO_LATENCY, latency, most_in_flight, PROTO_IN_FLIGHT_MAX),
    NUMBER(PROTO_LATENCY, latency, source, PROTO_REQUESTS_MAX - 1),
    NUMBER(PROTO_LOCAL, local, source, PROTO_SOURCE_MAX - 1),
    NUMBER(PROTO_LOCAL, local, intra, PROTO_THREADS_MAX),
    NUMBER(PROTO_LOCAL, local, inter, PROTO_THREADS_MAX),
    NUMBER(PROTO_TARGET, target, intra, PROTO_THREADS_MAX),
    NUMBER(PROTO_TARGET, target, inter, PROTO_THREADS_MAX),
    NUMBER(PROTO_CONTROL, control, verb, PROTO_VERB_MAX - 1),
    NUMBER(PROTO_CONTROL, control, intra, PROTO_THREADS_MAX),
    NUMBER(PROTO_CONTROL, control, inter, PROTO_THREADS_MAX),
};

static void a_number_above_its_maximum_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        uint32_t values[] = {numbers[i].max, numbers[i].max + 1, UINT32_MAX};

        for (size_t v = 0; v < 3; v++) {
            union proto_message m;
            struct error err = {0};
            int want = v == 0 ? 0 : -ERANGE;

            proto_init(&m, numbers[i].type, 0);
            memcpy(m.bytes + numbers[i].offset, &values[v], sizeof(values[v]));
            assert_int_equal(proto_check(&m, proto_size(numbers[i].type), &err), want);
            assert_int_equal(err.code, want);
        }
    }
}

static void requests_that_cannot_be_are_refused(void **state)
{
    static const struct {
        uint64_t begun, ended;
        uint32_t most;
        int want;
    } rows[] = {
        {5, 5, 0, 0},
        {5, 3, 2, 0},
        {UINT64_MAX, UINT64_MAX - 1, 1, 0},
        {PROTO_IN_FLIGHT_MAX, 0, PROTO_IN_FLIGHT_MAX, 0},
        {5, 6, 9, -ERANGE},          /* ended before it began */
        {0, UINT64_MAX, 9, -ERANGE}, /* … and the difference looks small */
        {5, 3, 1, -ERANGE},          /* more in flight than the most */
        {UINT64_MAX, 0, PROTO_IN_FLIGHT_MAX, -ERANGE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        union proto_message m;

        proto_init(&m, PROTO_LATENCY, 0);
        m.latency.begun = rows[i].begun;
        m.latency.ended = rows[i].ended;
        m.latency.most_in_flight = rows[i].most;
        assert_int_equal(proto_check(&m, sizeof(m.latency), NULL), rows[i].want);
    }
}

static void numbers_on_the_wire_stay(void **state)
{
    assert_int_equal(PROTO_HELLO, 1);
    assert_int_equal(PROTO_WELCOME, 6);
    assert_int_equal(PROTO_RESULT, 11);
    assert_int_equal(PROTO_LATENCY, 12);
    assert_int_equal(sizeof(struct proto_latency), 16 + 3 * 8 + 2 * 4 + LATENCY_BUCKETS * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_passes_its_own_check),
        cmocka_unit_test(any_other_length_is_refused),
        cmocka_unit_test(a_size_field_that_lies_is_refused),
        cmocka_unit_test(foreign_and_unknown_messages_are_refused),
        cmocka_unit_test(another_version_is_named_in_the_error),
        cmocka_unit_test(every_text_is_terminated),
        cmocka_unit_test(a_number_above_its_maximum_is_refused),
        cmocka_unit_test(requests_that_cannot_be_are_refused),
        cmocka_unit_test(numbers_on_the_wire_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
