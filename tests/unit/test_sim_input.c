/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios as JSON: their meaning, and the errors of wrong ones. */
#include "sim_input.h"

#include "sim/input/value.h"

/* ---- values ---------------------------------------------------------------------------------- */

static const struct value_type duration = {VALUE_DURATION, 0, VALUE_DURATION_MAX, NULL, 0};

static int64_t read_duration(const char *text)
{
    int64_t value = -1;

    return value_from_text(&duration, text, &value, NULL) < 0 ? -1 : value;
}

static void durations_have_units(void **state)
{
    assert_int_equal(read_duration("1"), SECOND);
    assert_int_equal(read_duration("0.1"), SECOND / 10);
    assert_int_equal(read_duration("250ms"), 250000000);
    assert_int_equal(read_duration("1.5min"), 90 * SECOND);
    assert_int_equal(read_duration("2h"), 7200 * SECOND);
    assert_int_equal(read_duration("1d"), 86400 * SECOND);
    assert_int_equal(read_duration("7ns"), 7);
    assert_int_equal(read_duration("1e3us"), 1000000);
}

static void what_is_no_duration_is_refused(void **state)
{
    static const char *const bad[] = {
        "",     "s",  "1x",   "1 s",   " 1",   "1s ",   "-1",     "--1",         "nan", "inf",
        "0x10", "1e", "1e99", "1e400", "1,5s", "1.2.3", "1min2s", "99999999999", NULL};

    for (size_t i = 0; bad[i]; i++)
        assert_int_equal(read_duration(bad[i]), -1);
}

