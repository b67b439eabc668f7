/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs from CSV and Standard Workload Format. */
#include "sim_input.h"

#include "sim/input/trace.h"

static struct speedup_set fractions = {.cores = 8};
static const uint32_t flat_speeds[] = {1000};
static struct sim_curve flat = {flat_speeds, NULL, 1};
static const struct named_curve curves[] = {{"flat", &flat}};
static const struct job_context context = {8, curves, 1, &fractions};
static struct job_spec defaults;

/* The jobs of a trace in a string; what ended them: 0 or -errno. */
struct read {
    struct sim_job job[8];
    size_t count;
    struct error err;
    int end;
};

static struct read read_bytes(const char *text, size_t size, bool swf)
{
    struct read result = {0};
    struct trace trace;
    /* A stream of no bytes is a NULL buffer to fmemopen(). */
    FILE *file = size ? fmemopen((char *)text, size, "r") : fopen("/dev/null", "r");

    trace_init(&trace, file, "t", &defaults);
    while (result.count < ARRAY_LEN(result.job)) {
        result.end =
            (swf ? swf_next : csv_next)(&trace, &context, &result.job[result.count], &result.err);
        if (result.end <= 0)
            break;
        result.count++;
    }
    trace_done(&trace);
    return result;
}

static struct read read_text(const char *text, bool swf)
{
    return read_bytes(text, strlen(text), swf);
}

static int with_defaults(void **state)
{
    memset(&defaults, 0, sizeof(defaults));
    job_spec_put(&defaults, JOB_KEY_SPEEDUP, SPEEDUP_UNIT);
    return 0;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void columns_are_fields_of_jobs_in_any_order(void **state)
{
    struct read r = read_text("work,name,arrival,speedup,memory\n"
                              "60,a,0,0.5,2G\r\n"
                              "\n"
                              "1.5min,\"b, \"\"c\"\"\",2s,flat,\n"
                              "7,,2,,",
                              false);

    assert_int_equal(r.end, 0);
    assert_int_equal(r.count, 3);
    assert_string_equal(r.job[0].name, "a");
    assert_int_equal(r.job[0].memory_bytes, INT64_C(2) << 30);
    assert_int_equal(sim_curve_speed(r.job[0].curve, 2), 1333);
    assert_string_equal(r.job[1].name, "b, \"c\"");
    assert_int_equal(r.job[1].work_ns, 90 * SECOND);
    assert_int_equal(r.job[1].arrival_ns, 2 * SECOND);
    assert_ptr_equal(r.job[1].curve, &flat);
    assert_string_equal(r.job[2].name, "line-5");
    assert_int_equal(sim_curve_speed(r.job[2].curve, 8), 8000); /* the default */
}

static void a_byte_order_mark_is_no_column(void **state)
{
    struct read r = read_text("\xef\xbb\xbf"
                              "arrival,work\n0,1\n",
                              false);

    assert_int_equal(r.end, 0);
    assert_int_equal(r.count, 1);
}

static const struct {
    const char *text, *says;
} bad_csv[] = {
    {"", "t:1: is empty"},
    {"work,arival\n", "t:1: there is no column 'arival': did you mean 'arrival'?"},
    {"work,,arrival\n", "t:1: there is no column ''"},
    {"work\n1\n", "t:1: there is no column arrival"},
    {"arrival,work,work\n", "t:1: column work is there twice"},
    {"\"arrival\n", "t:1: a quoted name does not end"},
    {"arrival,work\n0\n", "t:2: work: the line ends before this column"},
    {"arrival,work\n0,1,2\n", "t:2: there are more cells than the header's 2"},
    {"arrival,work\n0,1\n0,\"1\n", "t:3: work: the line ends before this column, or a quoted"},
    {"arrival,work\n0,\"1\"x\n", "t:2: work: the line ends before this column, or a quoted"},
    {"arrival,work\n,1\n", "t:2: arrival: is empty"},
    {"arrival,work\n0,\n", "t:2: work is missing"},
    {"arrival,work\n0,-1\n", "t:2: work: -1 is out of range"},
    {"arrival,work\n0,0\n", "t:2: work: 0 is out of range: 1ns to 10000d"},
    {"arrival,work\n0,1e999\n", "t:2: work: '1e999' is no duration"},
    {"arrival,work\n\n0,one\n", "t:3: work: 'one' is no duration"},
    {"arrival,work\n5,1\n4,1\n", "t:3: arrival: is before that of the job above"},
    {"arrival,work,request,max\n0,1,5,4\n", "t:2: request: 5 is more than max, 4"},
    {"arrival,work,malleability\n0,1,soft\n", "t:2: malleability: 'soft' is none of rigid"},
    {"arrival,work,preemptible\n0,1,yes\n", "t:2: preemptible: 'yes' is none of false, true"},
    {"arrival,work,speedup\n0,1,flatt\n", "t:2: speedup: 'flatt' is neither"},
    {"arrival,work,name\n0,1,a\tb\n", "t:2: name: holds a control character"},
};

static void bad_csv_is_refused_with_line_and_field(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_csv); i++) {
        struct read r = read_text(bad_csv[i].text, false);

        if (r.end != -EINVAL || strncmp(r.err.text, bad_csv[i].says, strlen(bad_csv[i].says)) != 0)
            fail_msg("%s\nsays \"%s\" (%d), expected \"%s\"", bad_csv[i].text, r.err.text, r.end,
                     bad_csv[i].says);
    }
}

