/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/observe.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/visible.h"
#include "cli/doctor/runtimes.h"
#include "cli/doctor/spin.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "process-unreadable"

#define LOOKS             20   /* looks at the threads' states during one observation */
#define MANY_THREADS      1000 /* of so many each look takes long: one at the end must do */
#define SIGNAL_OFFSET_STD 7    /* SIGRTMIN+7, see TIDE_SIGNAL */

struct thread_use observe_use(const struct proc_threads *before, const struct proc_threads *after)
{
    struct thread_use use = {0};
    size_t b = 0;

    for (size_t a = 0; a < after->n; a++) {
        const struct proc_thread *now = &after->thread[a];

        while (b < before->n && before->thread[b].tid < now->tid)
            b++;
        use.cpu_ns += now->cpu_ns;
        use.wait_ns += now->wait_ns;
        /* A smaller count belongs to a new thread with a recycled id. */
        if (b < before->n && before->thread[b].tid == now->tid &&
            before->thread[b].cpu_ns <= now->cpu_ns && before->thread[b].wait_ns <= now->wait_ns) {
            use.cpu_ns -= before->thread[b].cpu_ns;
            use.wait_ns -= before->thread[b].wait_ns;
        }
    }
    return use;
}

static uint32_t milli(uint64_t part_ns, uint64_t whole_ns)
{
    return whole_ns ? (uint32_t)(part_ns * 1000 / whole_ns) : 0;
}

static uint32_t allowed_mcpu(const struct cpuset *cpus, uint32_t quota_mcpu)
{
    uint32_t mcpu = cpuset_count(cpus) * 1000;

    return quota_mcpu < mcpu ? quota_mcpu : mcpu;
}

/* ---- one process ---- */

static unsigned count_runnable(const struct proc_threads *threads)
{
    unsigned n = 0;

    for (size_t i = 0; i < threads->n; i++)
        n += threads->thread[i].state == 'R';
    return n;
}

static bool counts_waiting(const struct proc_threads *threads)
{
    for (size_t i = 0; i < threads->n; i++) {
        if (threads->thread[i].wait_ns)
            return true;
    }
    return false;
}

/* Sums what threads were switched against their will; the name of those that ended is gone. */
static uint64_t count_involuntary(int root, pid_t pid, const struct proc_threads *threads)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < threads->n; i++) {
        struct proc_switches switches;

        if (proc_read_switches(root, pid, threads->thread[i].tid, &switches) == 0)
            sum += switches.involuntary;
    }
    return sum;
}

static int compare_group(const void *a, const void *b)
{
    const struct proc_thread *x = a, *y = b;

    return strcmp(x->comm, y->comm);
}

/* Groups threads by their names; sorts @threads, which is not used afterwards. */
static void group_threads(struct proc_threads *threads, struct observation *seen)
{
    for (size_t i = 0; i < threads->n; i++)
        visible(threads->thread[i].comm);
    qsort(threads->thread, threads->n, sizeof(*threads->thread), compare_group);
    for (size_t i = 0, n; i < threads->n; i += n) {
        size_t at = DIAGNOSE_GROUPS_MAX;

        for (n = 1; i + n < threads->n &&
                    strcmp(threads->thread[i].comm, threads->thread[i + n].comm) == 0;)
            n++;
        for (; at > 0 && seen->group[at - 1].n < n; at--)
            if (at < DIAGNOSE_GROUPS_MAX)
                seen->group[at] = seen->group[at - 1];
        if (at == DIAGNOSE_GROUPS_MAX)
            continue;
        memcpy(seen->group[at].comm, threads->thread[i].comm, sizeof(seen->group[at].comm));
        seen->group[at].n = (uint32_t)n;
    }
}

static void end_spin(struct spin **spin, int root, pid_t pid, struct observation *seen)
{
    struct spin_result result;

    seen->have_spin = *spin;
    spin_end(TAKE_PTR(*spin), root, pid, &result);
    seen->spin_samples = result.samples;
    if (result.samples)
        seen->spin_permille = (uint32_t)((uint64_t)result.waiting * 1000 / result.samples);
}