static void values_read_back_from_their_text(void **state)
{
    static const int64_t values[] = {0, 1, 999, 1000, 1500000000, 90000000000, VALUE_DURATION_MAX};
    char text[VALUE_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        assert_int_equal(read_duration(value_text(&duration, values[i], text)), values[i]);
}

/* ---- speed-ups ------------------------------------------------------------------------------- */

static void amdahl_is_the_formula_rounded(void **state)
{
    struct sim_curve *curve = speedup_amdahl(SPEEDUP_UNIT / 10 * 9, 0, 64);

    assert_non_null(curve);
    assert_int_equal(curve->count, 64);
    for (uint32_t k = 1; k <= 64; k++)
        assert_int_equal(curve->speedup_permille[k - 1],
                         (uint32_t)(1000.0 * k / (0.1 * k + 0.9) + 0.5));
    free(curve);
}

static void contention_makes_a_peak_and_the_envelope_covers_it(void **state)
{
    struct sim_curve *curve = speedup_amdahl(SPEEDUP_UNIT, SPEEDUP_UNIT / 100, 64);
    const uint32_t *s = curve->speedup_permille, *e = curve->envelope_permille;

    assert_int_equal(s[0], 1000);
    assert_true(s[9] > s[8] && s[9] > s[20] && s[20] > s[63]); /* 1 / sqrt(c) = 10 cores */
    for (uint32_t k = 0; k < 64; k++)
        assert_true(e[k] >= s[k]);
    for (uint32_t k = 1; k + 1 < 64; k++)
        assert_true((int64_t)e[k] * 2 >= (int64_t)e[k - 1] + e[k + 1]);
    free(curve);
}

static void measured_points_are_relative_and_linear_in_between(void **state)
{
    static const uint32_t cores[] = {1, 2, 4, 8};
    static const double speed[] = {20, 30, 70, 70};
    struct sim_curve *curve = speedup_measured(cores, speed, 4, 10);
    static const uint32_t expected[] = {1000, 1500, 2500, 3500, 3500, 3500, 3500, 3500, 3500, 3500};
    static const uint32_t envelope[] = {1000, 1834, 2667, 3500};

    assert_memory_equal(curve->speedup_permille, expected, sizeof(expected));
    assert_memory_equal(curve->envelope_permille, envelope, sizeof(envelope));
    free(curve);
}

static void largest_tables_do_not_overflow(void **state)
{
    struct sim_curve *curve = speedup_amdahl(SPEEDUP_UNIT, 0, SIM_CORES_MAX);

    assert_int_equal(curve->speedup_permille[SIM_CORES_MAX - 1], 1000 * SIM_CORES_MAX);
    free(curve);
    curve = speedup_amdahl(0, SPEEDUP_UNIT, SIM_CORES_MAX);
    assert_int_equal(curve->speedup_permille[SIM_CORES_MAX - 1], 1); /* never 0 */
    free(curve);
}

/* ---- scenarios ------------------------------------------------------------------------------- */

static void every_field_of_a_job_arrives(void **state)
{
    struct jobs jobs;
    const struct sim_job *j = &jobs.job[0];

    load(
        &jobs,
        "{'machine': {'cores': 8}, 'speedups': {'flat': {'amdahl': 0}}, 'jobs': [{"
        "'name': 'a', 'arrival': '2s', 'work': '1min', 'speedup': 0.5, "
        "'told_speedup': 'flat', 'estimate_factor': 2, 'estimate_error': 0.5, "
        "'waste': 0.1, 'idle': 0.25, 'request': 4, 'min': 2, 'max': 6, 'threads': 'request', "
        "'memory': '2G', 'devices': 'nvidia=3,vfio=1', 'malleability': 'moldable', 'class': 3, "
        "'weight': 200, "
        "'priority': -5, 'preemptible': false, 'slack': 3, 'start_work': '4s', 'start_cost': '1s', "
        "'resize_cost': '2ms', 'pause_cost': '3us'}]}",
        1);
    assert_int_equal(jobs.count, 1);
    assert_string_equal(j->name, "a");
    assert_int_equal(j->arrival_ns, 2 * SECOND);
    assert_int_equal(j->work_ns, 60 * SECOND);
    assert_int_equal(sim_curve_speed(j->curve, 4), 1600);
    assert_int_equal(sim_curve_speed(j->told_curve, 4), 1000);
    assert_int_equal(j->told_ns, 120 * SECOND);
    assert_int_equal(j->told_error_ns, 60 * SECOND);
    assert_int_equal(j->waste_permille, 100);
    assert_int_equal(j->idle_permille, 250);
    assert_int_equal(j->request, 4);
    assert_int_equal(j->min, 4); /* one for each device: its own were 2 */
    assert_int_equal(j->max, 6);
    assert_int_equal(j->stock_threads, 4);
    assert_int_equal(j->memory_bytes, INT64_C(2) << 30);
    assert_int_equal(devices_of(j->devices, DEVICE_NVIDIA), 3);
    assert_int_equal(devices_total(j->devices), 4);
    assert_int_equal(j->malleability, POLICY_MOLDABLE);
    assert_int_equal(j->class, 3);
    assert_int_equal(j->weight, 200);
    assert_int_equal(j->priority, -5);
    assert_false(j->preemptible);
    assert_int_equal(j->deadline_ns, 2 * SECOND + 3 * 60 * SECOND * 1000 / 1600);
    assert_int_equal(j->start_ns, 4 * SECOND);
    assert_int_equal(j->cost_ns[POLICY_ACTION_START], SECOND);
    assert_int_equal(j->cost_ns[POLICY_ACTION_RESIZE], 2000000);
    assert_int_equal(j->cost_ns[POLICY_ACTION_PAUSE], 3000);
    unload(&jobs);
}

static void what_is_not_said_has_a_default(void **state)
{
    struct jobs jobs;
    const struct sim_job *j = &jobs.job[0];

    load(&jobs, "{'machine': {'cores': 8}, 'jobs': [{'work': 1, 'speedup': 1}]}", 1);
    assert_string_equal(j->name, "job-1");
    assert_int_equal(j->told_ns, j->work_ns);
    assert_ptr_equal(j->told_curve, j->curve);
    assert_int_equal(j->request, 0);
    assert_int_equal(j->min, 1);
    assert_int_equal(j->max, 0);
    assert_int_equal(j->stock_threads, 8);
    assert_int_equal(j->malleability, POLICY_MALLEABLE);
    assert_int_equal(j->weight, 100);
    assert_true(j->preemptible);
    assert_true(j->deadline_ns == POLICY_NEVER);
    unload(&jobs);
}

static void nothing_is_told_when_asked_for(void **state)
{
    struct jobs jobs;

    load(&jobs,
         "{'machine': {'cores': 8}, 'jobs': [{'work': 1, 'speedup': 1, 'estimate': 'none', "
         "'told_speedup': 'none'}]}",
         1);
    assert_true(jobs.job[0].told_ns == POLICY_UNKNOWN);
    assert_null(jobs.job[0].told_curve);
    unload(&jobs);
}

static void defaults_give_way_to_a_jobs_own_fields(void **state)
{
    struct jobs jobs;

    load(&jobs,
         "{'machine': {'cores': 8}, 'defaults': {'speedup': 1, 'time': 10, 'request': 4, "
         "'slack': 2}, 'jobs': [{}, {'work': 5, 'deadline': 7, 'request': 2}]}",
         1);
    assert_int_equal(jobs.job[0].work_ns, 40 * SECOND);
    assert_int_equal(jobs.job[0].deadline_ns, 20 * SECOND);
    assert_int_equal(jobs.job[1].work_ns, 5 * SECOND);
    assert_int_equal(jobs.job[1].deadline_ns, 7 * SECOND);
    assert_int_equal(jobs.job[1].request, 2);
    unload(&jobs);
}

static void listed_jobs_come_by_arrival_and_equals_in_their_order(void **state)
{
    struct jobs jobs;

    load(&jobs,
         "{'machine': {'cores': 8}, 'defaults': {'work': 1, 'speedup': 1}, 'jobs': ["
         "{'name': 'c', 'arrival': 3}, {'name': 'a', 'arrival': 1}, "
         "{'name': 'd', 'arrival': 3}, {'name': 'b', 'arrival': 2}]}",
         1);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(jobs.job[i].id, i + 1);
        assert_int_equal(jobs.job[i].name[0], 'a' + (int)i);
    }
    unload(&jobs);
}

