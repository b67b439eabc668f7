/* SPDX-License-Identifier: Apache-2.0 */
/* src/pods: messages of the runtime, which pods are jobs, what a container is given. */
#include "base/cleanup.h"
#include "pods/adjust.h"
#include "pods/choose.h"
#include "pods/frames.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct span span_of(const struct buffer *b)
{
    return (struct span){b->bytes, b->len};
}

static struct span text_span(const char *text)
{
    return (struct span){(const unsigned char *)text, strlen(text)};
}

/* ---- Protocol Buffers ---- */

static void what_is_written_is_read(void **state)
{
    struct buffer b = {0};
    size_t inner;
    struct span inside;

    (void)state;
    protobuf_put_value(&b, 1, UINT64_MAX);
    protobuf_put_text(&b, 300, "hi");
    inner = protobuf_open(&b, 2);
    protobuf_put_value(&b, 1, 7);
    protobuf_close(&b, inner);
    assert_false(b.failed);
    assert_int_equal(protobuf_check(span_of(&b)), 0);
    assert_true(protobuf_value(span_of(&b), 1) == UINT64_MAX);
    assert_true(span_is(protobuf_bytes(span_of(&b), 300), "hi"));
    inside = protobuf_bytes(span_of(&b), 2);
    assert_int_equal(protobuf_value(inside, 1), 7);
    assert_int_equal(protobuf_value(inside, 2), 0);
    buffer_done(&b);
}

static void a_message_that_is_cut_anywhere_is_refused_or_shorter(void **state)
{
    struct buffer b = {0};
    struct span cut;

    (void)state;
    protobuf_put_text(&b, 1, "a name");
    protobuf_put_value(&b, 2, 1u << 20);
    cut = span_of(&b);
    for (cut.len = 1; cut.len < b.len; cut.len++)
        if (cut.len != 8) /* the end of the first field */
            assert_int_equal(protobuf_check(cut), -EBADMSG);
    buffer_done(&b);
}

static void numbers_without_an_end_and_kinds_that_are_none_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } wrong[] = {{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11},
                 {"\x0b", 1},
                 {"\x07", 1},
                 {"\x00\x00", 2},
                 {"\x0a\xff\xff\xff\xff\x0f", 6}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(
            protobuf_check((struct span){(const unsigned char *)wrong[i].bytes, wrong[i].len}),
            -EBADMSG);
}

/* ---- frames ---- */

static void a_message_arrives_in_whatever_pieces(void **state)
{
    struct buffer out = {0}, payload = {0};
    char large[9000];

    (void)state;
    memset(large, 'x', sizeof(large));
    protobuf_put_bytes(&payload, 1, large, sizeof(large));
    frames_answer(&out, 5, 0, NULL, &payload);
    for (size_t i = 0; i + 8 < out.len;) { /* no piece is larger than the other end reads at once */
        uint32_t len = (uint32_t)out.bytes[i + 6] << 8 | out.bytes[i + 7];

        assert_true(len <= 4096);
        i += 8 + len;
    }
    /* The same bytes on the other connection are an answer to a call of ours. */
    for (size_t i = 0; i < out.len;) {
        uint32_t len = (uint32_t)out.bytes[i + 6] << 8 | out.bytes[i + 7];

        out.bytes[i + 3] = FRAMES_RUNTIME;
        i += 8 + len;
    }
    for (size_t piece = 1; piece < 3000; piece += 997) {
        struct frames f = {0};
        struct frames_message m;
        int r = 0;

        for (size_t at = 0; at < out.len; at += piece) {
            assert_int_equal(r, 0);
            buffer_add(&f.trunk, out.bytes + at, out.len - at < piece ? out.len - at : piece);
            r = frames_next(&f, &m);
        }
        assert_int_equal(r, 1);
        assert_false(m.is_call);
        assert_int_equal(m.stream, 5);
        assert_int_equal(protobuf_bytes(m.payload, 1).len, sizeof(large));
        assert_int_equal(frames_next(&f, &m), 0);
        frames_done(&f);
    }
    buffer_done(&out);
    buffer_done(&payload);
}

static void an_error_has_its_code_and_text(void **state)
{
    struct buffer out = {0};
    struct frames f = {0};
    struct frames_message m;

    (void)state;
    frames_answer(&out, 1, 5, "no such\ncontainer", NULL);
    out.bytes[3] = FRAMES_RUNTIME;
    buffer_add(&f.trunk, out.bytes, out.len);
    assert_int_equal(frames_next(&f, &m), 1);
    assert_int_equal(m.code, 5);
    assert_string_equal(m.text, "no suchcontainer");
    frames_done(&f);
    buffer_done(&out);
}