static void lines_have_a_limit_and_hold_no_nul(void **state)
{
    static char text[3 * TRACE_LINE_MAX];
    struct read r;

    memcpy(text, "arrival,work\n", 13);
    memset(text + 13, '1', sizeof(text) - 13);
    r = read_bytes(text, sizeof(text), false);
    assert_int_equal(r.end, -EINVAL);
    assert_string_equal(r.err.text, "t:2: the line is longer than 4096 bytes");
    r = read_bytes("arrival,work\n0,\0001\n", 18, false);
    assert_string_equal(r.err.text, "t:2: holds a NUL byte: it is not a text file");
}

/* ---- SWF ------------------------------------------------------------------------------------- */

static void swf_fields_become_a_job(void **state)
{
    struct read r = read_text("; Version: 2\n"
                              "  7 10 5 100 4 -1 100 2 200 1000 1 3 1 -1 2 -1 -1 -1\n",
                              true);
    const struct sim_job *j = &r.job[0];

    assert_int_equal(r.end, 0);
    assert_int_equal(r.count, 1);
    assert_string_equal(j->name, "swf-7");
    assert_int_equal(j->arrival_ns, 10 * SECOND);
    assert_int_equal(j->work_ns, 400 * SECOND); /* 100 s with 4 processors, linear */
    assert_int_equal(j->told_ns, 400 * SECOND); /* 200 s with the 2 that it asked for */
    assert_int_equal(j->request, 2);
    assert_int_equal(j->stock_threads, 2);
    assert_int_equal(j->memory_bytes, 2 * 1000 * 1024);
    assert_int_equal(j->class, 10); /* of a queue for batch jobs */
}

static void what_swf_does_not_know_is_taken_from_elsewhere(void **state)
{
    struct read r;

    job_spec_put(&defaults, JOB_KEY_SPEEDUP, SPEEDUP_UNIT / 2);
    r = read_text("1 0 -1 90 2 -1 50 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n", true);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.job[0].request, 2); /* those allocated */
    assert_int_equal(r.job[0].work_ns, 90 * SECOND * 1333 / 1000);
    assert_int_equal(r.job[0].told_ns, r.job[0].work_ns);   /* no estimate: the truth */
    assert_int_equal(r.job[0].memory_bytes, 2 * 50 * 1024); /* what it used */
    assert_int_equal(r.job[0].class, 0);
}

