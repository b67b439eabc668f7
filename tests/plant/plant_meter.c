// SPDX-License-Identifier: Apache-2.0
/*
 * Turns what this machine's CPUs really do into a plant's energy, and shows it as meters would.
 *
 *   plant_meter --params FILE [OPTION…]
 *     --params FILE   NAME=VALUE, a line for each, of plant_draw.py
 *     --seed N        of the noise (0)
 *     --tree DIR      powercap and cpufreq as in /sys, below DIR, which has to be empty
 *     --packages N    of the tree (1)
 *     --no-dram       no zone of that name
 *     --psys          one more zone, for the whole machine
 *     --wrap UJ       where the tree's counters begin anew (262143328850)
 *     --modbus PORT   a meter at the wall, on loopback; 0: any port
 *     --lifetime KWH  what the meter has counted before (0)
 *     --jobs FILE     lines NAME PID, read again when the file changes: jobs for the truth, at most
 * 9 names
 *     --truth FILE    a line of JSON each second, for benchmarks alone: what the meters hide
 *
 * Prints "ready PORT" (0: no meter) when all is there. Ends with its parent or by SIGTERM.
 *
 * No core of a virtual machine changes its frequency: the speeds that the tree shows are the
 * plant's own governor's, which go into its energy and not into the work done. A limit in the tree
 * acts on these speeds.
 */
#include "registers.h"
#include "tree.h"
#include "truth.h"
#include "use.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ULL
#define SYSTEM   0 /* the first player; jobs follow */

struct options {
    struct tree_options tree;
    const char *params, *jobs, *truth;
    uint64_t seed, lifetime_uj;
    bool modbus;
    uint16_t port;
};

struct meter {
    struct options options;
    struct plant plant;
    struct use *use;
    struct truth *shares; /* NULL without --truth */
    uint32_t players;
    struct tree *tree;
    struct registers *registers;
    FILE *truth;
    struct timespec jobs_time;
    off_t jobs_size;
    uint64_t now_ns, second_ns, second_uj; /* of the last step, the last line, the energy then */
    uint32_t speed[PLANT_CORES_MAX];
};

static volatile sig_atomic_t ended;

static void on_end(int number)
{
    ended = 1;
}