static void lengths_beyond_the_protocols_are_refused(void **state)
{
    static const unsigned char piece[] = {0, 0, 0, 1, 0x7f, 0, 0, 0};
    static const unsigned char message[] = {0, 0, 0, 1, 0, 0, 0, 10, 0x7f,
                                            0, 0, 0, 0, 0, 0, 1, 1,  0};
    struct frames f = {0};
    struct frames_message m;

    (void)state;
    buffer_add(&f.trunk, piece, sizeof(piece));
    assert_int_equal(frames_next(&f, &m), -EBADMSG);
    frames_done(&f);
    f = (struct frames){0};
    buffer_add(&f.trunk, message, sizeof(message));
    assert_int_equal(frames_next(&f, &m), -EBADMSG);
    frames_done(&f);
}

/* ---- pods ---- */

static void put_pair(struct buffer *b, unsigned number, const char *key, const char *value)
{
    size_t pair = protobuf_open(b, number);

    protobuf_put_text(b, 1, key);
    protobuf_put_text(b, 2, value);
    protobuf_close(b, pair);
}

struct pod_message {
    struct buffer bytes;
    struct nri_pod pod;
};

/* @label, @note: KEY or NULL, with @value. */
static void make_pod(struct pod_message *p, const char *space, const char *parent,
                     const char *label, const char *note, const char *value)
{
    size_t host;

    *p = (struct pod_message){0};
    protobuf_put_text(&p->bytes, 1, "podid");
    protobuf_put_text(&p->bytes, 2, "train-5d9c7b8f66-abcde");
    protobuf_put_text(&p->bytes, 4, space);
    if (label)
        put_pair(&p->bytes, 5, label, value);
    if (note)
        put_pair(&p->bytes, 6, note, value);
    host = protobuf_open(&p->bytes, 8);
    protobuf_put_text(&p->bytes, 3, parent);
    protobuf_close(&p->bytes, host);
    assert_int_equal(nri_read_pod(span_of(&p->bytes), &p->pod), 0);
}

static void a_pods_own_word_comes_before_the_administrators(void **state)
{
    const struct choice all = {.namespaces = {"team"},
                               .n_namespaces = 1,
                               .qos = 1u << QOS_BEST_EFFORT,
                               .own = "ours",
                               .inject = true};
    static const struct {
        const char *space, *parent, *label, *note, *value;
        bool job, refused, inject;
    } cases[] = {
        {"other", "/kubepods/burstable/podx", NULL, NULL, "", false, false, false},
        {"team", "/kubepods/burstable/podx", NULL, NULL, "", true, false, true},
        {"other", "kubepods-besteffort-podx.slice", NULL, NULL, "", true, false, true},
        {"other", "/kubepods/podx", "threadtide.io/elastic", NULL, "true", true, false, true},
        {"other", "/kubepods/podx", NULL, "threadtide.io/elastic", "true", true, false, true},
        {"team", "/kubepods/podx", "threadtide.io/elastic", NULL, "false", false, true, false},
        {"team", "/kubepods/podx", "threadtide.io/inject", NULL, "false", true, false, false},
        {"other", "/kubepods/podx", NULL, "threadtide.io/inject", "true", false, false, true},
        {"team", "/kubepods/podx", NULL, "threadtide.io/inject-except", "log, main", false, true,
         false},
        {"team", "/kubepods/podx", NULL, "threadtide.io/inject-except", "log,mainly", true, false,
         true},
        {"ours", "/kubepods/podx", "threadtide.io/elastic", NULL, "true", false, false, false},
        {"kube-system", "/kubepods/podx", "threadtide.io/elastic", NULL, "true", false, false,
         false},
        {"team", "/kubepods/podx", "threadtide.io/job", NULL, "digits", false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pod_message p;
        struct chosen c;

        make_pod(&p, cases[i].space, cases[i].parent, cases[i].label, cases[i].note,
                 cases[i].value);
        c = choose(&all, &p.pod, text_span("main"));
        assert_int_equal(c.job, cases[i].job);
        assert_int_equal(c.refused, cases[i].refused);
        assert_int_equal(c.inject, cases[i].inject);
        buffer_done(&p.bytes);
    }
}

static void notes_become_labels_that_docker_would_have(void **state)
{
    const struct chosen job = {.job = true};
    struct pod_message p;
    json_t *labels;

    (void)state;
    make_pod(&p, "team", "/kubepods", NULL, "threadtide.io/max", "3");
    labels = choose_labels(&job, &p.pod);
    assert_string_equal(json_string_value(json_object_get(labels, "io.threadtide")), "true");
    assert_string_equal(json_string_value(json_object_get(labels, "io.threadtide.max")), "3");
    assert_int_equal(json_object_size(labels), 2);
    assert_int_equal(choose_number(&p.pod, "max"), 3);
    assert_int_equal(choose_number(&p.pod, "min"), 0);
    json_decref(labels);
    buffer_done(&p.bytes);
}

static void a_jobs_name_keeps_the_end_that_tells_replicas_apart(void **state)
{
    char name[CHOOSE_NAME_MAX];
    struct pod_message p;

    (void)state;
    make_pod(&p, "team", "/kubepods", NULL, NULL, "");
    assert_string_equal(choose_name(&p.pod, text_span("main"), name),
                        "team.train-5d9c7b8f66-abcde.main");
    choose_name(&p.pod, text_span("a-container-with-a-name-that-is-rather-long"), name);
    assert_true(strlen(name) < CHOOSE_NAME_MAX);
    assert_non_null(strstr(name, "-abcde.a-container-with-a-name-that-is-rather-long"));
    assert_true(name[0] != '-' && name[0] != '.');
    buffer_done(&p.bytes);
}

/* ---- adjustments ---- */

static void make_container(struct buffer *b, const char *variable, const char *mount,
                           struct nri_container *ret)
{
    size_t part;

    protobuf_put_text(b, 1, "c1");
    if (variable)
        protobuf_put_text(b, NRI_CONTAINER_ENV, variable);
    part = protobuf_open(b, NRI_CONTAINER_MOUNTS);
    protobuf_put_text(b, 1, mount);
    protobuf_close(b, part);
    assert_int_equal(nri_read_container(span_of(b), ret), 0);
}

static void mounts_that_meet_ours_leave_the_container_alone(void **state)
{
    static const struct {
        const char *mount;
        bool given;
    } cases[] = {{"/data", true},
                 {"/opt/threadtide2", true},
                 {"/opt", false},
                 {"/opt/", false},
                 {"/", false},
                 {"/opt/threadtide", false},
                 {"/opt/threadtide/x", false},
                 {"/op", true}};
    const struct adjust_how how = {.agent_dir = "/agent", .cores = 4, .sizes = true};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buffer message = {0}, answer = {0};
        struct nri_container c;
        struct startup size = {0};

        make_container(&message, NULL, cases[i].mount, &c);
        assert_int_equal(adjust_put(&answer, &how, &c, &size), cases[i].given);
        assert_int_equal(answer.len > 0, cases[i].given);
        buffer_done(&message);
        buffer_done(&answer);
    }
}

