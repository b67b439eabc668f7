/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/diagnose.h"
#include "cli/doctor/observe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A TensorFlow program on processors 0-1, busy with two threads, not started by tide. */
static struct observation tensorflow(void)
{
    struct observation seen = {
        .pid = 17,
        .comm = "python",
        .command = "python train.py",
        .threads = 12,
        .elapsed_ns = 1000000000,
        .running_milli = 1900,
        .waiting_milli = 50,
        .have_waiting = true,
        .quota_mcpu = CGROUP_NO_QUOTA,
        .quota_version = CGROUP_V1,
        .tide = OBSERVED_TIDE_UNKNOWN,
    };

    cpuset_parse("0-1", &seen.cpus);
    seen.runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded = true;
    return seen;
}

static struct observation tensorflow_job(void)
{
    struct observation seen = tensorflow();

    seen.runtimes.r[PROC_RUNTIME_AGENT].loaded = true;
    seen.handler = true;
    seen.tide = OBSERVED_TIDE_JOB;
    seen.job_malleable = true;
    strcpy(seen.job_name, "cnn");
    return seen;
}

static const struct finding *find(const struct diagnosis *d, enum finding_code code)
{
    for (size_t i = 0; i < d->n; i++) {
        if (d->finding[i].code == code)
            return &d->finding[i];
    }
    return NULL;
}

static const char *fix_of(const struct diagnosis *d, enum finding_code code)
{
    const struct finding *finding = find(d, code);

    return finding ? finding->fix : "no such finding";
}

static void a_steered_job_that_fits_is_healthy(void **state)
{
    struct observation seen = tensorflow_job();
    struct diagnosis d;

    diagnose(&seen, &d);
    assert_true(d.healthy);
    assert_int_equal(d.n, 0);
    assert_int_equal(d.allowed_mcpu, 2000);
    assert_int_equal(d.recommended, 2);
}

static void a_program_without_the_agent_is_healthy_with_a_hint(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    diagnose(&seen, &d);
    assert_true(d.healthy);
    assert_string_equal(fix_of(&d, FINDING_NO_AGENT), "tide run -- python train.py");
}

static void more_runnable_threads_than_cores_is_a_problem(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    seen.running_milli = 2000;
    seen.waiting_milli = 6000;
    diagnose(&seen, &d);
    assert_false(d.healthy);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "tide run -- python train.py");
    assert_non_null(strstr(find(&d, FINDING_OVERSUBSCRIBED)->text, "8.0 threads"));
    assert_non_null(strstr(find(&d, FINDING_OVERSUBSCRIBED)->text, "2 cores"));
    assert_non_null(strstr(find(&d, FINDING_OVERSUBSCRIBED)->text, "75 %"));
    assert_null(find(&d, FINDING_NO_AGENT)); /* the same advice once */
    assert_null(find(&d, FINDING_CROWDED));
}

static void the_bound_is_a_quarter_and_half_a_thread_above(void **state)
{
    assert_false(diagnose_oversubscribed(0, 1000));
    assert_false(diagnose_oversubscribed(1499, 1000));
    assert_true(diagnose_oversubscribed(1500, 1000));
    assert_false(diagnose_oversubscribed(10000, 8000));
    assert_true(diagnose_oversubscribed(10001, 8000));
    assert_true(diagnose_oversubscribed(UINT32_MAX, 1024000));
}

static void a_quota_counts_like_fewer_cores(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    cpuset_parse("0-7", &seen.cpus);
    seen.running_milli = 1500;
    seen.waiting_milli = 1000;
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_OVERSUBSCRIBED));
    seen.quota_mcpu = 1500;
    diagnose(&seen, &d);
    assert_non_null(find(&d, FINDING_OVERSUBSCRIBED));
    assert_int_equal(d.allowed_mcpu, 1500);
    assert_int_equal(d.recommended, 1);
    seen.quota_mcpu = 300;
    diagnose(&seen, &d);
    assert_int_equal(d.recommended, 1);
}

