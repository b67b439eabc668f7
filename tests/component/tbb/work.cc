/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with oneTBB. Each line on stdin is a command, and its answer one line; at the end of
 * stdin it ends. Prints "ready" before it has used the library.
 *
 * "teams N": N loops; "teams LEAST MOST", the threads that took part in one. "busy SECONDS": loops
 * all the time. "check N": the same sum N times, by parallel_deterministic_reduce; "equal" or
 * "different". "throws N": N loops, from each of which an exception comes out; "caught N". "own N":
 * has a limit of its own, 0: no more. "enqueue N": tasks that nobody waits for; "enqueued N".
 * "fork": a child has loops and ends; "child STATUS". "load PATH": loads a library, calls its
 * limit(); "limit N". "wait": two tasks wait for each other; "waited".
 *
 * ASKS: it asks for the limit itself and prints "limit N" before "ready". LIBRARY: such a library.
 */
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/parallel_reduce.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using tbb::global_control;

#if defined(ASKS) || defined(LIBRARY)
extern "C" int limit(void)
{
    return (int)global_control::active_value(global_control::max_allowed_parallelism);
}
#endif

#ifndef LIBRARY

/* Pieces that sleep, so that each thread that may takes part, whatever the number of cores. */
static int team()
{
    std::set<std::thread::id> seen;
    std::mutex lock;

    tbb::parallel_for(
        0, 48,
        [&](int) {
            usleep(1000);
            std::lock_guard<std::mutex> guard(lock);
            seen.insert(std::this_thread::get_id());
        },
        tbb::simple_partitioner());
    return (int)seen.size();
}

static void teams(int loops)
{
    int least = 1 << 20, most = 0;

    for (int i = 0; i < loops; i++) {
        int now = team();

        least = now < least ? now : least;
        most = now > most ? now : most;
    }
    printf("teams %d %d\n", least, most);
}

static void busy(double seconds)
{
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);

    while (std::chrono::steady_clock::now() < end)
        team();
    printf("was busy\n");
}

static double sum()
{
    return tbb::parallel_deterministic_reduce(
        tbb::blocked_range<int>(0, 200000, 500), 0.0,
        [](const tbb::blocked_range<int> &range, double value) {
            for (int i = range.begin(); i < range.end(); i++)
                value += 1.0 / (i + 1);
            return value;
        },
        std::plus<double>());
}

static void check(int times)
{
    double first = sum();
    bool equal = true;

    while (times-- > 0) {
        double again = sum();

        equal = equal && memcmp(&again, &first, sizeof(first)) == 0;
    }
    printf(equal ? "equal\n" : "different\n");
}

static void throws(int loops)
{
    int caught = 0;

    for (int i = 0; i < loops; i++) {
        try {
            tbb::parallel_for(0, 1000, [i](int n) {
                if (n == i % 1000)
                    throw std::runtime_error("on purpose");
            });
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    printf("caught %d\n", caught);
}

static void enqueue(int tasks)
{
    std::atomic<int> left(tasks);
    tbb::task_arena arena;

    for (int i = 0; i < tasks; i++)
        arena.enqueue([&] { left--; });
    while (left > 0)
        usleep(1000);
    printf("enqueued %d\n", tasks);
}

static void wait_for_each_other()
{
    std::mutex lock;
    std::condition_variable here;
    int count = 0;

    tbb::parallel_for(
        0, 2,
        [&](int) {
            std::unique_lock<std::mutex> guard(lock);
            count++;
            here.notify_all();
            here.wait(guard, [&] { return count == 2; });
        },
        tbb::simple_partitioner());
    printf("waited\n");
}

static void forked()
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    usleep(50000); /* without the agent, too, a child may find locks of workers taken */
    child = fork();
    if (child == 0)
        _exit(team() > 0 ? 0 : 1);
    waitpid(child, &status, 0);
    printf("child %d\n", status);
}

static void load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW);
    int (*limit)(void) = handle ? (int (*)(void))dlsym(handle, "limit") : nullptr;

    printf("limit %d\n", limit ? limit() : -1);
}

int main()
{
    std::unique_ptr<global_control> own;
    char line[512], path[500];
    double seconds;
    int n;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, nullptr, _IOLBF, 0);
#ifdef ASKS
    printf("limit %d\n", limit());
#endif
    printf("ready\n");
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "teams %d", &n) == 1) {
            teams(n);
        } else if (sscanf(line, "busy %lf", &seconds) == 1) {
            busy(seconds);
        } else if (sscanf(line, "check %d", &n) == 1) {
            check(n);
        } else if (sscanf(line, "throws %d", &n) == 1) {
            throws(n);
        } else if (sscanf(line, "own %d", &n) == 1) {
            own.reset(n ? new global_control(global_control::max_allowed_parallelism, (size_t)n)
                        : nullptr);
            printf("own %d\n", n);
        } else if (sscanf(line, "enqueue %d", &n) == 1) {
            enqueue(n);
        } else if (sscanf(line, "load %499s", path) == 1) {
            load(path);
        } else if (strncmp(line, "wait", 4) == 0) {
            wait_for_each_other();
        } else if (strncmp(line, "fork", 4) == 0) {
            forked();
        }
    }
    return 0;
}

#endif
