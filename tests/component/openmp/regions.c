/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with one parallel region after the other. Each line on stdin is a command; without one
 * the regions go on. Prints "ready", and "team N" whenever the number of threads has changed.
 *
 *   regions [MILLISECONDS of a region]
 *
 * "long N": a region of N seconds. "fork N": a child does N regions and prints "child".
 * "forkin": a thread of a region forks. "check N":
 * regions until their results have been compared N times; prints "equal" or "different". "explicit
 * N": a region with num_threads(N), prints "explicit N". "nested": prints "nested OUTER INNER".
 * "tasks": prints "tasks SUM TEAM". "storm": a signal each millisecond from now on; "calm": none
 * any more, prints "calm COUNT". "end".
 *
 * NO_CLAUSE leaves out "explicit" and "nested", which have num_threads(N).
 *
 * It learns the number of threads by counting heads, because a function that tells it would make
 * the program one whose number stays.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CELLS 20000

static double cells[CELLS], after[CELLS];

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&t, NULL);
}

static int team(void)
{
    int heads = 0;

#pragma omp parallel reduction(+ : heads)
    heads++;
    return heads;
}

static void smooth(void)
{
#pragma omp parallel for
    for (int i = 0; i < CELLS; i++)
        after[i] = (cells[i] + cells[(i + 1) % CELLS] + cells[(i + 17) % CELLS]) / 3 + 0.1;
#pragma omp parallel for schedule(dynamic, 64)
    for (int i = 0; i < CELLS; i++)
        cells[i] = after[i] * 0.99;
#pragma omp parallel sections
    {
#pragma omp section
        cells[0] += 1;
#pragma omp section
        cells[CELLS - 1] -= 1;
    }
}

/* The same loops on one thread give what is to come out. */
static bool is_equal(int rounds)
{
    static double want[CELLS];

    memset(cells, 0, sizeof(cells));
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < CELLS; i++)
            after[i] = (cells[i] + cells[(i + 1) % CELLS] + cells[(i + 17) % CELLS]) / 3 + 0.1;
        for (int i = 0; i < CELLS; i++)
            cells[i] = after[i] * 0.99;
        cells[0] += 1;
        cells[CELLS - 1] -= 1;
    }
    memcpy(want, cells, sizeof(want));
    memset(cells, 0, sizeof(cells));
    for (int r = 0; r < rounds; r++)
        smooth();
    return memcmp(want, cells, sizeof(want)) == 0;
}

#ifndef NO_CLAUSE
static void explicit_team(int n)
{
    int heads = 0;

#pragma omp parallel num_threads(n) reduction(+ : heads)
    heads++;
    printf("explicit %d\n", heads);
}

static void nested(void)
{
    int outer = 0, inner = 0;

#pragma omp parallel num_threads(2) reduction(+ : outer, inner)
    {
        outer++;
#pragma omp parallel num_threads(3) reduction(+ : inner)
        inner++;
    }
    printf("nested %d %d\n", outer, inner);
}
#endif

static void tasks(void)
{
    int sum = 0, heads = 0;

#pragma omp parallel reduction(+ : heads)
    {
        heads++;
#pragma omp single
        for (int i = 1; i <= 100; i++)
#pragma omp task shared(sum) firstprivate(i)
        {
#pragma omp atomic
            sum += i;
        }
    }
    printf("tasks %d %d\n", sum, heads);
}

static void forked(int regions)
{
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        while (regions-- > 0)
            team();
        printf("child\n");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void forked_within(void)
{
#pragma omp parallel
#pragma omp single
    forked(0);
}

static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
    (void)number;
    signals++;
}

static void storm(long usec)
{
    struct itimerval every = {{0, usec}, {0, usec}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

static bool obey(char *line)
{
    int n;
    double seconds;

    if (sscanf(line, "long %lf", &seconds) == 1) {
#pragma omp parallel
        {
#pragma omp single nowait
            {
                printf("begins\n");
                fflush(stdout);
            }
            nap(seconds);
        }
#ifndef NO_CLAUSE
    } else if (sscanf(line, "explicit %d", &n) == 1) {
        explicit_team(n);
    } else if (strncmp(line, "nested", 6) == 0) {
        nested();
#endif
    } else if (sscanf(line, "check %d", &n) == 1) {
        bool equal = true;

        while (n-- > 0)
            equal &= is_equal(20);
        printf(equal ? "equal\n" : "different\n");
    } else if (strncmp(line, "storm", 5) == 0) {
        storm(1000);
    } else if (strncmp(line, "calm", 4) == 0) {
        storm(0);
        printf("calm %d\n", (int)signals);
    } else if (strncmp(line, "tasks", 5) == 0) {
        tasks();
    } else if (sscanf(line, "fork %d", &n) == 1) {
        forked(n);
    } else if (strncmp(line, "forkin", 6) == 0) {
        forked_within();
    } else {
        return false;
    }
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    double pause = argc > 1 ? atof(argv[1]) / 1000 : 0.001;
    char line[64];
    int had = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdin, NULL, _IONBF, 0);
    printf("ready\n");
    for (;;) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        int now = team();

        if (now != had)
            printf("team %d\n", had = now);
        fflush(stdout);
        nap(pause);
        if (poll(&in, 1, 0) == 1 && (!fgets(line, sizeof(line), stdin) || !obey(line)))
            return 0;
    }
}