static void a_jobs_fix_goes_through_the_daemon(void **state)
{
    struct observation seen = tensorflow_job();
    struct diagnosis d;

    seen.waiting_milli = 6000;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "tide set cnn --threads 2");
    seen.job_pinned = true;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "tide set cnn --auto");
}

static void a_program_with_the_agent_is_told_by_the_signal_when_no_daemon_has_it(void **state)
{
    struct observation seen = tensorflow_job();
    struct diagnosis d;

    seen.pid = 17;
    seen.tide = OBSERVED_TIDE_UNREACHABLE;
    seen.waiting_milli = 6000;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "tide signal 17 2");
    seen.handler = false; /* it would be killed */
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "");
}

static void a_runtime_that_is_not_malleable_is_sized_at_its_start(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    seen.runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded = false;
    seen.runtimes.r[PROC_RUNTIME_LIGHTGBM].loaded = true;
    seen.runtimes.r[PROC_RUNTIME_GOMP].loaded = true;
    seen.waiting_milli = 6000;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED),
                        "env OMP_NUM_THREADS=2 python train.py");
    assert_non_null(strstr(find(&d, FINDING_NOT_MALLEABLE)->text, "gomp, lightgbm: moldable"));
    seen.runtimes.r[PROC_RUNTIME_TORCH].loaded = true;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "tide run -- python train.py");
}

static void a_fix_sizes_each_runtime_by_its_own_variable(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    seen.runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded = false;
    seen.runtimes.r[PROC_RUNTIME_RAYON].loaded = true;
    seen.runtimes.r[PROC_RUNTIME_JVM].loaded = true;
    seen.runtimes.r[PROC_RUNTIME_GO].loaded = true;
    seen.waiting_milli = 6000;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED),
                        "env RAYON_NUM_THREADS=2 JDK_JAVA_OPTIONS=-XX:ActiveProcessorCount=2 "
                        "python train.py");
    assert_non_null(strstr(find(&d, FINDING_NOT_MALLEABLE)->text, "rayon, java: moldable"));
    assert_non_null(strstr(find(&d, FINDING_NOT_MALLEABLE)->text, "go: rigid"));
}

static void each_runtime_has_a_kind_and_a_reason(void **state)
{
    for (int i = 0; i < PROC_RUNTIME_MAX; i++) {
        const char *why = NULL;
        enum malleability m = diagnose_runtime((enum proc_runtime)i, &why);

        assert_in_range(strlen(why), 5, 100);
        assert_non_null(malleability_name(m));
        assert_int_equal(m == MALLEABLE, diagnose_malleable((enum proc_runtime)i));
        /* None is malleable in every program: where not is said for all of them. */
        assert_int_equal(m == MALLEABLE, diagnose_exceptions((enum proc_runtime)i) != NULL);
    }
}

static void threads_that_wait_awake_are_spinning(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    seen.runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded = false;
    seen.runtimes.r[PROC_RUNTIME_GOMP].loaded = true;
    seen.have_spin = true;
    seen.spin_samples = 400;
    seen.spin_permille = 600;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_SPINNING), "tide run -- python train.py");
    assert_non_null(strstr(find(&d, FINDING_SPINNING)->text, "60 %"));
    assert_true(d.healthy);
    seen.tide = OBSERVED_TIDE_JOB; /* it was told to spin */
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_SPINNING),
                        "env OMP_WAIT_POLICY=passive python train.py");
    seen.spin_permille = 199;
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_SPINNING));
    seen.spin_permille = 900;
    seen.spin_samples = 49;
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_SPINNING));
    seen.spin_samples = 400;
    seen.have_spin = false;
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_SPINNING));
}

static void a_program_without_known_runtimes_gets_no_made_up_fix(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    seen.runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded = false;
    seen.waiting_milli = 6000;
    diagnose(&seen, &d);
    assert_string_equal(fix_of(&d, FINDING_OVERSUBSCRIBED), "");
    assert_null(find(&d, FINDING_NOT_MALLEABLE));
}

