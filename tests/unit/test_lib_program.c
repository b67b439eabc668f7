/* SPDX-License-Identifier: Apache-2.0 */
/* libtide's program side against a table that this executable exports, as the agent would. */
#include "tide/tide.h"

#include "agent/program_api.h"
#include "proto/proto.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct agent_state state;
static int frozen;
static agent_change_fn change_fn;
static void *change_arg;
static struct {
    uint64_t done, total;
    char unit[PROTO_SHORT_MAX];
} progress;
static uint32_t declared;
static uint32_t reported;

static void peer_get(struct agent_state *ret_state)
{
    *ret_state = state;
}

static int peer_set_local(uint32_t intra, uint32_t inter)
{
    state.target = intra ? intra : 8;
    state.source = intra ? PROTO_SOURCE_API : PROTO_SOURCE_LIMIT;
    state.generation++;
    return frozen ? 1 : 0;
}

static int peer_freeze(int on)
{
    if (!on && frozen == 0)
        return -EINVAL;
    frozen += on ? 1 : -1;
    return 0;
}

static int peer_on_change(agent_change_fn fn, void *arg)
{
    change_fn = fn;
    change_arg = arg;
    return 0;
}

static int peer_progress(uint64_t done, uint64_t total, const char *unit)
{
    progress.done = done;
    progress.total = total;
    strncpy(progress.unit, unit, sizeof(progress.unit) - 1);
    return 0;
}

static int peer_declare(uint32_t max)
{
    declared = max;
    return 0;
}

static int peer_report_active(uint32_t active)
{
    if (!declared)
        return -EINVAL;
    if (active > declared)
        return -ERANGE;
    reported = active;
    return 0;
}

static uint64_t request_ended;

static uint64_t peer_request_begin(void)
{
    return 77;
}

static void peer_request_end(uint64_t began)
{
    request_ended = began;
}

__attribute__((visibility("default"))) struct agent_program_api tide_agent_program_api = {
    .size = sizeof(struct agent_program_api),
    .get = peer_get,
    .set_local = peer_set_local,
    .freeze = peer_freeze,
    .on_change = peer_on_change,
    .progress = peer_progress,
    .declare = peer_declare,
    .report_active = peer_report_active,
    .request_begin = peer_request_begin,
    .request_end = peer_request_end,
};

static int reset(void **fixture)
{
    state = (struct agent_state){.max = 8, .target = 8, .active = 8, .allowed_mcpu = 7500};
    frozen = 0;
    declared = 0;
    reported = 0;
    memset(&progress, 0, sizeof(progress));
    return tide_on_change(NULL, NULL);
}

static void get_passes_every_field_on(void **fixture)
{
    struct tide_state now = {.size = sizeof(now)};

    state = (struct agent_state){1, 2, 3, 4, PROTO_SOURCE_SIGNAL, 1, UINT64_MAX};
    assert_int_equal(tide_get(&now), 0);
    assert_int_equal(now.size, sizeof(now));
    assert_int_equal(now.max, 1);
    assert_int_equal(now.target, 2);
    assert_int_equal(now.active, 3);
    assert_int_equal(now.allowed_mcpu, 4);
    assert_int_equal(now.source, TIDE_SOURCE_SIGNAL);
    assert_int_equal(now.frozen, 1);
    assert_true(now.generation == UINT64_MAX);
}

static void get_refuses_a_struct_without_its_size(void **fixture)
{
    struct tide_state now = {0};

    assert_int_equal(tide_get(&now), -EINVAL);
    now.size = sizeof(now) - 1;
    assert_int_equal(tide_get(&now), -EINVAL);
    assert_int_equal(now.target, 0);
}

static void get_clears_what_a_newer_caller_knows_and_writes_no_further(void **fixture)
{
    struct {
        struct tide_state state;
        unsigned char newer[8];
        unsigned char beyond[8];
    } caller;

    memset(&caller, 0xa5, sizeof(caller));
    caller.state.size = sizeof(caller.state) + sizeof(caller.newer);
    assert_int_equal(tide_get(&caller.state), 0);
    assert_int_equal(caller.state.size, sizeof(caller.state) + sizeof(caller.newer));
    assert_int_equal(caller.state.target, 8);
    for (size_t i = 0; i < sizeof(caller.newer); i++) {
        assert_int_equal(caller.newer[i], 0);
        assert_int_equal(caller.beyond[i], 0xa5);
    }
}

