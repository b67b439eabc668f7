/* SPDX-License-Identifier: Apache-2.0 */
/*
 * src/kube/core/reconcile.c without memory: each allocation of each run fails once. --wrap of the
 * linker sends the core's own calls of malloc() and friends, and of its arena, here.
 */
#include "kube/view/view.h"
#include "kube_model.h"

#define NEVER INT64_MAX

static int64_t mallocs_left = NEVER, arena_left = NEVER;

static bool fails(int64_t *left)
{
    return *left != NEVER && (*left)-- <= 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__real_core_alloc(struct core *c, size_t count, size_t size);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_core_alloc(struct core *c, size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails(&mallocs_left) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails(&mallocs_left) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails(&mallocs_left) ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails(&mallocs_left) ? NULL : __real_strdup(text);
}

/* The real arena allocates large blocks; this one can fail for each piece. */
void *__wrap_core_alloc(struct core *c, size_t count, size_t size)
{
    if (fails(&arena_left))
        c->error = -ENOMEM;
    return __real_core_alloc(c, count, size);
}

static void scene(struct model *m)
{
    model_node(m, "a", "6", "64Gi");
    model_node(m, "b", "4", "64Gi");
    model_quota(m, "q", "9");
    model_etj(m, "one", "{\"workers\": {\"cpu\": {\"min\": \"500m\", \"max\": 2}}}");
    model_etj(m, "two", "{\"policy\": \"equal\", \"ps\": {\"max\": 2}}");
    m->communication_permille = 400;
}

static void second(struct model *m, int at)
{
    if (at == 12)
        model_other(m, "guest", NULL, "2", 0);
    if (at == 20)
        model_spec(m, "two", "{\"suspend\": true}");
    if (at == 26)
        model_set_phase(json_array_get(m->pods, 0), "Failed");
    model_tick(m);
}

static void assert_same(struct model *a, struct model *b)
{
    assert_true(json_equal(a->pods, b->pods));
    assert_true(json_equal(a->etjs, b->etjs));
    assert_true(json_equal(a->told, b->told));
    assert_true(json_equal(a->events, b->events));
    assert_int_equal(a->wakeup_ns, b->wakeup_ns);
}

/*
 * A look that fails leaves no trace: a cluster whose every look failed first, at each of its
 * allocations, becomes the same as one with enough memory.
 */
static void every_allocation_fails_once(int64_t *left, unsigned least)
{
    struct model starved, fed;
    unsigned failures = 0;

    model_init(&starved);
    model_init(&fed);
    scene(&starved);
    scene(&fed);
    for (int at = 0; at < 40; at++) {
        struct model_world *w = model_view(&starved);

        for (int64_t n = 0;; n++) {
            struct kube_plan plan = {.count = 12345};
            int rc;

            *left = n;
            rc = kube_reconcile(&starved.settings, &w->world, starved.memory, &plan);
            if (rc == 0) {
                *left = NEVER;
                starved.wakeup_ns = plan.wakeup_ns;
                for (size_t i = 0; i < plan.count; i++)
                    model_carry_out(&starved, &plan.actions[i]);
                kube_plan_done(&plan);
                break;
            }
            *left = NEVER;
            failures++;
            assert_int_equal(rc, -ENOMEM);
            assert_int_equal(plan.count, 12345);
        }
        model_world_free(w);
        model_reconcile(&fed, WHOLE_PLAN);
        assert_same(&starved, &fed);
        second(&starved, at);
        second(&fed, at);
    }
    assert_true(failures >= least);
    model_done(&starved);
    model_done(&fed);
}

static void a_look_without_memory_leaves_no_trace(void **state)
{
    (void)state;
    every_allocation_fails_once(&mallocs_left, 40);
}

static void no_piece_of_a_look_is_taken_for_granted(void **state)
{
    (void)state;
    every_allocation_fails_once(&arena_left, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_without_memory_leaves_no_trace),
        cmocka_unit_test(no_piece_of_a_look_is_taken_for_granted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