static void waiting_behind_others_is_crowding(void **state)
{
    struct observation seen = tensorflow();
    struct diagnosis d;

    seen.running_milli = 1000;
    seen.waiting_milli = 900;
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_OVERSUBSCRIBED));
    assert_string_equal(fix_of(&d, FINDING_CROWDED), "tide run -- python train.py");
    assert_false(d.healthy);

    seen.running_milli = 100; /* nearly idle, so its speed means nothing */
    seen.waiting_milli = 90;
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_CROWDED));

    seen = tensorflow_job(); /* sharing among jobs is no fault of this one */
    seen.running_milli = 1000;
    seen.waiting_milli = 900;
    diagnose(&seen, &d);
    assert_non_null(find(&d, FINDING_CROWDED));
    assert_true(d.healthy);
}

static struct observation throttled(const char *group)
{
    struct observation seen = tensorflow();

    seen.quota_mcpu = 1500;
    snprintf(seen.quota_path, sizeof(seen.quota_path), "%s", group);
    seen.throttle = (struct cgroup_throttle){10, 8, 300000000};
    return seen;
}

static void throttling_names_the_command_of_whoever_set_the_quota(void **state)
{
    static const struct {
        const char *group;
        enum cgroup_version version;
        const char *fix;
    } cases[] = {
        {"/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", CGROUP_V1,
         "docker update --cpus 2 0123456789ab"},
        {"/system.slice/docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
         ".scope",
         CGROUP_V2, "docker update --cpus 2 0123456789ab"},
        {"/kubepods.slice/pod7/"
         "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
         CGROUP_V2, "kubectl edit pod POD    # resources.limits.cpu: \"2\""},
        {"/system.slice/train.service", CGROUP_V2,
         "systemctl set-property --runtime train.service CPUQuota=200%"},
        {"/tide-0-7/j1", CGROUP_V1, "tide set JOB --min 2"},
        {"/batch", CGROUP_V1, "echo 200000 > /sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us"},
        {"/batch", CGROUP_V2, "echo '200000 100000' > /sys/fs/cgroup/batch/cpu.max"},
        {"/a/$(id)", CGROUP_V2, "echo '200000 100000' > /sys/fs/cgroup'/a/$(id)'/cpu.max"},
        {"/a/x\\x2d;id.scope", CGROUP_V2,
         "systemctl set-property --runtime 'x\\x2d;id.scope' CPUQuota=200%"},
        {"/a/--host=b.scope", CGROUP_V1,
         "echo 200000 > /sys/fs/cgroup/cpu/a/--host=b.scope/cpu.cfs_quota_us"},
    };
    struct diagnosis d;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct observation seen = throttled(cases[i].group);

        seen.quota_version = cases[i].version;
        diagnose(&seen, &d);
        assert_false(d.healthy);
        assert_string_equal(fix_of(&d, FINDING_THROTTLED), cases[i].fix);
        assert_non_null(strstr(find(&d, FINDING_THROTTLED)->text, "8 of 10 periods"));
        assert_non_null(strstr(find(&d, FINDING_THROTTLED)->text, "300 ms"));
    }
}

static void no_text_is_cut_within_a_character(void **state)
{
    char group[CGROUP_PATH_MAX] = "/";

    for (int shift = 0; shift < 2; shift++) {
        struct observation seen;
        struct diagnosis d;

        strcpy(group, shift ? "/x" : "/");
        while (strlen(group) + 2 < sizeof(group))
            strcat(group, "é");
        seen = throttled(group);
        diagnose(&seen, &d);
        if (find(&d, FINDING_THROTTLED)->text[DIAGNOSE_TEXT_MAX - 2] == '?')
            return;
    }
    fail();
}

