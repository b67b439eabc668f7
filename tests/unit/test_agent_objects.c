/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of this program, which is linked so that ld.so binds them at their first call. */
#include "agent/process/objects.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GUARD_S   30
#define MOMENT_US 200000

static unsigned long answer(const char *name)
{
    (void)name;
    return 42;
}

struct attempt {
    bool taken;
    const char *name;
    const void *real;
};

static sem_t constructing, listing;

static int take_in_program(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct attempt *a = arg;
    struct object o;

    (void)size;
    object_read(&o, info);
    if (!o.dynamic || *o.path)
        return 0;
    sem_post(&listing);
    a->taken = slots_take_later(&o, a->name, a->real, (const void *)answer);
    return 1;
}

static void *control_thread(void *arg)
{
    sem_wait(&constructing);
    each_object(take_in_program, arg);
    return NULL;
}

/* The library's constructor calls this, and has the loader's lock. */
void in_constructor(void);
void in_constructor(void)
{
    struct object o;

    sem_post(&constructing);
    sem_wait(&listing);
    usleep(MOMENT_US); /* the other thread is in the list, and at its slot by now */
    object_at((const void *)answer, &o); /* waits for the list, as each further load does */
}

static void a_load_is_not_held_up_by_a_slot_that_is_not_bound(void **state)
{
    struct attempt a = {.name = "gethostid", .real = dlsym(RTLD_DEFAULT, "gethostid")};
    pthread_t thread;

    (void)state;
    alarm(GUARD_S);
    assert_non_null(a.real);
    assert_int_equal(sem_init(&constructing, 0, 0) | sem_init(&listing, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, control_thread, &a), 0);
    assert_non_null(dlopen(LOADED, RTLD_NOW));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(a.taken);
    assert_int_equal(gethostid(), 42);
}

static void a_slot_that_may_be_bound_elsewhere_is_left_alone(void **state)
{
    struct attempt a = {.name = "getpagesize", .real = (const void *)in_constructor};

    (void)state;
    each_object(take_in_program, &a);
    assert_false(a.taken);
    assert_int_not_equal(getpagesize(), 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_is_not_held_up_by_a_slot_that_is_not_bound),
        cmocka_unit_test(a_slot_that_may_be_bound_elsewhere_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
