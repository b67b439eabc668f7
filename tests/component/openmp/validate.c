/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constructs of OpenMP whose results do not depend on the number of threads, one function each.
 * "go N" on stdin: all of them N times; prints "sum HASH SMALLEST LARGEST", the hash of all results
 * and the teams that it met, or "broken NAME" for one whose result is not what it was first.
 *
 * NO_CLAUSE leaves out num_threads(n). DATA_OF_THREADS adds threadprivate variables, copyin and
 * the first thread's own code.
 */
#include <omp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define N 997

static long in[N], out[N];
static int smallest = 1 << 30, largest;

static uint64_t hash_of(const long *values, int n)
{
    uint64_t hash = 14695981039346656037u;

    for (int i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)values[i]) * 1099511628211u;
    return hash;
}

static uint64_t reductions(void)
{
    long sum = 0, product = 1, least = N, most = -N, bits = 0, parity = 0;
    int any = 0, all = 1;

#pragma omp parallel for reduction(+ : sum) reduction(min : least) reduction(max : most)
    for (int i = 0; i < N; i++) {
        sum += in[i];
        least = in[i] < least ? in[i] : least;
        most = in[i] > most ? in[i] : most;
    }
#pragma omp parallel for reduction(* : product) reduction(| : bits) reduction(^ : parity)
    for (int i = 0; i < N; i++) {
        product *= (in[i] | 1) & 0xff;
        bits |= in[i];
        parity ^= in[i];
    }
#pragma omp parallel for reduction(|| : any) reduction(&& : all) schedule(dynamic, 3)
    for (int i = 0; i < N; i++) {
        any = any || in[i] == 17;
        all = all && in[i] < 2 * N;
    }
    return hash_of((long[]){sum, product, least, most, bits, parity, any, all}, 8);
}

struct pair {
    long value, at;
};

static struct pair better(struct pair a, struct pair b)
{
    return a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b;
}
#pragma omp declare reduction(better                                                               \
                              : struct pair                                                        \
                              : omp_out = better(omp_out, omp_in))                                 \
    initializer(omp_priv = (struct pair){-1, 1L << 40})

static uint64_t own_reductions(void)
{
    struct pair best = {-1, 1L << 40};
    long counts[7] = {0};

#pragma omp parallel for reduction(better : best) reduction(+ : counts)
    for (int i = 0; i < N; i++) {
        best = better(best, (struct pair){in[i], i});
        counts[in[i] % 7]++;
    }
    return hash_of(counts, 7) + (uint64_t)(best.value * 1000 + best.at);
}

#define SCHEDULED(name, ...)                                                                       \
    static uint64_t name(void)                                                                     \
    {                                                                                              \
        memset(out, 0, sizeof(out));                                                               \
        _Pragma(#__VA_ARGS__) for (int i = 0; i < N; i++) out[i] += in[i] * (i + 1);               \
        return hash_of(out, N);                                                                    \
    }
SCHEDULED(static_schedule, omp parallel for schedule(static))
SCHEDULED(static_chunks, omp parallel for schedule(static, 5))
SCHEDULED(dynamic_schedule, omp parallel for schedule(dynamic))
SCHEDULED(monotonic_chunks, omp parallel for schedule(monotonic : dynamic, 4))
SCHEDULED(guided_schedule, omp parallel for schedule(guided, 2))
SCHEDULED(runtime_schedule, omp parallel for schedule(runtime))
SCHEDULED(auto_schedule, omp parallel for schedule(auto))
SCHEDULED(simd_loop, omp parallel for simd)
SCHEDULED(conditional, omp parallel for if (in[0] > 1000000))

static uint64_t collapsed(void)
{
    long last = 0;

    memset(out, 0, sizeof(out));
#pragma omp parallel for collapse(2) lastprivate(last)
    for (int i = 0; i < 31; i++)
        for (int j = 0; j < 32; j++) {
            out[i * 32 + j] = in[i] + j;
            last = i * j;
        }
    return hash_of(out, N) + (uint64_t)last;
}

static uint64_t ordered(void)
{
    long n = 0;

    memset(out, 0, sizeof(out));
#pragma omp parallel for ordered schedule(dynamic, 2)
    for (int i = 0; i < 200; i++) {
        long value = in[i] * 3;

#pragma omp ordered
        out[n++] = value;
    }
    return hash_of(out, N);
}

static uint64_t doacross(void)
{
    static long grid[6][6];

    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            grid[i][j] = in[i * 6 + j];
#pragma omp parallel for ordered(2) schedule(static, 1)
    for (int i = 1; i < 6; i++)
        for (int j = 1; j < 6; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
            grid[i][j] += (grid[i - 1][j] * 3 + grid[i][j - 1]) % 1000;
#pragma omp ordered depend(source)
        }
    return hash_of(&grid[0][0], 36);
}

static uint64_t sections_and_singles(void)
{
    long done[4] = {0}, shared = 0, bad = 0, given = 42;

#pragma omp parallel sections
    {
#pragma omp section
        done[0] = 1;
#pragma omp section
        done[1] = 2;
#pragma omp section
        done[2] = 3;
    }
#pragma omp parallel reduction(+ : bad)
    {
        long mine = 0;

#pragma omp single copyprivate(mine)
        mine = 42;
        bad += mine != 42;
#pragma omp barrier
#pragma omp single nowait
        done[3] = 4;
#pragma omp sections firstprivate(given)
        {
#pragma omp section
            shared = given;
#pragma omp section
            given = 0;
        }
    }
    return hash_of((long[]){done[0], done[1], done[2], done[3], shared, bad}, 6);
}

static uint64_t exclusion(void)
{
    long critical = 0, atomic = 0, locked = 0, captured = 0;
    omp_lock_t lock;

    omp_init_lock(&lock);
#pragma omp parallel for schedule(dynamic, 7)
    for (int i = 0; i < N; i++) {
        long before;

#pragma omp critical(one)
        critical = (critical + in[i]) % 100003;
#pragma omp atomic
        atomic += in[i];
        omp_set_lock(&lock);
        locked++;
        omp_unset_lock(&lock);
#pragma omp atomic capture
        before = captured++;
        out[before] = 1;
    }
    omp_destroy_lock(&lock);
    return hash_of((long[]){critical, atomic, locked, captured}, 4) + hash_of(out, N);
}

static long fibonacci(int n)
{
    long a, b;

    if (n < 2)
        return n;
#pragma omp task shared(a) if (n > 8)
    a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 8)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

static uint64_t tasks(void)
{
    long fib = 0, chain = 1, looped = 0, grouped = 0;

#pragma omp parallel
#pragma omp single
    {
        fib = fibonacci(14);
        for (int i = 0; i < 20; i++)
#pragma omp task shared(chain) depend(inout : chain)
            chain = chain * 7 % 100003 + i;
#pragma omp taskgroup
        for (int i = 0; i < 30; i++)
#pragma omp task shared(grouped)
        {
#pragma omp atomic
            grouped += i;
        }
#pragma omp taskloop grainsize(9) shared(looped)
        for (int i = 0; i < N; i++) {
#pragma omp atomic
            looped += in[i];
        }
    }
    return hash_of((long[]){fib, chain, looped, grouped}, 4);
}

static uint64_t cancelled(void)
{
    long found = 0, counted = 0;

#pragma omp parallel
#pragma omp for schedule(static,                                                                   \
                         3) /* with dynamic, LLVM 14's libomp fails an assertion of its own */
    for (int i = 0; i < N; i++) {
        if (in[i] == 17) {
#pragma omp atomic write
            found = 1;
#pragma omp cancel for
        }
#pragma omp cancellation point for
    }
#ifndef __clang__ /* LLVM 14's libomp alone does not come out of that */
#pragma omp parallel
    {
#pragma omp atomic
        counted++;
#pragma omp barrier
#pragma omp cancel parallel
    }
#endif
    return (uint64_t)(found * 2 + (counted > 0));
}