static void machine_and_observation_are_read(void **state)
{
    struct jobs jobs;
    const struct scenario *s;

    load(&jobs,
         "{'name': 'N', 'description': 'D', 'resolution': '1ms', 'machine': {'cores': 8, "
         "'numa': 2, 'smt': 2, 'smt_gain': 0.3, 'memory': '64G', 'devices': 'nvidia=4', "
         "'idle_watts': 40, "
         "'core_watts': 5.5, 'cap_watts': 80, 'placement': 'quota', 'numa_loss': 0.1, "
         "'oversubscription': 0.05, 'contention': 0.2, 'speeds': [[6, 1], [2, 0.6]]}, 'jobs': "
         "[{'work': 1, 'speedup': 1}],"
         "'observed': {'policy': 'equal', 'makespan': 20, 'mean_turnaround': '7s'}}",
         1);
    s = jobs.scenario;
    assert_string_equal(s->name, "N");
    assert_string_equal(s->text, "D");
    assert_int_equal(s->resolution_ns, 1000000);
    assert_int_equal(s->machine.numa, 2);
    assert_int_equal(s->machine.smt, 2);
    assert_int_equal(s->machine.speed_count, 2);
    assert_int_equal(s->machine.speeds[0].cores, 6);
    assert_int_equal(s->machine.speeds[1].permille, 600);
    assert_int_equal(s->machine.smt_gain_permille, 300);
    assert_int_equal(s->machine.memory_bytes, INT64_C(64) << 30);
    assert_int_equal(devices_of(s->machine.devices, DEVICE_NVIDIA), 4);
    assert_int_equal(s->machine.idle_uw, 40000000);
    assert_int_equal(s->machine.core_uw, 5500000);
    assert_int_equal(s->machine.cap_uw, 80000000);
    assert_int_equal(s->machine.placement, SIM_QUOTA);
    assert_int_equal(s->machine.oversubscription_permille, 50);
    assert_int_equal(s->machine.contention_permille, 200);
    assert_int_equal(s->machine.numa_permille, 100);
    assert_true(s->observed.present);
    assert_string_equal(s->observed.policy, "equal");
    assert_int_equal(s->observed.makespan_ns, 20 * SECOND);
    assert_int_equal(s->observed.mean_turnaround_ns, 7 * SECOND);
    unload(&jobs);
}