__attribute__((noreturn)) static void die(const char *what, int error)
{
    fprintf(stderr, "plant_meter: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void read_params(const char *path, struct plant_params *ret)
{
    FILE *file = fopen(path, "re");
    char line[256];
    unsigned seen = 0;
    int bad;

    if (!file)
        die(path, errno);
    while (fgets(line, sizeof line, file)) {
        char *is = strchr(line, '=');
        int i = 0;

        if (is)
            *is = '\0';
        while (is && plant_param_name(i) && strcmp(plant_param_name(i), line) != 0)
            i++;
        if (!is || !plant_param_name(i)) {
            fprintf(stderr, "plant_meter: %s: no parameter '%s'\n", path, line);
            exit(1);
        }
        *plant_param(ret, i) = strtoull(is + 1, NULL, 10);
        seen |= 1U << i;
    }
    fclose(file);
    bad = plant_check(ret);
    for (int i = 0; bad < 0 && i < PLANT_PARAM_COUNT; i++)
        if (!(seen >> i & 1))
            bad = i;
    if (bad >= 0) {
        fprintf(stderr, "plant_meter: %s: %s is out of its bounds, or not there\n", path,
                plant_param_name(bad));
        exit(1);
    }
}

static void read_jobs(struct meter *m)
{
    struct stat st;
    FILE *file;
    char name[64];
    int pid, r;

    if (!m->options.jobs || stat(m->options.jobs, &st) < 0 ||
        (st.st_size == m->jobs_size && st.st_mtim.tv_sec == m->jobs_time.tv_sec &&
         st.st_mtim.tv_nsec == m->jobs_time.tv_nsec))
        return;
    file = fopen(m->options.jobs, "re");
    if (!file)
        return;
    m->jobs_time = st.st_mtim;
    m->jobs_size = st.st_size;
    while (fscanf(file, "%63s %d", name, &pid) == 2) {
        uint32_t job;

        r = use_add(m->use, name, pid, &job);
        if (r < 0 && r != -ESRCH)
            die(name, r);
    }
    fclose(file);
    for (; m->shares && m->players < 1 + use_jobs(m->use); m->players++)
        if ((r = truth_add(&m->shares)) < 0)
            die("truth", r);
}

static void print_truth(struct meter *m, const char *name, enum truth_of of)
{
    int64_t share[TRUTH_PLAYERS_MAX];

    truth_shares(m->shares, of, share);
    fprintf(m->truth,
            ", \"%s\": {\"idle\": %" PRId64 ", \"all\": %" PRId64 ", \"system\": %" PRId64, name,
            truth_idle_uj(m->shares, of), truth_all_uj(m->shares, of), share[SYSTEM]);
    fprintf(m->truth, ", \"jobs\": {");
    for (uint32_t i = 1; i < m->players; i++)
        fprintf(m->truth, "%s\"%s\": %" PRId64, i > 1 ? ", " : "", use_job_name(m->use, i - 1),
                share[i]);
    fprintf(m->truth, "}}");
}

/* Once a second: a line of truth, and the meter's watts. */
static void second(struct meter *m)
{
    uint64_t wall_uj = m->plant.total.wall_uj, ns = m->now_ns - m->second_ns;

    if (m->registers)
        registers_set(m->registers, (wall_uj - m->second_uj) * 1000 / (ns / 1000000),
                      m->options.lifetime_uj + wall_uj);
    if (m->truth) {
        fprintf(m->truth,
                "{\"time_ns\": %" PRIu64 ", \"wall_uj\": %" PRIu64 ", \"package_uj\": %" PRIu64
                ", \"dram_uj\": %" PRIu64 ", \"speed_permille\": %" PRIu32,
                m->now_ns, wall_uj, m->plant.total.package_uj, m->plant.total.dram_uj, m->speed[0]);
        print_truth(m, "wall", TRUTH_WALL);
        print_truth(m, "rapl", TRUTH_RAPL);
        fprintf(m->truth, "}\n");
        fflush(m->truth);
    }
    m->second_ns = m->now_ns;
    m->second_uj = wall_uj;
}

static void step(struct meter *m)
{
    uint64_t busy[USE_CPUS_MAX], player[(1 + USE_JOBS_MAX) * USE_CPUS_MAX];
    struct plant_load load[PLANT_CORES_MAX];
    uint32_t cores = m->plant.cores;
    uint64_t now, ns;
    int r;

    read_jobs(m);
    /* The jobs' rows come behind the system's, which is what they leave. */
    r = use_look(m->use, busy, &player[cores]);
    if (r < 0)
        die("/proc", r);
    now = now_ns();
    ns = now - m->now_ns;
    m->now_ns = now;
    for (uint32_t c = 0; c < cores; c++) {
        load[c] = (struct plant_load){.busy_ns = busy[c]};
        player[c] = busy[c];
        for (uint32_t j = 1; j <= use_jobs(m->use); j++)
            player[c] -= player[j * cores + c];
    }
    plant_govern(&m->plant, ns, m->tree ? tree_limit_uw(m->tree) : 0, load);
    for (uint32_t c = 0; c < cores; c++)
        m->speed[c] = load[c].speed_permille;
    plant_step(&m->plant, ns, load);
    if (m->shares)
        truth_step(m->shares, ns, player, m->speed);
    if (m->tree && (r = tree_write(m->tree, &m->plant, m->speed)) < 0)
        die(m->options.tree.path, r);
    if (now - m->second_ns >= NS_PER_S)
        second(m);
}

static int ticking(void)
{
    struct itimerspec period = {.it_interval.tv_nsec = PLANT_STEP_NS,
                                .it_value.tv_nsec = PLANT_STEP_NS};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

    if (fd < 0 || timerfd_settime(fd, 0, &period, NULL) < 0)
        die("timer", errno);
    return fd;
}

static void loop(struct meter *m)
{
    int timer = ticking();

    while (!ended) {
        struct pollfd fds[2 + REGISTERS_PEERS_MAX] = {{.fd = timer, .events = POLLIN}};
        unsigned n = 1 + (m->registers ? registers_fds(m->registers, fds + 1) : 0);
        uint64_t times;

        if (poll(fds, n, -1) < 0) {
            if (errno != EINTR)
                die("poll", errno);
            continue;
        }
        if (fds[0].revents && read(timer, &times, sizeof times) == sizeof times)
            step(m);
        if (m->registers)
            registers_serve(m->registers, fds + 1, n - 1);
    }
    close(timer);
}

static void parse(int argc, char **argv, struct options *ret)
{
    enum { PARAMS, SEED, TREE, PACKAGES, NO_DRAM, PSYS, WRAP, MODBUS, LIFETIME, JOBS, TRUTH };
    static const struct option options[] = {
        {"params", 1, NULL, PARAMS},     {"seed", 1, NULL, SEED},
        {"tree", 1, NULL, TREE},         {"packages", 1, NULL, PACKAGES},
        {"no-dram", 0, NULL, NO_DRAM},   {"psys", 0, NULL, PSYS},
        {"wrap", 1, NULL, WRAP},         {"modbus", 1, NULL, MODBUS},
        {"lifetime", 1, NULL, LIFETIME}, {"jobs", 1, NULL, JOBS},
        {"truth", 1, NULL, TRUTH},       {0}};
    int c;

    *ret = (struct options){
        .tree = {.packages = 1, .dram = true, .wrap_uj = 262143328850, .base_khz = 2000000}};
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        unsigned long long number = optarg ? strtoull(optarg, NULL, 0) : 0;

        switch (c) {
        case PARAMS:
            ret->params = optarg;
            break;
        case SEED:
            ret->seed = number;
            break;
        case TREE:
            ret->tree.path = optarg;
            break;
        case PACKAGES:
            ret->tree.packages = (uint32_t)number;
            break;
        case NO_DRAM:
            ret->tree.dram = false;
            break;
        case PSYS:
            ret->tree.psys = true;
            break;
        case WRAP:
            ret->tree.wrap_uj = number;
            break;
        case MODBUS:
            ret->modbus = true;
            ret->port = (uint16_t)number;
            break;
        case LIFETIME:
            ret->lifetime_uj = number * 3600000000000;
            break;
        case JOBS:
            ret->jobs = optarg;
            break;
        case TRUTH:
            ret->truth = optarg;
            break;
        default:
            exit(2);
        }
    }
    if (!ret->params || optind < argc) {
        fprintf(stderr, "plant_meter: --params is missing, or there is a word too many\n");
        exit(2);
    }
}

static void start(struct meter *m)
{
    struct plant_params params = {0};
    uint16_t port = 0;
    int r;

    read_params(m->options.params, &params);
    r = use_new(&m->use);
    if (r == 0 && use_cpus(m->use) > PLANT_CORES_MAX)
        r = -E2BIG;
    if (r < 0)
        die("this machine's CPUs", r);
    plant_init(&m->plant, &params, use_cpus(m->use), m->options.seed);
    if (m->options.tree.path && (r = tree_new(&m->options.tree, &m->plant, &m->tree)) < 0)
        die(m->options.tree.path, r);
    if (m->options.modbus && (r = registers_new(m->options.port, &m->registers, &port)) < 0)
        die("Modbus", r);
    if (m->options.truth && !(m->truth = fopen(m->options.truth, "we")))
        die(m->options.truth, errno);
    m->players = 1;
    if (m->truth && (r = truth_new(&params, m->plant.cores, m->players, &m->shares)) < 0)
        die("truth", r);
    m->now_ns = m->second_ns = now_ns();
    printf("ready %u\n", port);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct meter m;
    struct sigaction end = {.sa_handler = on_end};

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    signal(SIGPIPE, SIG_IGN);
    parse(argc, argv, &m.options);
    start(&m);
    loop(&m);
    if (m.truth)
        fclose(m.truth);
    registers_free(m.registers);
    tree_free(m.tree);
    truth_free(m.shares);
    use_free(m.use);
    return 0;
}
