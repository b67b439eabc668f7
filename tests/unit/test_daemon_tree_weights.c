/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of groups in different parts of the tree, against a division from the root downwards. */
#include "daemon/confine/tree_weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define STD         1024 /* a default group of cgroup v1 */
#define LEN(a)      (sizeof(a) / sizeof((a)[0]))
#define BALANCE_MAX 64

struct forest {
    struct tree_group group[BALANCE_MAX];
    size_t n;
};

static uint32_t add(struct forest *f, uint32_t parent, uint32_t weight, uint32_t wanted)
{
    f->group[f->n] =
        (struct tree_group){.parent = parent, .weight = weight, .wanted = wanted, .active = true};
    return (uint32_t)f->n++;
}

/* Divides a CPU that all groups want as the kernel does: level by level. */
static void divide(const struct forest *f, uint32_t parent, double whole, double ret[BALANCE_MAX])
{
    double sum = 0;

    for (size_t i = 0; i < f->n; i++)
        if (f->group[i].parent == parent && f->group[i].active)
            sum += f->group[i].weight;
    for (uint32_t i = 0; i < f->n; i++)
        if (f->group[i].parent == parent && f->group[i].active) {
            ret[i] = whole * f->group[i].weight / sum;
            divide(f, i, ret[i], ret);
        }
}

/* Writes our group's weight as the kernel takes it; 0 if there is nothing to write. */
static double place(struct forest *f, uint32_t ours)
{
    double weight;

    tree_parts(f->group, f->n);
    weight = tree_our_weight(f->group, f->n);
    if (weight > 0)
        f->group[ours].weight = weight < 2 ? 2 : (uint32_t)(weight + 0.5);
    tree_parts(f->group, f->n);
    return weight;
}

/* Largest distance of a job from its part, of 1. */
static double worst(const struct forest *f)
{
    double got[BALANCE_MAX] = {0}, sum = 0, wanted = 0, result = 0;

    divide(f, TREE_ROOT, 1, got);
    for (size_t i = 0; i < f->n; i++)
        if (f->group[i].wanted && f->group[i].active) {
            sum += got[i];
            wanted += f->group[i].wanted;
        }
    for (size_t i = 0; i < f->n; i++)
        if (f->group[i].wanted && f->group[i].active) {
            double off = fabs(got[i] / (sum * f->group[i].wanted / wanted) - 1);

            result = off > result ? off : result;
        }
    return result;
}

static uint32_t add_ours(struct forest *f, uint32_t weight)
{
    uint32_t i = add(f, TREE_ROOT, weight, 0);

    f->group[i].ours = true;
    return i;
}

static void a_job_of_two_cores_weighs_as_much_as_a_container_of_two(void **state)
{
    struct forest f = {0};
    uint32_t docker = add(&f, TREE_ROOT, STD, 0), ours = add_ours(&f, 2 * STD);

    add(&f, docker, 2 * STD, 2);
    add(&f, docker, 4 * STD, 4);
    add(&f, ours, 2 * STD, 2);
    place(&f, ours);
    assert_int_equal(f.group[ours].weight, 341); /* 1024 * 2 / 6 */
    assert_true(worst(&f) < 0.002);
}

static void a_busy_container_of_nobody_takes_its_part_of_dockers(void **state)
{
    struct forest f = {0};
    uint32_t docker = add(&f, TREE_ROOT, STD, 0), ours = add_ours(&f, 2 * STD), other;

    add(&f, docker, STD, 1);
    other = add(&f, docker, STD, 0);
    add(&f, ours, STD, 1);
    place(&f, ours);
    assert_int_equal(f.group[ours].weight, STD / 2);
    assert_true(worst(&f) < 0.002);
    f.group[other].active = false; /* idle: docker's whole part is the job's */
    place(&f, ours);
    assert_int_equal(f.group[ours].weight, STD);
    assert_true(worst(&f) < 0.002);
}

static void a_job_that_waits_leaves_its_part_to_its_siblings_not_to_ours(void **state)
{
    struct forest f = {0};
    uint32_t docker = add(&f, TREE_ROOT, STD, 0), ours = add_ours(&f, STD), idle;

    add(&f, docker, STD, 1);
    idle = add(&f, docker, 3 * STD, 3);
    f.group[idle].active = false;
    add(&f, ours, STD, 1);
    f.group[add(&f, ours, STD, 1)].active = false;
    place(&f, ours);
    assert_int_equal(f.group[ours].weight, STD);
    assert_true(worst(&f) < 0.002);
}