static void set_checks_its_range_before_the_agent_sees_it(void **fixture)
{
    uint64_t before = state.generation;

    assert_int_equal(tide_set(TIDE_THREADS_MAX + 1, 0), -ERANGE);
    assert_int_equal(tide_set(1, TIDE_THREADS_MAX + 1), -ERANGE);
    assert_int_equal(tide_set(0, 1), -ERANGE);
    assert_true(state.generation == before);
    assert_int_equal(tide_set(TIDE_THREADS_MAX, 1), 0);
    assert_int_equal(state.target, TIDE_THREADS_MAX);
    assert_int_equal(tide_set(0, 0), 0);
    assert_int_equal(state.source, PROTO_SOURCE_LIMIT);
}

static void freezes_nest_and_a_set_in_between_is_pending(void **fixture)
{
    assert_int_equal(tide_thaw(), -EINVAL);
    assert_int_equal(tide_freeze(), 0);
    assert_int_equal(tide_freeze(), 0);
    assert_int_equal(tide_set(3, 0), TIDE_PENDING);
    assert_int_equal(tide_thaw(), 0);
    assert_int_equal(tide_thaw(), 0);
    assert_int_equal(tide_thaw(), -EINVAL);
}

static void progress_names_a_unit_when_the_program_does_not(void **fixture)
{
    assert_int_equal(tide_progress(7, 9, NULL), 0);
    assert_string_equal(progress.unit, "units");
    assert_int_equal(tide_progress(UINT64_MAX, 0, "images"), 0);
    assert_string_equal(progress.unit, "images");
    assert_true(progress.done == UINT64_MAX && progress.total == 0);
}

static void declared_threads_bound_the_active_ones(void **fixture)
{
    assert_int_equal(tide_active(1), -EINVAL);
    assert_int_equal(tide_declare(TIDE_THREADS_MAX + 1), -ERANGE);
    assert_int_equal(tide_declare(4), 0);
    assert_int_equal(tide_active(5), -ERANGE);
    assert_int_equal(tide_active(4), 0);
    assert_int_equal(reported, 4);
}

static void only_a_request_that_began_is_ended(void **fixture)
{
    assert_true(tide_request_begin() == 77);
    tide_request_end(77);
    assert_true(request_ended == 77);
    tide_request_end(0);
    assert_true(request_ended == 77);
}

static void an_older_agent_lacks_only_what_it_lacks(void **fixture)
{
    struct tide_state now = {.size = sizeof(now)};

    tide_agent_program_api.size = offsetof(struct agent_program_api, declare);
    assert_int_equal(tide_declare(4), -EOPNOTSUPP);
    assert_int_equal(tide_active(4), -EOPNOTSUPP);
    assert_true(tide_request_begin() == 0);
    request_ended = 0;
    tide_request_end(5);
    assert_true(request_ended == 0);
    assert_int_equal(tide_get(&now), 0);
    assert_int_equal(tide_progress(1, 2, NULL), 0);
    tide_agent_program_api.size = sizeof(struct agent_program_api);
    assert_int_equal(declared, 0);
}

/* The arguments of a callback, and a gate that holds it. */
struct seen {
    atomic_uint calls;
    atomic_uint target;
    atomic_bool inside;
    atomic_bool hold;
};

static void record(const struct tide_state *now, void *arg)
{
    struct seen *seen = arg;

    atomic_store(&seen->target, now->target);
    atomic_store(&seen->inside, true);
    while (atomic_load(&seen->hold))
        usleep(1000);
    atomic_store(&seen->inside, false);
    atomic_fetch_add(&seen->calls, 1);
}

static void change(uint32_t target)
{
    state.target = target;
    state.generation++;
    change_fn(&state, change_arg);
}

static void callback_gets_the_state_until_it_is_removed(void **fixture)
{
    struct seen seen = {0};

    assert_int_equal(tide_on_change(record, &seen), 0);
    change(5);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.target, 5);
    assert_int_equal(tide_on_change(NULL, NULL), 0);
    change(6);
    assert_int_equal(seen.calls, 1);
}