/* Looks at the threads again and again; the first and the last look give the times. */
static int sample(int root, pid_t pid, unsigned duration_ms, struct observation *seen,
                  uint32_t *ret_runnable_milli)
{
    _cleanup_(proc_threads_done) struct proc_threads first = {0}, last = {0};
    struct spin *spin = NULL;
    uint64_t from_ns, involuntary = 0, runnable = 0;
    struct thread_use use = {0};
    unsigned looks = LOOKS;
    int r = proc_read_threads(root, pid, &first);

    if (r < 0)
        return r;
    looks = first.n > MANY_THREADS ? 1 : LOOKS;
    involuntary = count_involuntary(root, pid, &first);
    spin_begin(&first, &spin); /* without it, doctor says that it is unknown */
    from_ns = clock_now_ns();
    for (unsigned look = 1; r == 0 && look <= looks; look++) {
        uint64_t next_ns = from_ns + duration_ms * NS_PER_MS * look / looks;
        uint64_t now_ns = clock_now_ns();

        if (next_ns > now_ns)
            poll(NULL, 0, (int)((next_ns - now_ns) / NS_PER_MS));
        proc_threads_done(&last);
        r = proc_read_threads(root, pid, &last);
        if (r == 0)
            runnable += count_runnable(&last);
    }
    seen->elapsed_ns = clock_now_ns() - from_ns;
    end_spin(&spin, root, pid, seen);
    if (r < 0)
        return r;
    use = observe_use(&first, &last);
    seen->threads = (uint32_t)last.n;
    seen->have_waiting = counts_waiting(&last);
    seen->running_milli = milli(use.cpu_ns, seen->elapsed_ns);
    seen->waiting_milli = milli(use.wait_ns, seen->elapsed_ns);
    seen->involuntary = count_involuntary(root, pid, &last);
    seen->involuntary -= involuntary < seen->involuntary ? involuntary : seen->involuntary;
    *ret_runnable_milli = (uint32_t)(runnable * 1000 / looks);
    group_threads(&last, seen);
    return 0;
}

/*
 * States are a rougher measure than the kernel's wait time. They serve where the kernel counts
 * none, and while a quota stops the group: the kernel's clock then stands still.
 */
static void complete_waiting(struct observation *seen, uint32_t runnable_milli)
{
    if ((!seen->have_waiting || seen->throttle.throttled) &&
        runnable_milli > seen->running_milli + seen->waiting_milli)
        seen->waiting_milli = runnable_milli - seen->running_milli;
}

static int resize_signal(int root, pid_t pid)
{
    _cleanup_free_ char *text = NULL;
    int offset = SIGNAL_OFFSET_STD;

    if (proc_read_environ(root, pid, "TIDE_SIGNAL", &text) == 0)
        offset = atoi(text);
    return offset > 0 && SIGRTMIN + offset <= SIGRTMAX ? SIGRTMIN + offset : 0;
}

/* Texts that another user chose: they give no orders to a terminal, and are UTF-8 for --json. */
static void show_texts(struct observation *seen)
{
    char command[DIAGNOSE_COMMAND_MAX];

    memcpy(command, seen->command, sizeof(command));
    visible(seen->command);
    seen->command_changed = strcmp(command, seen->command) != 0;
    visible(seen->comm);
    visible(seen->quota_path);
}

/* Reads the facts that do not change during the sample. */
static int observe_static(int root, const struct cgroup *cg, pid_t pid, struct observation *seen)
{
    _cleanup_free_ char *args = NULL;
    _cleanup_free_ char *disabled = NULL;
    struct cgroup_limits limits;
    struct proc_stat stat;
    struct proc_status status;
    size_t len = 0;
    int r = proc_read_stat(root, pid, &stat);

    if (r == 0 && proc_is_kernel(root, pid)) {
        seen->pid = stat.parent;
        return stat.state == 'Z' ? -ECHILD : -ENOEXEC;
    }
    if (r == 0)
        r = proc_read_status(root, pid, &status);
    if (r == 0)
        r = runtimes_read(root, pid, &seen->runtimes);
    if (r == 0)
        r = proc_get_affinity_all(root, pid, &seen->cpus, NULL);
    if (r == 0)
        r = cgroup_read_limits(cg, pid, &limits);
    if (r < 0)
        return r;
    seen->pid = pid;
    memcpy(seen->comm, stat.comm, sizeof(seen->comm));
    seen->quota_mcpu = limits.quota_mcpu;
    memcpy(seen->quota_path, limits.quota_path, sizeof(seen->quota_path));
    seen->quota_version = cgroup_version_cpu(cg);
    seen->handler = proc_has_handler(&status, resize_signal(root, pid));
    seen->agent_disabled =
        proc_read_environ(root, pid, "TIDE_DISABLE", &disabled) == 0 && strcmp(disabled, "1") == 0;
    if (proc_read_cmdline(root, pid, &args, &len) == 0)
        seen->command_cut = diagnose_quote(args, len, seen->command, sizeof(seen->command)) > 0;
    show_texts(seen);
    return 0;
}

int observe_process(int root, const struct cgroup *cg, pid_t pid, unsigned duration_ms,
                    struct observation *ret, struct error *err)
{
    struct cgroup_throttle before, after;
    uint32_t runnable_milli = 0;
    int r;