static void the_quota_asked_for_is_what_it_wants_and_can_use(void **state)
{
    struct observation seen = throttled("/batch");
    struct diagnosis d;

    cpuset_parse("0-7", &seen.cpus);
    seen.running_milli = 1000;
    seen.waiting_milli = 3020;
    diagnose(&seen, &d);
    assert_non_null(strstr(fix_of(&d, FINDING_THROTTLED), "echo 400000 "));
    cpuset_parse("0-2", &seen.cpus);
    diagnose(&seen, &d);
    assert_non_null(strstr(fix_of(&d, FINDING_THROTTLED), "echo 300000 "));
    seen.running_milli = seen.waiting_milli = 0;
    diagnose(&seen, &d);
    assert_non_null(strstr(fix_of(&d, FINDING_THROTTLED), "echo 100000 "));
}

static void a_rare_throttle_is_no_finding(void **state)
{
    struct observation seen = throttled("/batch");
    struct diagnosis d;

    seen.throttle = (struct cgroup_throttle){100, 4, 1000};
    diagnose(&seen, &d);
    assert_null(find(&d, FINDING_THROTTLED));
    seen.throttle.throttled = 5;
    diagnose(&seen, &d);
    assert_non_null(find(&d, FINDING_THROTTLED));
}

static void an_agent_that_nobody_talks_to_is_noted(void **state)
{
    struct observation seen = tensorflow_job();
    struct diagnosis d;

    seen.tide = OBSERVED_TIDE_UNREACHABLE;
    diagnose(&seen, &d);
    assert_true(d.healthy);
    assert_non_null(strstr(find(&d, FINDING_DISCONNECTED)->text, "no daemon answers"));
    seen.agent_disabled = true;
    diagnose(&seen, &d);
    assert_non_null(strstr(find(&d, FINDING_DISCONNECTED)->text, "TIDE_DISABLE"));

    seen = tensorflow_job();
    seen.handler = false;
    seen.job_malleable = false;
    strcpy(seen.job_note, "tensorflow: unknown version 9.9");
    diagnose(&seen, &d);
    assert_non_null(find(&d, FINDING_NO_HANDLER));
    assert_non_null(strstr(find(&d, FINDING_NOT_MALLEABLE)->text, "unknown version 9.9"));
    assert_true(d.healthy);
}

/* Every combination of what can be seen: never more findings than there is room for. */
static void no_combination_overflows(void **state)
{
    for (unsigned bits = 0; bits < 1u << 9; bits++) {
        struct observation seen = tensorflow();
        struct diagnosis d;
        size_t problems = 0;

        seen.runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded = bits & 1;
        seen.runtimes.r[PROC_RUNTIME_AGENT].loaded = bits & 2;
        seen.runtimes.r[PROC_RUNTIME_GOMP].loaded = bits & 4;
        seen.waiting_milli = bits & 8 ? 900000 : 1000;
        seen.throttle.periods = seen.throttle.throttled = bits & 16 ? 10 : 0;
        seen.handler = bits & 32;
        seen.agent_disabled = bits & 64;
        seen.tide = (enum observed_tide)((bits >> 7) % 3);
        seen.job_malleable = bits & 256;
        seen.have_spin = true;
        seen.spin_samples = seen.spin_permille = 1000;
        for (int i = PROC_RUNTIME_GOMP; i < PROC_RUNTIME_MAX; i++)
            seen.runtimes.r[i].loaded = bits & 4;
        memset(seen.command, 'x', sizeof(seen.command) - 1);
        seen.command_cut = true;
        diagnose(&seen, &d);
        assert_in_range(d.n, 0, DIAGNOSE_FINDINGS_MAX);
        for (size_t i = 0; i < d.n; i++) {
            problems += d.finding[i].severity == FINDING_PROBLEM;
            assert_non_null(finding_name(d.finding[i].code));
            assert_int_not_equal(d.finding[i].text[0], '\0');
        }
        assert_int_equal(d.healthy, problems == 0);
    }
}

