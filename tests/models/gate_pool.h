/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of gate.c: a model of Eigen's thread pool, NonBlockingThreadPool.h and EventCount.h. A
 * closure is a number; Eigen's lock-free word of waiters and signals is three numbers.
 */
#pragma once

struct task { /* as TensorFlow 2.21 has it, and boxed before */
    struct stdfunction function;
    unsigned char more[TASK_INLINE_ENGAGED - sizeof(struct stdfunction)];
    unsigned char engaged;
    unsigned char pad[TASK_INLINE_SIZE - TASK_INLINE_ENGAGED - 1];
};

static void closure_invoke(const void *data)
{
    (void)data;
}

static bool closure_manage(void *to, const void *from, int operation)
{
    (void)to;
    (void)from;
    (void)operation;
    return false;
}

static uint8_t closure_of(const struct stdfunction *f)
{
    return f->invoke == probe_invoke ? CLOSURE_PROBE : (uint8_t)(uintptr_t)f->data[0];
}

static struct stdfunction function_of(uint8_t closure)
{
    if (closure == CLOSURE_PROBE)
        return (struct stdfunction){.manage = probe_manage, .invoke = probe_invoke};
    return (struct stdfunction){
        .data = {(void *)(uintptr_t)closure}, .manage = closure_manage, .invoke = closure_invoke};
}

/* Eigen's queues and its EventCount are not under test, so each of their operations is one step. */
static void fine_step(const char *what)
{
    if (scenario->fine)
        explore_step(what);
}

static void pool_notify(bool all)
{
    fine_step("pool: notify");
    if (all) {
        w.signals = w.prewaits;
        while (w.n_stack > 0)
            w.woken[w.stack[--w.n_stack]] = true;
    } else if (w.signals < w.prewaits) {
        w.signals++;
    } else if (w.n_stack > 0) {
        w.woken[w.stack[--w.n_stack]] = true;
    }
}

static void pool_check_alive(void)
{
    if (w.freed)
        explore_fail("a pool is used after its destruction");
}

/* Eigen: ScheduleWithHint; a worker's own closures go to its own queue, others' to a random one. */
static void pool_schedule_hint(void *pool, struct stdfunction *f, int start, int limit)
{
    unsigned to;

    (void)pool;
    pool_check_alive();
    to = explore_choose("pool: push", self ? 1 : (unsigned)(limit - start));
    to = self ? self->id : (unsigned)start + to;
    if (w.n_queue[to] == QUEUE_MAX)
        explore_fail("a queue is longer than this model's");
    else
        w.queue[to][w.n_queue[to]++] = closure_of(f);
    f->manage = NULL;
    pool_notify(false);
}

static void pool_schedule(void *pool, struct stdfunction *f)
{
    TF_SCHEDULE_WITH_HINT(pool, f, 0, (int)scenario->workers);
}

/* One step: the first closure of the own queue, else of the others. 0: none. */
static uint8_t pool_pop(unsigned first, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned from = (first + i) % scenario->workers;
        uint8_t closure;

        if (w.n_queue[from] == 0)
            continue;
        closure = w.queue[from][0];
        w.n_queue[from]--;
        memmove(w.queue[from], w.queue[from] + 1, QUEUE_MAX - 1);
        w.queue[from][QUEUE_MAX - 1] = 0;
        return closure;
    }
    return 0;
}

static bool pool_empty(void)
{
    for (unsigned i = 0; i < scenario->workers; i++)
        if (w.n_queue[i] > 0)
            return false;
    return true;
}

static struct stdfunction boxes[WORKERS_MAX];
static struct task tasks[WORKERS_MAX]; /* in the frame of WorkerLoop */

static void task_fill(unsigned id, uint8_t closure)
{
    if (closure == 0)
        return;
    if (scenario->mode == TF_STEAL) {
        boxes[id] = function_of(closure);
        *(void **)&tasks[id] = &boxes[id];
        return;
    }
    tasks[id].function = function_of(closure);
    tasks[id].engaged = 1;
}

static uint8_t task_take(unsigned id)
{
    struct stdfunction *f = scenario->mode == TF_STEAL ? *(void **)&tasks[id]
                            : tasks[id].engaged        ? &tasks[id].function
                                                       : NULL;
    uint8_t closure = f ? closure_of(f) : 0;

    memset(&tasks[id], 0, sizeof(tasks[id]));
    memset(&boxes[id], 0, sizeof(boxes[id]));
    return closure;
}

