/* SPDX-License-Identifier: Apache-2.0 */
/* A choice of policy as text: reading, writing, and the errors for wrong words. */
#include "test_policy_build.h"

#include <errno.h>
#include <stdio.h>

static struct policy_spec spec;
static struct error err;

static void expect_read(const char *text, const char *canonical)
{
    char written[POLICY_SPEC_TEXT_MAX];
    struct policy_spec again;

    if (policy_spec_parse(text, &spec, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    assert_int_equal(policy_spec_text(&spec, written, sizeof(written)), strlen(canonical));
    assert_string_equal(written, canonical);
    assert_int_equal(policy_spec_parse(written, &again, &err), 0);
    assert_ptr_equal(again.policy, spec.policy);
    assert_memory_equal(again.params, spec.params,
                        spec.policy->param_count * sizeof(spec.params[0]));
}

static void expect_refused(const char *text, int code, const char *why)
{
    struct policy_spec untouched = {.params = {7}};

    err = (struct error){0};
    assert_int_equal(policy_spec_parse(text, &untouched, &err), code);
    assert_int_equal(err.code, code);
    assert_string_equal(err.text, why);
    assert_null(untouched.policy);
    assert_int_equal(untouched.params[0], 7);
    assert_int_equal(policy_spec_parse(text, &untouched, NULL), code);
}

static int64_t param(const char *name)
{
    return spec.params[policy_param_find(spec.policy, name)];
}

/* ---- parameters of its own, as no policy has all kinds --------------------------------------- */

static const char *const mode_names[] = {"off", "slow", "fast"};

static const struct policy_param mode = {.name = "mode", .max = 2, .names = mode_names};
static const struct policy_param cap = {
    .name = "cap", .min = -5, .max = 1000, .def = 3, .unit = "permille"};
static const struct policy_param reserve = {.name = "reserve", .max = 5000, .unit = "mcpu"};
static const struct policy_param draw = {.name = "draw", .max = 100000000, .unit = "uW"};
static const struct policy_param pause_time = {
    .name = "pause", .min = 1000000, .max = INT64_C(7200000000000), .unit = "ns"};

static void expect_given(const struct policy_param *p, const char *text, int64_t value,
                         const char *canonical)
{
    char written[POLICY_SPEC_TEXT_MAX];
    int64_t read = -77;

    if (policy_param_parse(p, text, &read, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    assert_int_equal(read, value);
    policy_param_text(p, value, written, sizeof(written));
    assert_string_equal(written, canonical);
    assert_int_equal(policy_param_parse(p, written, &read, NULL), 0);
    assert_int_equal(read, value);
}

static void expect_no_value(const struct policy_param *p, const char *text, const char *why)
{
    int64_t read = -77;

    assert_int_equal(policy_param_parse(p, text, &read, &err), -EINVAL);
    assert_string_equal(err.text, why);
    assert_int_equal(read, -77);
}

static void values_are_read_by_name(void **state)
{
    expect_given(&mode, "off", 0, "off");
    expect_given(&mode, "fast", 2, "fast");
    expect_no_value(&mode, "fats",
                    "\"fats\" is no value of mode (did you mean fast?); it takes off, slow, fast");
    expect_no_value(&mode, "1", "\"1\" is no value of mode; it takes off, slow, fast");
    expect_no_value(&mode, "", "\"\" is no value of mode; it takes off, slow, fast");
}

static void numbers_are_read_with_and_without_unit(void **state)
{
    expect_given(&cap, "0", 0, "0");
    expect_given(&cap, "-5", -5, "-5 permille");
    expect_given(&cap, "1000permille", 1000, "1000 permille");
    expect_given(&reserve, "1core", 1000, "1 core");
    expect_given(&reserve, "2cores", 2000, "2 cores");
    expect_given(&reserve, "2 cores", 2000, "2 cores");
    expect_given(&reserve, "2500", 2500, "2500 mcpu");
    expect_given(&draw, "90W", 90000000, "90W");
    expect_given(&draw, "0.5 W", 500000, "500mW");
    expect_given(&pause_time, "1000001", 1000001, "1000001ns");
    expect_given(&pause_time, "1000us", 1000000, "1ms");
    expect_given(&pause_time, "1.5s", 1500000000, "1500ms");
    expect_given(&pause_time, "0.001000s", 1000000, "1ms");
    expect_given(&pause_time, "90s", INT64_C(90000000000), "90s");
    expect_given(&pause_time, "120s", INT64_C(120000000000), "2min");
    expect_given(&pause_time, "2h", INT64_C(7200000000000), "2h");
}

static void numbers_out_of_range_or_not_exact_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "s",
        ".5s",
        "5.s",
        "1e9",
        "0x5",
        "+5s",
        "1  s",
        "1 ",
        "1cores",
        "-90s",
        "3h",
        "999us",
        "1",
        "-",
        "1.5.5s",
        "1s2",
        "1000000.5ns",
        "99999999999999999999999s",
        "9223372036854775807h",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char why[ERROR_TEXT_MAX];

        snprintf(why, sizeof(why),
                 "\"%s\" is no number for pause in ns, us, ms, s, min, h; it takes 1ms … 2h",
                 wrong[i]);
        expect_no_value(&pause_time, wrong[i], why);
    }
    expect_no_value(&cap, "-6",
                    "\"-6\" is no number for cap in permille; it takes -5 permille … "
                    "1000 permille");
}

/* ---- policies of the registry ---------------------------------------------------------------- */

static void a_name_alone_has_the_defaults(void **state)
{
    for (size_t i = 0; i < policy_count(); i++) {
        expect_read(policy_at(i)->name, policy_at(i)->name);
        assert_ptr_equal(spec.policy, policy_at(i));
        for (uint32_t k = 0; k < spec.policy->param_count; k++)
            assert_int_equal(spec.params[k], spec.policy->params[k].def);
    }
}

static void parameters_are_set_and_written_back_short(void **state)
{
    expect_read("equal/reserve=2cores", "equal/reserve=2cores");
    assert_int_equal(param("reserve"), CORES(2));
    expect_read("equal/reserve=2500", "equal/reserve=2500mcpu");
    expect_read("equal/reserve=1.5cores", "equal/reserve=1500mcpu");
    expect_read("equal/reserve=0", "equal");
}

static void names_of_values_stand_alone(void **state)
{
    expect_read("fcfs/max-prop/malleable", "fcfs/max-prop/malleable");
    expect_read("fcfs/grow/rigid/always-attend", "fcfs/always-attend/rigid/grow");
    expect_read("fcfs/strict/as-is", "fcfs");
    expect_read("priority/ageing=60s/variant=moldable", "priority/moldable/ageing=1min");
    expect_refused("fcfs/stric", -EINVAL,
                   "\"stric\" is no value of a parameter of fcfs (did you mean strict?); it takes "
                   "reassignment: strict, always-attend, max-prop; variant: as-is, rigid, "
                   "moldable, malleable; resize: both, grow");
    expect_refused("fcfs/strict/max-prop", -EINVAL,
                   "\"max-prop\" sets reassignment a second time: leave one out");
    expect_refused("fcfs/variant=strict", -EINVAL,
                   "\"strict\" is no value of variant; it takes as-is, rigid, moldable, malleable");
}

static void wrong_words_are_named(void **state)
{
    expect_refused("equal/reserv=2", -EINVAL,
                   "\"reserv\" is no parameter of equal (did you mean reserve?); "
                   "it takes reserve=VALUE; hybrid: speed, count");
    expect_refused("equal/reserve", -EINVAL,
                   "\"reserve\" is no value of a parameter of equal; it takes reserve=VALUE; "
                   "hybrid: speed, count");
    expect_refused(
        "equal/", -EINVAL,
        "\"\" is no value of a parameter of equal; it takes reserve=VALUE; hybrid: speed, count");
    expect_refused(
        "equal//reserve=1", -EINVAL,
        "\"\" is no value of a parameter of equal; it takes reserve=VALUE; hybrid: speed, count");
    expect_refused("equal/reserve=1/reserve=1", -EINVAL,
                   "\"reserve=1\" sets reserve a second time: leave one out");
    expect_refused("equal/reserve=1s", -EINVAL,
                   "\"1s\" is no number for reserve in mcpu, cores; it takes 0 … 1048576 cores");
}

static void unknown_policies_are_told_the_known(void **state)
{
    assert_int_equal(policy_spec_parse("eqal/x", &spec, &err), -ENOENT);
    assert_ptr_equal(strstr(err.text,
                            "there is no policy \"eqal\" (did you mean equal?); there are "
                            "equal"),
                     err.text);
    assert_int_equal(policy_spec_parse("", &spec, &err), -ENOENT);
    assert_int_equal(policy_spec_parse("/equal", &spec, &err), -ENOENT);
    assert_int_equal(policy_spec_parse("Equal", &spec, &err), -ENOENT);
    assert_int_equal(policy_spec_parse("equal ", &spec, &err), -ENOENT);
}

/* A message repeats the beginning of a word, and no control characters. */
static void hostile_words_are_cut_and_cleaned(void **state)
{
    char text[4096];

    memset(text, 'x', sizeof(text));
    text[0] = '\n';
    text[1] = '\033';
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(policy_spec_parse(text, &spec, &err), -ENOENT);
    assert_ptr_equal(
        strstr(err.text, "there is no policy \"??xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\"; there are "),
        err.text);
}

/* This syntax can express every parameter of every policy without ambiguity. */
static void parameters_are_well_formed(void **state)
{
    for (size_t i = 0; i < policy_count(); i++) {
        const struct policy *policy = policy_at(i);

        assert_null(strpbrk(policy->name, "/= "));
        assert_in_range(strlen(policy->name), 1, 31);
        assert_in_range(policy->param_count, 0, POLICY_PARAMS_MAX);
        for (uint32_t k = 0; k < policy->param_count; k++) {
            const struct policy_param *p = &policy->params[k];
            char text[POLICY_SPEC_TEXT_MAX];

            assert_int_equal(policy_param_find(policy, p->name), k);
            assert_null(strpbrk(p->name, "/= "));
            assert_true(p->min <= p->def && p->def <= p->max && p->min < p->max);
            assert_true(p->names || p->unit);
            assert_non_null(p->text);
            for (int64_t value = p->min; p->names && value <= p->max; value++) {
                assert_in_range(strlen(p->names[value - p->min]), 1, 31);
                snprintf(text, sizeof(text), "%s/%s=%s", policy->name, p->name,
                         p->names[value - p->min]);
                assert_int_equal(policy_spec_parse(text, &spec, &err), 0);
                assert_int_equal(spec.params[k], value);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_by_name),
        cmocka_unit_test(numbers_are_read_with_and_without_unit),
        cmocka_unit_test(numbers_out_of_range_or_not_exact_are_refused),
        cmocka_unit_test(a_name_alone_has_the_defaults),
        cmocka_unit_test(parameters_are_set_and_written_back_short),
        cmocka_unit_test(names_of_values_stand_alone),
        cmocka_unit_test(wrong_words_are_named),
        cmocka_unit_test(unknown_policies_are_told_the_known),
        cmocka_unit_test(hostile_words_are_cut_and_cleaned),
        cmocka_unit_test(parameters_are_well_formed),
    };

    return cmocka_run_group_tests_name("policy spec", tests, NULL, NULL);
}