static uint64_t nested(void)
{
    long inner = 0, outer = 0;

#ifndef NO_CLAUSE
#pragma omp parallel num_threads(3) reduction(+ : outer, inner)
    {
        outer++;
#pragma omp parallel num_threads(2) reduction(+ : inner)
        inner++;
    }
#endif
#pragma omp parallel for
    for (int i = 0; i < 8; i++)
#pragma omp parallel for
        for (int j = 0; j < 50; j++)
            out[i * 50 + j] = in[j] * i;
    return hash_of(out, 400) + (uint64_t)(inner * 10 + outer);
}

static uint64_t team(void)
{
    int heads = 0;

#pragma omp parallel reduction(+ : heads)
    heads++;
    smallest = heads < smallest ? heads : smallest;
    largest = heads > largest ? heads : largest;
    return 0;
}

#ifdef DATA_OF_THREADS
/* gcc's code for it asks for the thread's index. */
static uint64_t task_reductions(void)
{
    long sum = 0;

#pragma omp parallel reduction(task, + : sum)
#pragma omp single
    for (int i = 0; i < 50; i++)
#pragma omp task in_reduction(+ : sum)
        sum += in[i];
    return (uint64_t)sum;
}

static long own, handed;
#pragma omp threadprivate(own, handed)

static uint64_t kept(void)
{
    long n = 0, first = 0, bad = 0;

    handed = 5;
#pragma omp parallel copyin(handed) reduction(+ : bad)
    {
        own = omp_get_thread_num();
        bad += handed != 5;
#pragma omp master
        first++;
    }
#pragma omp parallel reduction(+ : n, bad)
    {
        n++;
        bad += own != omp_get_thread_num();
    }
    return (uint64_t)(bad * 100 + (n == omp_get_max_threads()) * 10 + first);
}
#endif

static const struct {
    const char *name;
    uint64_t (*run)(void);
} all[] = {
#define ONE(name)                                                                                  \
    {                                                                                              \
#name, name                                                                                \
    }
    ONE(reductions),
    ONE(own_reductions),
    ONE(static_schedule),
    ONE(static_chunks),
    ONE(dynamic_schedule),
    ONE(monotonic_chunks),
    ONE(guided_schedule),
    ONE(runtime_schedule),
    ONE(auto_schedule),
    ONE(simd_loop),
    ONE(conditional),
    ONE(collapsed),
    ONE(ordered),
    ONE(doacross),
    ONE(tasks),
    ONE(sections_and_singles),
    ONE(exclusion),
    ONE(cancelled),
    ONE(nested),
    ONE(team),
#ifdef DATA_OF_THREADS
    ONE(task_reductions),
    ONE(kept),
#endif
};

#define KINDS ((int)(sizeof(all) / sizeof(all[0])))

int main(void)
{
    static long first[KINDS], now[KINDS];
    char line[64];
    int rounds;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < N; i++)
        in[i] = (i * 7919L + 13) % N;
    for (int k = 0; k < KINDS; k++)
        first[k] = (long)all[k].run();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) && sscanf(line, "go %d", &rounds) == 1) {
        smallest = 1 << 30;
        largest = 0;
        for (int r = 0; r < rounds; r++)
            for (int k = 0; k < KINDS; k++) {
                now[k] = (long)all[k].run();
                if (now[k] != first[k])
                    printf("broken %s\n", all[k].name);
            }
        printf("sum %016lx %d %d\n", hash_of(now, KINDS), smallest, largest);
        fflush(stdout);
    }
    return 0;
}