static void replace_itself(const struct tide_state *now, void *arg)
{
    assert_int_equal(tide_on_change(record, arg), 0);
}

static void callback_may_replace_itself(void **fixture)
{
    struct seen seen = {0};

    assert_int_equal(tide_on_change(replace_itself, &seen), 0);
    change(2);
    assert_int_equal(seen.calls, 0);
    change(3);
    assert_int_equal(seen.calls, 1);
}

static void *agent_thread(void *arg)
{
    change(4);
    return NULL;
}

static void *removing_thread(void *arg)
{
    assert_int_equal(tide_on_change(NULL, NULL), 0);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

static void removing_waits_for_a_running_callback(void **fixture)
{
    struct seen seen = {.hold = true};
    atomic_bool removed = false;
    pthread_t agent, remover;

    assert_int_equal(tide_on_change(record, &seen), 0);
    assert_int_equal(pthread_create(&agent, NULL, agent_thread, NULL), 0);
    while (!atomic_load(&seen.inside))
        usleep(1000);
    assert_int_equal(pthread_create(&remover, NULL, removing_thread, &removed), 0);
    usleep(20000);
    assert_false(atomic_load(&removed));
    atomic_store(&seen.hold, false);
    pthread_join(remover, NULL);
    assert_int_equal(seen.calls, 1);
    pthread_join(agent, NULL);
}

static void a_child_forked_during_a_callback_starts_without_and_can_set_one(void **fixture)
{
    struct seen seen = {.hold = true};
    pthread_t agent;
    int status;
    pid_t pid;

    assert_int_equal(tide_on_change(record, &seen), 0);
    assert_int_equal(pthread_create(&agent, NULL, agent_thread, NULL), 0);
    while (!atomic_load(&seen.inside))
        usleep(1000);
    pid = fork();
    if (pid == 0) {
        alarm(30); /* the lock's owner does not exist here: a copy of it would hang us */
        atomic_store(&seen.hold, false);
        change(1);
        if (seen.calls != 0 || tide_on_change(record, &seen) != 0)
            _exit(1);
        change(2);
        _exit(seen.calls == 1 && seen.target == 2 ? 0 : 1);
    }
    atomic_store(&seen.hold, false);
    pthread_join(agent, NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void every_documented_result_has_a_sentence_of_its_own(void **fixture)
{
    static const int results[] = {0,           -ENOENT, -EOPNOTSUPP, -ECONNREFUSED,
                                  -ECONNRESET, -ESRCH,  -EACCES,     -ETIMEDOUT,
                                  -EAGAIN,     -ERANGE, -EINVAL,     1};

    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        assert_string_not_equal(tide_strerror(results[i]), tide_strerror(-9999));
    assert_string_equal(tide_version(), TIDE_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(get_passes_every_field_on, reset),
        cmocka_unit_test_setup(get_refuses_a_struct_without_its_size, reset),
        cmocka_unit_test_setup(get_clears_what_a_newer_caller_knows_and_writes_no_further, reset),
        cmocka_unit_test_setup(set_checks_its_range_before_the_agent_sees_it, reset),
        cmocka_unit_test_setup(freezes_nest_and_a_set_in_between_is_pending, reset),
        cmocka_unit_test_setup(progress_names_a_unit_when_the_program_does_not, reset),
        cmocka_unit_test_setup(declared_threads_bound_the_active_ones, reset),
        cmocka_unit_test_setup(only_a_request_that_began_is_ended, reset),
        cmocka_unit_test_setup(an_older_agent_lacks_only_what_it_lacks, reset),
        cmocka_unit_test_setup(callback_gets_the_state_until_it_is_removed, reset),
        cmocka_unit_test_setup(callback_may_replace_itself, reset),
        cmocka_unit_test_setup(removing_waits_for_a_running_callback, reset),
        cmocka_unit_test_setup(a_child_forked_during_a_callback_starts_without_and_can_set_one,
                               reset),
        cmocka_unit_test(every_documented_result_has_a_sentence_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
