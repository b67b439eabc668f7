/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From sysfs to the cores of each job, on the machines in topologies/: a line there is the path of
 * a file and its text.
 */
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/plan/speeds.h"
#include "test_policy_scene.h"
#include "tree.h"

#define JOBS 8

static struct daemon machine;
static struct cores_job cores[JOBS];

static void record_of(const char *name)
{
    char path[256], line[256];
    struct tree tree;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", TOPOLOGIES, name);
    f = fopen(path, "re");
    assert_non_null(f);
    tree_init(&tree, NULL, 0);
    while (fgets(line, sizeof(line), f)) {
        char *text = strchr(line, ' ');

        assert_non_null(text);
        *text++ = 0;
        if (line[0] != '#')
            tree_write(&tree, line, text);
    }
    fclose(f);
    memset(&machine, 0, sizeof(machine));
    assert_int_equal(topology_read(tree.fd, &machine.topology), 0);
    machine.cpus = machine.usable = machine.topology.online;
    tree_done(&tree);
}

static void expect_machine(unsigned cpus, unsigned core_count, unsigned nodes, unsigned slow)
{
    assert_int_equal(machine.topology.cpus, cpus);
    assert_int_equal(machine.topology.cores, core_count);
    assert_int_equal(machine.topology.nodes, nodes);
    assert_int_equal(machine.topology.slow, slow);
}

/* Jobs with cores of their own, as tided decides about them; one of each user. */
static void decide_for(uint32_t jobs)
{
    static struct policy_user users[JOBS];
    struct policy_spec spec = choice("equal");
    struct cores_machine cpus;

    memset(cores, 0, sizeof(cores));
    scene_init(&scene, machine.topology.cpus, 0);
    scene.snapshot.speed_count = speeds_of_machine(&machine, scene.snapshot.speeds);
    scene.snapshot.users = users;
    scene.snapshot.user_count = jobs;
    for (uint32_t j = 0; j < jobs; j++) {
        struct policy_job *job = scene_job(&scene);

        users[j] = (struct policy_user){.id = j, .weight = 100, .most_mcpu = POLICY_UNLIMITED};
        job->fenced = true;
        job->user = j;
    }
    decide_into(&outcome, &spec);
    for (uint32_t j = 0; j < jobs; j++) {
        cores[j].exclusive = true;
        cores[j].count = (unsigned)(policy_decision_total(&outcome.plan, j, POLICY_MCPU) / 1000);
        memcpy(cores[j].of_speed, outcome.decisions[j].of_speed, sizeof(cores[j].of_speed));
    }
    speeds_of_cpus(&machine, &cpus);
    cores_assign(&cpus, cores, jobs);
}

static uint32_t speed_of(uint32_t j)
{
    uint32_t sum = 0;

    for (int c = cpuset_next(&cores[j].assigned, 0); c >= 0;
         c = cpuset_next(&cores[j].assigned, (unsigned)c + 1))
        sum += machine.topology.speed[c];
    return sum;
}

/* Whether a core with several hardware threads has several owners. */
static bool shares_a_core(uint32_t jobs)
{
    uint32_t owner[CPUSET_MAX_CPUS] = {0};

    for (uint32_t j = 0; j < jobs; j++)
        for (int c = cpuset_next(&cores[j].assigned, 0); c >= 0;
             c = cpuset_next(&cores[j].assigned, (unsigned)c + 1)) {
            uint32_t *of = &owner[machine.topology.core[c]];

            if (*of && *of != j + 1)
                return true;
            *of = j + 1;
        }
    return false;
}

static void cpus_alike_are_one_speed(void **state)
{
    struct policy_speed speeds[POLICY_SPEEDS_MAX];

    record_of("virtual-xeon.txt");
    expect_machine(2, 2, 1, 0);
    assert_int_equal(speeds_of_machine(&machine, speeds), 1);
    assert_int_equal(speeds[0].cores, 2);
    assert_int_equal(speeds[0].permille, 1000);
}

static void a_hybrid_laptop_is_shared_by_speed(void **state)
{
    record_of("i7-1370p.txt");
    expect_machine(20, 14, 1, 8);
    decide_for(3);
    assert_int_equal(scene.snapshot.speed_count, 2);
    assert_int_equal(scene.snapshot.speeds[0].cores, 12);
    assert_int_equal(scene.snapshot.speeds[1].cores, 8);
    assert_int_equal(scene.snapshot.speeds[1].permille, 780);
    for (uint32_t j = 0; j < 3; j++) {
        assert_int_equal(cores[j].of_speed[0], 4); /* two whole fast cores */
        assert_in_range(speed_of(j), 5560, 6340);
    }
    assert_false(shares_a_core(3));
}

/* Where the fast cores belong to another user's daemon, the slow ones are the machine. */
static void only_usable_cpus_count(void **state)
{
    struct policy_speed speeds[POLICY_SPEEDS_MAX];

    record_of("i7-1370p.txt");
    cpuset_zero(&machine.usable);
    for (unsigned c = 12; c < 20; c++)
        cpuset_add(&machine.usable, c);
    assert_int_equal(speeds_of_machine(&machine, speeds), 1);
    assert_int_equal(speeds[0].cores, 8);
    assert_int_equal(speeds[0].permille, 1000);
}

static void each_job_of_a_server_has_a_numa_node(void **state)
{
    record_of("epyc-7451.txt");
    expect_machine(96, 48, 8, 0);
    decide_for(8);
    for (uint32_t j = 0; j < 8; j++) {
        int first = cpuset_next(&cores[j].assigned, 0);

        assert_int_equal(cpuset_count(&cores[j].assigned), 12);
        for (int c = first; c >= 0; c = cpuset_next(&cores[j].assigned, (unsigned)c + 1))
            assert_int_equal(topology_node_of(&machine.topology, (unsigned)c),
                             topology_node_of(&machine.topology, (unsigned)first));
    }
    assert_false(shares_a_core(8));
}

static void the_reason_counts_slow_cores(void **state)
{
    static struct job job;

    snprintf(job.wanted.reason, sizeof(job.wanted.reason), "equal share");
    speeds_explain(&job);
    assert_string_equal(job.wanted.reason, "equal share");
    job.wanted.of_speed[0] = 2;
    job.wanted.of_speed[1] = 1;
    speeds_explain(&job);
    assert_string_equal(job.wanted.reason, "equal share; 1 of its cores is slow");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_alike_are_one_speed),
        cmocka_unit_test(a_hybrid_laptop_is_shared_by_speed),
        cmocka_unit_test(only_usable_cpus_count),
        cmocka_unit_test(each_job_of_a_server_has_a_numa_node),
        cmocka_unit_test(the_reason_counts_slow_cores),
    };

    return cmocka_run_group_tests_name("speeds of cores", tests, NULL, NULL);
}