    memset(ret, 0, sizeof(*ret));
    r = observe_static(root, cg, pid, ret);
    if (r == 0)
        r = cgroup_read_throttle(cg, pid, &before);
    if (r == 0)
        r = sample(root, pid, duration_ms, ret, &runnable_milli);
    if (r == 0)
        r = cgroup_read_throttle(cg, pid, &after);
    if (r == -ECHILD)
        return error_set(err, -ESRCH, "process %d has ended; its parent %d has not taken note yet",
                         (int)pid, (int)ret->pid);
    if (r == -ENOEXEC)
        return error_set(err, -ESRCH, "process %d is a part of the kernel and runs no program",
                         (int)pid);
    if (r == -ESRCH)
        return error_set(err, r, "there is no process %d, or it has just ended", (int)pid);
    if (r == -EACCES || r == -EPERM)
        return error_set(err, -EACCES, "process %d belongs to another user", (int)pid);
    if (r < 0)
        return error_set(err, r, "process %d: %s", (int)pid, strerror(-r));
    ret->throttle = (struct cgroup_throttle){
        .periods = after.periods - before.periods,
        .throttled = after.throttled - before.throttled,
        .throttled_ns = after.throttled_ns - before.throttled_ns,
    };
    complete_waiting(ret, runnable_milli);
    return 0;
}

/* ---- all processes ---- */

struct watched {
    pid_t pid;
    uint64_t start;
    struct proc_threads threads;
};

static void watched_free(struct watched *watched, size_t n)
{
    for (size_t i = 0; i < n; i++)
        proc_threads_done(&watched[i].threads);
    free(watched);
}

/* First look: @uid's processes that have threads to count. */
static int watch_all(int root, uid_t uid, struct watched **ret, size_t *ret_n)
{
    _cleanup_free_ pid_t *pids = NULL;
    struct watched *watched;
    size_t n_pids, n = 0;
    int r = proc_list(root, &pids, &n_pids);

    if (r < 0)
        return r;
    watched = calloc(n_pids, sizeof(*watched));
    if (!watched)
        return -ENOMEM;
    for (size_t i = 0; i < n_pids; i++) {
        struct proc_status status;
        struct proc_stat stat;

        if (pids[i] == getpid() || proc_read_status(root, pids[i], &status) < 0 ||
            (uid != 0 && status.uid != uid) || proc_read_stat(root, pids[i], &stat) < 0 ||
            proc_read_threads(root, pids[i], &watched[n].threads) < 0)
            continue;
        watched[n].pid = pids[i];
        watched[n].start = stat.start;
        n++;
    }
    *ret = watched;
    *ret_n = n;
    return 0;
}

/* Second look. Returns 0, or -ESRCH when the process is gone. */
static int finish_row(int root, const struct cgroup *cg, const struct watched *before,
                      uint64_t elapsed_ns, struct observed_row *ret)
{
    _cleanup_(proc_threads_done) struct proc_threads now = {0};
    struct cgroup_limits limits;
    struct proc_stat stat;
    struct thread_use use;
    struct cpuset cpus;
    int r = proc_read_stat(root, before->pid, &stat);

    if (r == 0 && stat.start != before->start)
        r = -ESRCH;
    if (r == 0)
        r = proc_read_threads(root, before->pid, &now);
    if (r == 0)
        r = proc_get_affinity_all(root, before->pid, &cpus, NULL);
    if (r == 0)
        r = cgroup_read_limits(cg, before->pid, &limits);
    if (r < 0)
        return r;
    use = observe_use(&before->threads, &now);
    ret->pid = before->pid;
    memcpy(ret->comm, stat.comm, sizeof(ret->comm));
    visible(ret->comm);
    ret->threads = (uint32_t)now.n;
    ret->waiting_milli = milli(use.wait_ns, elapsed_ns);
    ret->demand_milli = milli(use.cpu_ns, elapsed_ns) + ret->waiting_milli;
    ret->allowed_mcpu = allowed_mcpu(&cpus, limits.quota_mcpu);
    return 0;
}

/* Largest excess of demand first, then the lowest pid. */
static int compare_rows(const void *a, const void *b)
{
    const struct observed_row *x = a, *y = b;
    int64_t excess_x = (int64_t)x->demand_milli - x->allowed_mcpu;
    int64_t excess_y = (int64_t)y->demand_milli - y->allowed_mcpu;

    if (excess_x != excess_y)
        return excess_x < excess_y ? 1 : -1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

int observe_survey(int root, const struct cgroup *cg, uid_t uid, unsigned duration_ms,
                   struct observed_row *rows, size_t max, size_t *ret_n)
{
    _cleanup_free_ struct observed_row *all = NULL;
    struct watched *watched;
    size_t n_watched, n = 0;
    uint64_t from_ns = clock_now_ns();
    uint64_t elapsed_ns;
    int r = watch_all(root, uid, &watched, &n_watched);

    if (r < 0)
        return r;
    all = calloc(n_watched + 1, sizeof(*all));
    if (!all) {
        watched_free(watched, n_watched);
        return -ENOMEM;
    }
    poll(NULL, 0, (int)duration_ms);
    elapsed_ns = clock_now_ns() - from_ns;
    for (size_t i = 0; i < n_watched; i++)
        n += finish_row(root, cg, &watched[i], elapsed_ns, &all[n]) == 0;
    watched_free(watched, n_watched);
    qsort(all, n, sizeof(*all), compare_rows);
    *ret_n = n < max ? n : max;
    memcpy(rows, all, *ret_n * sizeof(*rows));
    return 0;
}