/* ---- errors of wrong scenarios --------------------------------------------------------------- */

#define HEAD "{'machine': {'cores': 8},\n"
#define JOB  "'work': 1, 'speedup': 1"

static const struct {
    const char *text, *says;
} bad[] = {
    {"", "s.json:1: "},
    {"{", "s.json:1: "},
    {"[]", "s.json:1: a scenario is an object"},
    {"{\n'a': 1,\n'a': 2}", "s.json:3: duplicate object key"},
    {"{}", "s.json:1: machine is missing"},
    {"{'machine': {}}", "s.json:1: machine: cores is missing"},
    {"{'machine': 4}", "s.json:1: machine: must be an object"},
    {"{'machine': {'cores': 0}}", "s.json:1: machine.cores: 0 is out of range: 1 to 65536"},
    {"{'machine': {'cores': 1.5}}", "s.json:1: machine.cores: '1.5' is no whole number"},
    {"{'machine': {'cores': 1e30}}", "machine.cores: 1e+30 is out of range"},
    {"{'machine': {'cores': null}}", "machine.cores: must be a number or a string"},
    {"{'machine': {'cores': 8, 'numa': 3}}", "s.json:1: machine: 8 cores cannot be divided"},
    {"{'machine': {'cores': 8, 'speeds': [[4, 1], [4, 1]]}}",
     "s.json:1: machine: speeds begins with the fastest cores, of speed 1, and falls"},
    {"{'machine': {'cores': 8, 'speeds': [[4, 1], [3, 0.5]]}}",
     "s.json:1: machine: speeds counts 7 cores of 8"},
    {"{'machine': {'cores': 8, 'speeds': [[4, 1], [4]]}}", "machine.speeds[1]"},
    {"{'machine':\n {'cores': 8,\n 'corez': 1}}",
     "s.json:3: machine.corez: is not a key here: did you mean 'cores'?"},
    {"{'machine': {'cores': 8, 'placement': 'shard'}}",
     "machine.placement: 'shard' is none of shared, exclusive, quota: did you mean 'shared'?"},
    {"{'machine': {'cores': 8, 'devices': 'gpu=1'}}",
     "machine.devices: 'gpu=1' is no list of devices"},
    {"{'machine': {'cores': 8, 'devices': 2}}", "machine.devices: '2' is no list of devices"},
    {"{'machine': {'cores': 8, 'memory': '4X'}}", "machine.memory: '4X' is no number of bytes"},
    {HEAD "'machin': 1}", "s.json:2: machin: is not a key here: did you mean 'machine'?"},
    {HEAD "'jobs': []}", "s.json:2: jobs: has 0 entries"},
    {HEAD "'jobs': {}}", "s.json:2: jobs: must be a list"},
    {"{'machine': {'cores': 8}}", "s.json:1: there are no jobs"},
    {HEAD "'jobs': [\n{" JOB "},\n{'work': 1, 'speedup':\n 2}]}",
     "s.json:4: jobs[1].speedup: 2 is out of range: 0 to 1"},
    {HEAD "'jobs': [3]}", "s.json:2: jobs[0]: must be an object"},
    {HEAD "'jobs': [{'work': 1}]}", "s.json:2: jobs[0]: speedup is missing"},
    {HEAD "'jobs': [{'speedup': 1}]}", "jobs[0]: work is missing"},
    {HEAD "'jobs': [{" JOB ", 'time': 1}]}", "jobs[0]: time: work is given too"},
    {HEAD "'jobs': [{" JOB ", 'request': 'x'}]}", "jobs[0].request: 'x' is no whole number"},
    {HEAD "'jobs': [{" JOB ", 'request': 9, 'max': 4}]}",
     "jobs[0]: request: 9 is more than max, 4"},
    {HEAD "'jobs': [{" JOB ", 'min': 9, 'max': 4}]}", "jobs[0]: min: 9 is more than max, 4"},
    {HEAD "'jobs': [{" JOB ", 'min': 9, 'request': 4}]}",
     "jobs[0]: request: 4 is less than min, 9"},
    {HEAD "'jobs': [{" JOB ", 'malleability': 'rigid'}]}", "jobs[0]: request is missing: a rigid"},
    {HEAD "'jobs': [{" JOB ", 'requst': 1}]}",
     "jobs[0].requst: is not a key here: did you mean 'request'?"},
    {HEAD "'jobs': [{" JOB ", 'deadline': 1, 'slack': 2}]}",
     "jobs[0]: slack: deadline is given too"},
    {HEAD "'jobs': [{" JOB ", 'arrival': 2, 'deadline': 1}]}", "jobs[0]: deadline: is before"},
    {HEAD "'jobs': [{" JOB ", 'name': 'a\\u001bb'}]}", "jobs[0].name: holds a control"},
    {HEAD "'jobs': [{" JOB ", 'name': 7}]}", "jobs[0].name: must be a string"},
    {HEAD "'jobs': [{" JOB ", '\\u001b[31m': 7}]}", "jobs[0].?[31m: is not a key here"},
    {HEAD "'jobs': [{" JOB ", 'work': {'uniform': [1, 2]}}]}", "s.json:2: duplicate"},
    {HEAD "'jobs': [{'speedup': 1, 'work': {'uniform': [1, 2]}}]}",
     "jobs[0].work: must be a plain"},
    {HEAD "'speedups': {'cnn': {'amdahl': 1}}, 'jobs': [{'work': 1, 'speedup': 'cn'}]}",
     "jobs[0].speedup: 'cn' is neither a parallel fraction (0.95) nor one of the scenario's "
     "speedups: did you mean 'cnn'?"},
    {HEAD "'speedups': {'a': {}}}", "speedups.a: amdahl is missing"},
    {HEAD "'speedups': {'a': {'table': []}}}", "speedups.a.table: has 0 entries"},
    {HEAD "'speedups': {'a': {'table': [1, 0]}}}", "speedups.a.table[1]: must be a speed, above 0"},
    {HEAD "'speedups': {'a': {'table': [1, 1e12]}}}", "speedups.a.table[1]: must be a speed"},
    {HEAD "'speedups': {'a': {'table': [1, 'x']}}}", "speedups.a.table[1]: must be a speed"},
    {HEAD "'speedups': {'a': {'table': [[2, 1]]}}}", "speedups.a.table[0]: points begin with 1"},
    {HEAD "'speedups': {'a': {'table': [[1, 1], [1, 2]]}}}", "speedups.a.table[1]: points begin"},
    {HEAD "'speedups': {'a': {'table': [[1, 1], 5]}}}", "speedups.a.table[1]: must be a list"},
    {HEAD "'speedups': {'none': {'amdahl': 1}}}", "speedups.none: is a word of told_speedup"},
    {HEAD "'defaults': {'arrival': 1}}", "defaults.arrival: has no default: give one for each job"},
    {HEAD "'workload': {}}", "s.json:2: workload: jobs or until is missing"},
    {HEAD "'workload': {'jobs': 2}}", "workload: arrivals is missing"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {}}}", "workload.arrivals: gap is missing"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': 1}}}", "workload: mix is missing"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': {'uniform': [2, 1]}}}}",
     "workload.arrivals.gap.uniform: begins above its end"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': {'unifrm': [2, 1]}}}}",
     "workload.arrivals.gap.unifrm: is not a key here: did you mean 'uniform'?"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': {}}}}", "gap: needs one distribution"},
    {HEAD
     "'workload': {'jobs': 2, 'arrivals': {'gap': {'pareto': {'min': 0, 'max': 1, 'alpha': 1}}}}}",
     "gap.pareto: needs 0 < min <= max"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': {'normal': {'mean': 1}}}}}",
     "normal: sd is missing"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': 1}, 'mix': [\n{" JOB "},\n{'work': 1}]}}",
     "s.json:4: workload.mix[1]: speedup is missing"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': 1}, 'mix': [{" JOB ", 'share': 0}]}}",
     "workload.mix: all shares are 0"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': 1}, 'mix': [{" JOB ", 'arrival': 0}]}}",
     "workload.mix[0].arrival: cannot stand here: workload.arrivals sets it"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': 1}, 'mix': [{" JOB
          ", 'malleability': {'shares': {'rigd': 1}}}]}}",
     "malleability.shares.rigd: 'rigd' is none of rigid, moldable, malleable: did you mean "
     "'rigid'?"},
    {HEAD "'workload': {'jobs': 2, 'arrivals': {'gap': 1}, 'mix': [{" JOB
          ", 'malleability': {'normal': {'mean': 1, 'sd': 1}}}]}}",
     "malleability.normal: words have no such distribution"},
    {HEAD "'trace': {}}", "s.json:2: trace.file: must be a string"},
    {HEAD "'trace': {'file': 'x'}}", "s.json:2: trace: format is missing: csv or swf"},
    {HEAD "'trace': {'file': 'x', 'format': 'xml'}}", "trace.format: 'xml' is none of csv, swf"},
    {HEAD "'jobs': [{" JOB "}], 'observed': {'makespan': 1}}",
     "observed: must hold makespan and mean"},
};