static void slices_between_count_with_all_their_services(void **state)
{
    struct forest f = {0};
    uint32_t slice = add(&f, TREE_ROOT, 2 * STD, 0), ours = add_ours(&f, STD);
    uint32_t inner = add(&f, slice, STD, 0);

    add(&f, slice, 3 * STD, 0); /* a busy service */
    add(&f, inner, 5 * STD, 5);
    add(&f, ours, 5 * STD, 5);
    place(&f, ours);
    assert_int_equal(f.group[ours].weight, STD / 2); /* a quarter of the slice */
    assert_true(worst(&f) < 0.002);
}

static void nothing_is_written_where_there_is_nothing_to_compare(void **state)
{
    struct forest f = {0};
    uint32_t docker = add(&f, TREE_ROOT, STD, 0), ours = add_ours(&f, 7 * STD), job;

    job = add(&f, ours, STD, 1);
    add(&f, docker, STD, 0);
    assert_true(place(&f, ours) == 0);
    add(&f, docker, STD, 1);
    f.group[job].active = false;
    assert_true(place(&f, ours) == 0);
    assert_int_equal(f.group[ours].weight, 7 * STD);
}

static void parents_that_disagree_are_told_by_the_jobs_in_them(void **state)
{
    struct forest f = {0};
    uint32_t docker = add(&f, TREE_ROOT, STD, 0), podman = add(&f, TREE_ROOT, STD, 0);
    uint32_t one = add(&f, docker, STD, 1), three = add(&f, podman, 3 * STD, 3);

    tree_parts(f.group, f.n);
    assert_int_equal(tree_permille(f.group, f.n, one), 2000);
    assert_int_equal(tree_permille(f.group, f.n, three), 667);
    f.group[podman].weight = 3 * STD;
    tree_parts(f.group, f.n);
    assert_int_equal(tree_permille(f.group, f.n, one), 1000);
    assert_int_equal(tree_permille(f.group, f.n, three), 1000);
}

static void a_child_that_is_active_makes_its_parents_so(void **state)
{
    struct forest f = {0};
    uint32_t docker = add(&f, TREE_ROOT, STD, 0), ours = add_ours(&f, STD);

    add(&f, docker, STD, 1);
    add(&f, ours, STD, 1);
    f.group[docker].active = f.group[ours].active = false;
    assert_true(place(&f, ours) == STD);
}

/* Whatever lies beside and between: every job within 2 % of its part, as the kernel divides. */
static void any_forest_with_one_parent_is_right_within_two_percent(void **state)
{
    unsigned compared = 0;

    srand(7);
    for (unsigned round = 0; round < 20000; round++) {
        struct forest f = {0};
        uint32_t top = add(&f, TREE_ROOT, (uint32_t)(STD + rand() % (8 * STD)), 0), parent = top;
        uint32_t ours = add_ours(&f, STD);

        for (int depth = rand() % 3; depth > 0; depth--) {
            for (int k = rand() % 3; k > 0; k--)
                f.group[add(&f, parent, (uint32_t)(2 + rand() % (4 * STD)), 0)].active = rand() % 2;
            parent = add(&f, parent, (uint32_t)(STD + rand() % STD), 0);
        }
        for (int k = rand() % 8; k >= 0; k--) {
            uint32_t cores = 1 + (uint32_t)rand() % 16;

            f.group[add(&f, rand() % 2 ? ours : parent, cores * STD, cores)].active = rand() % 4;
        }
        f.group[add(&f, parent, (uint32_t)(2 + rand() % (2 * STD)), 0)].active = rand() % 2;
        if (place(&f, ours) < 25) /* rounding to whole units alone is 2 % then */
            continue;
        compared++;
        assert_true(worst(&f) < 0.02);
        for (size_t i = 0; i < f.n; i++)
            if (f.group[i].wanted && f.group[i].active)
                assert_true(labs((long)tree_permille(f.group, f.n, i) - 1000) <= 20);
    }
    assert_true(compared > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_of_two_cores_weighs_as_much_as_a_container_of_two),
        cmocka_unit_test(a_busy_container_of_nobody_takes_its_part_of_dockers),
        cmocka_unit_test(a_job_that_waits_leaves_its_part_to_its_siblings_not_to_ours),
        cmocka_unit_test(slices_between_count_with_all_their_services),
        cmocka_unit_test(nothing_is_written_where_there_is_nothing_to_compare),
        cmocka_unit_test(parents_that_disagree_are_told_by_the_jobs_in_them),
        cmocka_unit_test(a_child_that_is_active_makes_its_parents_so),
        cmocka_unit_test(any_forest_with_one_parent_is_right_within_two_percent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