static void jobs_that_never_ran_are_left_out(void **state)
{
    struct read r = read_text("1 0 0 -1 4 -1 -1 4 -1 -1 5 -1 -1 -1 -1 -1 -1 -1\n"
                              "2 0 0 0 4 -1 -1 4 -1 -1 0 -1 -1 -1 -1 -1 -1 -1\n"
                              "3 0 0 9 -1 -1 -1 0 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
                              "\t \n"
                              "4 3 0 9 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n",
                              true);

    assert_int_equal(r.end, 0);
    assert_int_equal(r.count, 1);
    assert_string_equal(r.job[0].name, "swf-4");
}

#define TAIL " 0 9 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1"

static const struct {
    const char *text, *says;
} bad_swf[] = {
    {"x\n", "t:1: field 1, job number: 'x' is no whole number"},
    {"1\n", "t:1: field 2, submit time, is missing"},
    {";c\n1 0 0 9 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1\n", "t:2: field 18, think time, is missing"},
    {"1 0" TAIL " 7\n", "t:1: there are more than 18 fields"},
    {"1 -1" TAIL "\n", "t:1: field 2, submit time: -1 is out of range: 0 to 10000d"},
    {"1 0 0 9 1.5 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n",
     "t:1: field 5, allocated processors: '1.5' is no whole number"},
    {"1 0 0 9 1 -1 -1 70000 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n",
     "t:1: field 8, requested processors: 70000 is out of range: -1 to 65536"},
    {"1 0 0 9 1 -1 -1 1 -1 1e30 1 -1 -1 -1 -1 -1 -1 -1\n", "t:1: field 10, requested memory: 1e30"},
    {"1 5" TAIL "\n2 4" TAIL "\n", "t:2: arrival: is before that of the job above"},
};

static void bad_swf_is_refused_with_line_and_field(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_swf); i++) {
        struct read r = read_text(bad_swf[i].text, true);

        if (r.end != -EINVAL || strncmp(r.err.text, bad_swf[i].says, strlen(bad_swf[i].says)) != 0)
            fail_msg("%s\nsays \"%s\" (%d), expected \"%s\"", bad_swf[i].text, r.err.text, r.end,
                     bad_swf[i].says);
    }
}

/* ---- from a scenario ------------------------------------------------------------------------- */

static void a_trace_is_looked_for_beside_the_scenario(void **state)
{
    struct scenario *scenario;
    struct scenario_source *source;
    struct error err;
    char *text = strdup("{\"machine\": {\"cores\": 8}, \"trace\": {\"file\": \"no.swf\"}}");

    assert_int_equal(scenario_parse("/no/where/s.json", text, strlen(text), &scenario, &err), 0);
    assert_string_equal(scenario->trace_path, "/no/where/no.swf");
    assert_int_equal(scenario->trace, SCENARIO_TRACE_SWF);
    assert_int_equal(scenario_source_new(scenario, 1, &source, &err), -ENOENT);
    assert_string_equal(err.text, "/no/where/no.swf: No such file or directory "
                                  "(named in /no/where/s.json: trace.file)");
    scenario_free(scenario);
}

static int free_fractions(void **state)
{
    speedup_set_done(&fractions);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(columns_are_fields_of_jobs_in_any_order, with_defaults),
        cmocka_unit_test_setup(a_byte_order_mark_is_no_column, with_defaults),
        cmocka_unit_test_setup(bad_csv_is_refused_with_line_and_field, with_defaults),
        cmocka_unit_test_setup(lines_have_a_limit_and_hold_no_nul, with_defaults),
        cmocka_unit_test_setup(swf_fields_become_a_job, with_defaults),
        cmocka_unit_test_setup(what_swf_does_not_know_is_taken_from_elsewhere, with_defaults),
        cmocka_unit_test_setup(jobs_that_never_ran_are_left_out, with_defaults),
        cmocka_unit_test_setup(bad_swf_is_refused_with_line_and_field, with_defaults),
        cmocka_unit_test(a_trace_is_looked_for_beside_the_scenario),
    };

    return cmocka_run_group_tests(tests, NULL, free_fractions);
}