static void bad_scenarios_are_refused_with_file_line_and_field(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct scenario *scenario = NULL;
        struct error err = {0};
        int r = parse_quoted(bad[i].text, &scenario, &err);

        if (r != -EINVAL || !strstr(err.text, bad[i].says) ||
            (strncmp(bad[i].says, "s.json", 6) == 0 &&
             strncmp(err.text, bad[i].says, strlen(bad[i].says)) != 0))
            fail_msg("%s\nsays \"%s\" (%d), expected \"%s\"", bad[i].text, err.text, r,
                     bad[i].says);
        assert_null(scenario);
    }
}

static void a_scenario_that_is_too_large_is_refused(void **state)
{
    size_t size = (8u << 20) + 1;
    char *text = malloc(size + 1);
    struct scenario *scenario = NULL;
    struct error err;

    memset(text, ' ', size);
    text[size] = '\0';
    assert_int_equal(scenario_parse("s.json", text, size, &scenario, &err), -EFBIG);
    assert_non_null(strstr(err.text, "s.json: more than 8 MiB"));
}

static void a_file_that_is_not_there_is_named(void **state)
{
    struct scenario *scenario = NULL;
    struct error err;

    assert_int_equal(scenario_load("/nowhere/s.json", &scenario, &err), -ENOENT);
    assert_string_equal(err.text, "/nowhere/s.json: No such file or directory");
    assert_int_equal(scenario_load("/", &scenario, &err), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(what_is_no_duration_is_refused),
        cmocka_unit_test(values_read_back_from_their_text),
        cmocka_unit_test(amdahl_is_the_formula_rounded),
        cmocka_unit_test(contention_makes_a_peak_and_the_envelope_covers_it),
        cmocka_unit_test(measured_points_are_relative_and_linear_in_between),
        cmocka_unit_test(largest_tables_do_not_overflow),
        cmocka_unit_test(every_field_of_a_job_arrives),
        cmocka_unit_test(what_is_not_said_has_a_default),
        cmocka_unit_test(nothing_is_told_when_asked_for),
        cmocka_unit_test(defaults_give_way_to_a_jobs_own_fields),
        cmocka_unit_test(listed_jobs_come_by_arrival_and_equals_in_their_order),
        cmocka_unit_test(machine_and_observation_are_read),
        cmocka_unit_test(bad_scenarios_are_refused_with_file_line_and_field),
        cmocka_unit_test(a_scenario_that_is_too_large_is_refused),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