static void a_command_line_is_quoted_for_a_shell(void **state)
{
    static const char args[] = "python\0-c\0print('a b')\0\0--lr=1e-3";
    char text[64];

    assert_int_equal(diagnose_quote(args, sizeof(args), text, sizeof(text)), 0);
    assert_string_equal(text, "python -c 'print('\\''a b'\\'')' '' --lr=1e-3");
    assert_int_equal(diagnose_quote("", 0, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    assert_int_equal(diagnose_quote(args, sizeof(args), text, 24), 1); /* cut between arguments */
    assert_string_equal(text, "python -c");
    for (size_t size = 1; size < sizeof(text); size++) {
        diagnose_quote(args, sizeof(args), text, size);
        assert_in_range(strlen(text), 0, size - 1);
    }
}

static void a_containers_id_is_64_digits(void **state)
{
    char id[65];

    assert_int_equal(diagnose_container("/docker/0123", id), -ENOENT);
    assert_int_equal(diagnose_container("", id), -ENOENT);
    assert_int_equal(
        diagnose_container("/libpod-"
                           "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                           "0.scope",
                           id),
        -ENOENT);
    assert_int_equal(
        diagnose_container("/libpod-"
                           "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                           ".scope",
                           id),
        0);
    assert_int_equal(strlen(id), 64);
}

static void use_counts_born_threads_whole_and_reused_numbers_anew(void **state)
{
    struct proc_thread first[] = {{.tid = 1, .cpu_ns = 100, .wait_ns = 10},
                                  {.tid = 3, .cpu_ns = 500, .wait_ns = 50},
                                  {.tid = 4, .cpu_ns = 900, .wait_ns = 90}};
    struct proc_thread second[] = {{.tid = 1, .cpu_ns = 150, .wait_ns = 30},
                                   {.tid = 2, .cpu_ns = 7, .wait_ns = 3},
                                   {.tid = 4, .cpu_ns = 5, .wait_ns = 1}};
    struct proc_threads before = {first, 3}, after = {second, 3}, none = {0};
    struct thread_use use = observe_use(&before, &after);

    assert_int_equal(use.cpu_ns, 50 + 7 + 5);
    assert_int_equal(use.wait_ns, 20 + 3 + 1);
    use = observe_use(&before, &none);
    assert_int_equal(use.cpu_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steered_job_that_fits_is_healthy),
        cmocka_unit_test(a_program_without_the_agent_is_healthy_with_a_hint),
        cmocka_unit_test(more_runnable_threads_than_cores_is_a_problem),
        cmocka_unit_test(the_bound_is_a_quarter_and_half_a_thread_above),
        cmocka_unit_test(a_quota_counts_like_fewer_cores),
        cmocka_unit_test(a_jobs_fix_goes_through_the_daemon),
        cmocka_unit_test(a_program_with_the_agent_is_told_by_the_signal_when_no_daemon_has_it),
        cmocka_unit_test(a_runtime_that_is_not_malleable_is_sized_at_its_start),
        cmocka_unit_test(a_fix_sizes_each_runtime_by_its_own_variable),
        cmocka_unit_test(each_runtime_has_a_kind_and_a_reason),
        cmocka_unit_test(threads_that_wait_awake_are_spinning),
        cmocka_unit_test(a_program_without_known_runtimes_gets_no_made_up_fix),
        cmocka_unit_test(waiting_behind_others_is_crowding),
        cmocka_unit_test(no_text_is_cut_within_a_character),
        cmocka_unit_test(throttling_names_the_command_of_whoever_set_the_quota),
        cmocka_unit_test(the_quota_asked_for_is_what_it_wants_and_can_use),
        cmocka_unit_test(a_rare_throttle_is_no_finding),
        cmocka_unit_test(an_agent_that_nobody_talks_to_is_noted),
        cmocka_unit_test(no_combination_overflows),
        cmocka_unit_test(a_command_line_is_quoted_for_a_shell),
        cmocka_unit_test(a_containers_id_is_64_digits),
        cmocka_unit_test(use_counts_born_threads_whole_and_reused_numbers_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