static void pool_get_task(void *pool, void *task)
{
    unsigned id = (unsigned)explore_self();

    (void)pool;
    (void)task;
    explore_step("pool: pop");
    task_fill(id, pool_pop(id, scenario->workers));
}

static void *pool_local_steal(void *ret_task, void *pool)
{
    pool_get_task(pool, ret_task);
    return ret_task;
}

static bool is_set(const void *arg)
{
    return *(const bool *)arg;
}

static void pool_cancel_wait(void)
{
    if (w.prewaits == w.signals)
        w.signals--;
    w.prewaits--;
}

static void pool_commit_wait(unsigned id)
{
    fine_step("pool: commit wait");
    if (w.signals > 0) {
        w.signals--;
        w.prewaits--;
        return;
    }
    w.prewaits--;
    w.woken[id] = false;
    w.stack[w.n_stack++] = (uint8_t)id;
    explore_wait("asleep in the pool", is_set, &w.woken[id]);
    w.woken[id] = false;
}

static bool pool_wait(void *pool, void *waiter, void *task)
{
    unsigned id = (unsigned)explore_self();

    (void)pool;
    (void)waiter;
    (void)task;
    explore_step("pool: prewait");
    w.prewaits++;
    explore_step("pool: looks at all queues");
    if (!pool_empty()) {
        fine_step("pool: cancel wait");
        pool_cancel_wait();
        task_fill(id, pool_pop(id, scenario->workers));
        return true;
    }
    fine_step("pool: blocked");
    w.blocked++;
    if (w.done && w.blocked == scenario->workers) {
        pool_cancel_wait();
        if (!pool_empty()) {
            w.blocked--;
            return true;
        }
        pool_notify(true);
        return false;
    }
    pool_commit_wait(id);
    fine_step("pool: unblocked");
    w.blocked--;
    return true;
}

static bool both_begun(const void *arg)
{
    (void)arg;
    return w.begun[0] && w.begun[1];
}

static void run_closure(unsigned id, uint8_t closure)
{
    unsigned index = closure - 1u;

    if (closure == CLOSURE_PROBE)
        return;
    if (w.acknowledged > 0 && id >= w.acknowledged)
        explore_fail("a worker above the acknowledged limit begins a closure");
    if (w.ran[index] || w.begun[index])
        explore_fail("a closure runs twice");
    w.begun[index] = w.running[id] = true;
    if (scenario->meet && index < 2) {
        w.in_closure[id] = true;
        explore_wait("in a closure that waits for the other", both_begun, NULL);
        w.in_closure[id] = false;
    } else {
        explore_step("in a closure");
    }
    w.ran[index] = true;
    w.running[id] = false;
}

/* Eigen: WorkerLoop; before 2.21 the own queue is emptied without passing the gate. */
static void pool_worker(void *pool, int id)
{
    for (;;) {
        uint8_t closure;

        if (scenario->mode == TF_STEAL) {
            explore_step("pool: own queue");
            task_fill((unsigned)id, pool_pop((unsigned)id, 1));
            if (!*(void **)&tasks[id])
                TF_LOCAL_STEAL(&tasks[id], pool);
        } else {
            TF_MAYBE_GET_TASK(pool, &tasks[id]);
        }
        closure = task_take((unsigned)id);
        if (closure == 0) {
            if (!TF_WAIT_FOR_WORK(pool, NULL, &tasks[id]))
                return;
            closure = task_take((unsigned)id);
        }
        if (closure)
            run_closure((unsigned)id, closure);
    }
}

static bool all_gone(const void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < scenario->workers; i++)
        if (!w.gone[i])
            return false;
    return true;
}

static void pool_destroy(void *pool)
{
    (void)pool;
    fine_step("pool: done");
    w.done = true;
    pool_notify(true);
    explore_wait("joins the workers", all_gone, NULL);
    w.freed = true;
}

static void pool_build_eigen(void *pool, int threads, bool spin, void *env)
{
    (void)pool;
    (void)spin;
    (void)env;
    device.num_threads = threads;
    w.started = true;
    explore_step("pool: has its threads");
}

static void pool_build(void *at, void *env, const void *options, const struct stdstring *name,
                       int threads, bool low_latency, void *allocator)
{
    void **words = at;

    (void)options;
    (void)name;
    (void)allocator;
    TF_EIGEN_C1(&eigen, threads, low_latency, env);
    words[0] = words[1] = &eigen;
    words[2] = &device;
}