static void a_preload_that_would_become_too_long_stays(void **state)
{
    const struct adjust_how how = {.agent_dir = "/agent", .control_dir = "/control", .cores = 4};
    _cleanup_free_ char *variable = malloc(PRELOAD_VARIABLE_MAX + 16);
    struct buffer message = {0}, answer = {0};
    struct nri_container c;
    struct startup size = {0};

    (void)state;
    assert_non_null(variable);
    strcpy(variable, "LD_PRELOAD=");
    memset(variable + 11, 'x', PRELOAD_VARIABLE_MAX);
    variable[11 + PRELOAD_VARIABLE_MAX] = '\0';
    make_container(&message, variable, "/data", &c);
    assert_false(adjust_put(&answer, &how, &c, &size));
    assert_int_equal(answer.len, 0);
    buffer_done(&message);
    buffer_done(&answer);
}

static void ids_that_could_name_another_folder_are_refused(void **state)
{
    static const char *const wrong[] = {"", "..", "a/b", "../../etc", "a b"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct buffer b = {0};
        struct nri_container c;

        protobuf_put_text(&b, 1, wrong[i]);
        assert_int_equal(nri_read_container(span_of(&b), &c), -EBADMSG);
        buffer_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_message_that_is_cut_anywhere_is_refused_or_shorter),
        cmocka_unit_test(numbers_without_an_end_and_kinds_that_are_none_are_refused),
        cmocka_unit_test(a_message_arrives_in_whatever_pieces),
        cmocka_unit_test(an_error_has_its_code_and_text),
        cmocka_unit_test(lengths_beyond_the_protocols_are_refused),
        cmocka_unit_test(a_pods_own_word_comes_before_the_administrators),
        cmocka_unit_test(notes_become_labels_that_docker_would_have),
        cmocka_unit_test(a_jobs_name_keeps_the_end_that_tells_replicas_apart),
        cmocka_unit_test(mounts_that_meet_ours_leave_the_container_alone),
        cmocka_unit_test(a_preload_that_would_become_too_long_stays),
        cmocka_unit_test(ids_that_could_name_another_folder_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
