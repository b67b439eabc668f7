/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "tree.h"

#include <elf.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#define STAT_TAIL                                                                                  \
    " R 41 17 17 34816 17 4194304 99 0 0 0 250 150 0 0 20 0 3 0 259034 3133440 362 "               \
    "18446744073709551615 1 1 0 0 0 0 0 4096 66 0 0 0 17 5 0 0 0 0 0 0 0 0 0 0 0 0 0\n"

static int parse_stat(const char *text, struct proc_stat *ret)
{
    return proc_parse_stat(text, strlen(text), ret);
}

static void stat_is_read_field_by_field(void **state)
{
    struct proc_stat stat;

    assert_int_equal(parse_stat("17 (python)" STAT_TAIL, &stat), 0);
    assert_int_equal(stat.pid, 17);
    assert_string_equal(stat.comm, "python");
    assert_int_equal(stat.state, 'R');
    assert_int_equal(stat.parent, 41);
    assert_int_equal(stat.cpu_ns, 4000000000ull * 100 / (uint64_t)sysconf(_SC_CLK_TCK));
    assert_int_equal(stat.threads, 3);
    assert_int_equal(stat.start, 259034);
    assert_int_equal(stat.last_cpu, 5);
}

static void a_comm_may_look_like_the_rest_of_the_line(void **state)
{
    struct proc_stat stat;

    assert_int_equal(parse_stat("17 (a) R 1 (b c)" STAT_TAIL, &stat), 0);
    assert_string_equal(stat.comm, "a) R 1 (b c");
    assert_int_equal(stat.parent, 41);
    assert_int_equal(parse_stat("17 (\n)" STAT_TAIL, &stat), 0);
    assert_int_equal(stat.state, 'R');
}

static void a_damaged_stat_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "17",
                                      "17 (x",
                                      "17 x) R 1",
                                      ")(",
                                      "17 (x)",
                                      "17 (x) R",
                                      "17 (x) R 1 2 3",
                                      ("x (x)" STAT_TAIL),
                                      ("0 (x)" STAT_TAIL),
                                      "17 (x) R 41 17 17 34816 seventeen"};
    struct proc_stat stat;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse_stat(bad[i], &stat), -EINVAL);
}

#define STATUS                                                                                     \
    "Name:\tpython\nTgid:\t17\nPid:\t17\nUid:\t1000\t1001\t1002\t1003\nGroups:\t4 24 \n"           \
    "Threads:\t9\nSigBlk:\t0000000000000400\nSigIgn:\t0000000001001000\n"                          \
    "SigCgt:\t8000010000000002\nCpus_allowed:\t3f\nCpus_allowed_list:\t0-3,5\n"

static void status_tells_owner_cpus_and_handlers(void **state)
{
    struct proc_status status;

    assert_int_equal(proc_parse_status(STATUS, strlen(STATUS), &status), 0);
    assert_int_equal(status.tgid, 17);
    assert_int_equal(status.real_uid, 1000);
    assert_int_equal(status.uid, 1001);
    assert_int_equal(status.saved_uid, 1002);
    assert_false(proc_all_of(&status, 1001));
    assert_int_equal(status.threads, 9);
    assert_int_equal(cpuset_count(&status.allowed), 5);
    assert_true(proc_has_handler(&status, 2));
    assert_true(proc_has_handler(&status, 41));
    assert_true(proc_has_handler(&status, 64));
    assert_false(proc_has_handler(&status, 1));
    assert_false(proc_has_handler(&status, 0));
    assert_false(proc_has_handler(&status, 65));
    assert_int_equal(status.sig_blocked, 0x400);
}

static void a_status_with_a_field_missing_or_damaged_is_refused(void **state)
{
    struct proc_status status;
    const char *damaged = "Tgid:\tx\n" STATUS;

    for (const char *line = STATUS; *line; line = strchr(line, '\n') + 1) {
        char text[sizeof(STATUS)];
        size_t before = (size_t)(line - (const char *)STATUS);
        bool needed = strncmp(line, "Tgid", 4) == 0 || strncmp(line, "Uid", 3) == 0 ||
                      strncmp(line, "Threads", 7) == 0 || strncmp(line, "SigCgt", 6) == 0 ||
                      strncmp(line, "Cpus_allowed_list", 17) == 0;

        memcpy(text, STATUS, before);
        strcpy(text + before, strchr(line, '\n') + 1);
        assert_int_equal(proc_parse_status(text, strlen(text), &status), needed ? -EINVAL : 0);
    }
    assert_int_equal(proc_parse_status(damaged, strlen(damaged), &status), -EINVAL);
    assert_int_equal(proc_parse_status(STATUS, sizeof(STATUS), &status),
                     -EINVAL); /* a NUL inside */
}

static void schedstat_is_run_and_wait_time(void **state)
{
    uint64_t cpu = 0, wait = 0;

    assert_int_equal(proc_parse_schedstat("250 1500 3\n", &cpu, &wait), 0);
    assert_int_equal(cpu, 250);
    assert_int_equal(wait, 1500);
    assert_int_equal(proc_parse_schedstat("250\n", &cpu, &wait), -EINVAL);
    assert_int_equal(proc_parse_schedstat("", &cpu, &wait), -EINVAL);
    assert_int_equal(proc_parse_schedstat("99999999999999999999 1 1", &cpu, &wait), -EINVAL);
}

static void memory_of_its_own_is_what_no_file_backs(void **state)
{
    uint64_t pages = 0;

    assert_int_equal(proc_parse_statm("9000 700 500 10 0 300 0\n", &pages), 0);
    assert_int_equal(pages, 200);
    assert_int_equal(proc_parse_statm("0 0 0 0 0 0 0\n", &pages), 0);
    assert_int_equal(pages, 0);
    assert_int_equal(proc_parse_statm("9000 700\n", &pages), -EINVAL);
    assert_int_equal(proc_parse_statm("", &pages), -EINVAL);
    assert_int_equal(proc_parse_statm("1 99999999999999999999 1 1", &pages), -EINVAL);
}

static void the_machine_is_busy_when_it_neither_idles_nor_waits_for_disks(void **state)
{
    uint64_t tick_ns = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK), busy = 0;

    assert_int_equal(proc_parse_busy("cpu  10 20 30 1000 2000 4 5 6 0 0\ncpu0 1 2 3\n", &busy), 0);
    assert_int_equal(busy, (10 + 20 + 30 + 4 + 5 + 6) * tick_ns);
    assert_int_equal(proc_parse_busy("cpu  1 2 3\n", &busy), -EINVAL);
    assert_int_equal(proc_parse_busy("cpu0 1 2 3 4 5 6 7 8\n", &busy), -EINVAL);
    assert_int_equal(proc_parse_busy("", &busy), -EINVAL);
}

static void idle_time_is_that_of_the_cpus_asked_for(void **state)
{
    const char *text = "cpu  1 2 3 400 500 6 7 8 0 0\n"
                       "cpu0 1 0 0 100 10 0 0 0 0 0\n"
                       "cpu2 1 0 0 200 20 0 0 0 0 0\n"
                       "cpu10 1 0 0 300 30 0 0 0 0 0\n"
                       "intr 17 1 2\n";
    uint64_t tick_ns = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK), idle = 0;
    struct cpuset cpus = {0};

    cpuset_add(&cpus, 1);
    assert_int_equal(proc_parse_idle(text, &cpus, &idle), -EINVAL); /* none of them is there */
    cpuset_add(&cpus, 0);
    cpuset_add(&cpus, 10);
    assert_int_equal(proc_parse_idle(text, &cpus, &idle), 0);
    assert_int_equal(idle, (100 + 10 + 300 + 30) * tick_ns);
    assert_int_equal(proc_parse_idle("cpu  1 2\ncpu0 1 2 3\n", &cpus, &idle), -EINVAL);
    assert_int_equal(proc_parse_idle("intr 1\n", &cpus, &idle), -EINVAL);
    assert_int_equal(proc_parse_idle("", &cpus, &idle), -EINVAL);
}

static void cgroup_membership_is_found_by_controller(void **state)
{
    const char *text = "12:cpuset:/sets\n4:cpu,cpuacct:/docker/4f\n1:name=systemd:/a:b\n0::/user\n";
    char path[32];

    assert_int_equal(proc_parse_cgroup(text, "cpu", path, sizeof(path)), 0);
    assert_string_equal(path, "/docker/4f");
    assert_int_equal(proc_parse_cgroup(text, "cpuset", path, sizeof(path)), 0);
    assert_string_equal(path, "/sets");
    assert_int_equal(proc_parse_cgroup(text, "", path, sizeof(path)), 0);
    assert_string_equal(path, "/user");
    assert_int_equal(proc_parse_cgroup(text, "name=systemd", path, sizeof(path)), 0);
    assert_string_equal(path, "/a:b");
    assert_int_equal(proc_parse_cgroup(text, "cpua", path, sizeof(path)), -ENOENT);
    assert_int_equal(proc_parse_cgroup("", "cpu", path, sizeof(path)), -ENOENT);
    assert_int_equal(proc_parse_cgroup("4:cpu:relative\n", "cpu", path, sizeof(path)), -EINVAL);
    assert_int_equal(proc_parse_cgroup(text, "cpu", path, 10), -ENAMETOOLONG);
    assert_int_equal(proc_parse_cgroup(text, "cpu", path, 11), 0);
}

static int runtime_of(const char *line)
{
    const char *path;

    return proc_parse_maps_line(line, &path);
}

#define MAP "7f00-7f10 r-xp 00000000 08:01 4711                      "

static void libraries_are_known_by_their_names(void **state)
{
    assert_int_equal(runtime_of(MAP "/v/site-packages/tensorflow/libtensorflow_framework.so.2"),
                     PROC_RUNTIME_TENSORFLOW);
    assert_int_equal(runtime_of(MAP "/v/torch/lib/libtorch_cpu.so"), PROC_RUNTIME_TORCH);
    assert_int_equal(runtime_of(MAP "/v/torch/lib/libgomp-a34b3233.so.1"), PROC_RUNTIME_GOMP);
    assert_int_equal(runtime_of(MAP "/usr/lib/libgomp.so.1.0.0"), PROC_RUNTIME_GOMP);
    assert_int_equal(runtime_of(MAP "/usr/lib/libomp.so.5"), PROC_RUNTIME_LLVM_OMP);
    assert_int_equal(runtime_of(MAP "/opt/intel/libiomp5.so"), PROC_RUNTIME_LLVM_OMP);
    assert_int_equal(runtime_of(MAP "/v/numpy.libs/libscipy_openblas64_-99b71e71.so"),
                     PROC_RUNTIME_OPENBLAS);
    assert_int_equal(runtime_of(MAP "/usr/lib/libopenblasp-r0.3.21.so"), PROC_RUNTIME_OPENBLAS);
    assert_int_equal(runtime_of(MAP "/opt/mkl/libmkl_core.so.2"), PROC_RUNTIME_MKL);
    assert_int_equal(runtime_of(MAP "/usr/lib/libdnnl.so.3.1"), PROC_RUNTIME_ONEDNN);
    assert_int_equal(runtime_of(MAP "/v/jaxlib/libjax_common.so"), PROC_RUNTIME_JAX);
    assert_int_equal(
        runtime_of(MAP "/v/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311.so"),
        PROC_RUNTIME_ONNXRUNTIME);
    assert_int_equal(runtime_of(MAP "/x/libtide-agent.so (deleted)"), PROC_RUNTIME_AGENT);
    assert_int_equal(runtime_of(MAP "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"),
                     PROC_RUNTIME_OPENBLAS);
    assert_int_equal(runtime_of(MAP "/usr/lib/x86_64-linux-gnu/blis-openmp/libblas.so.3"),
                     PROC_RUNTIME_BLIS);
    assert_int_equal(runtime_of(MAP "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3"), -ENOENT);
    assert_int_equal(runtime_of(MAP "/usr/lib/jvm/j/lib/server/libjvm.so"), PROC_RUNTIME_JVM);
    assert_int_equal(runtime_of(MAP "/v/numba/np/ufunc/omppool.cpython-311.so"),
                     PROC_RUNTIME_NUMBA);
    assert_int_equal(runtime_of(MAP "/v/other/workqueue.cpython-311.so"), -ENOENT);
    assert_int_equal(runtime_of(MAP "/v/lightgbm/lib/lib_lightgbm.so"), PROC_RUNTIME_LIGHTGBM);
    assert_int_equal(runtime_of(MAP "/v/ai_edge_litert/libpywrap_litert_common.so"),
                     PROC_RUNTIME_LITERT);
    assert_int_equal(runtime_of(MAP "/usr/lib/libtensorflowlite_c.so"), PROC_RUNTIME_LITERT);
    assert_int_equal(runtime_of(MAP "/v/executorch/lib/libexecutorch_threadpool.so"),
                     PROC_RUNTIME_EXECUTORCH);
    assert_int_equal(runtime_of(MAP "/usr/lib/x86_64-linux-gnu/libXNNPACK.so.0"),
                     PROC_RUNTIME_XNNPACK);
}

/* `import tensorflow` alone loads these. */
static void tensorflows_own_litert_is_not_told(void **state)
{
    assert_int_equal(runtime_of(MAP "/v/tflite_runtime/_pywrap_tensorflow_interpreter_wrapper.so"),
                     PROC_RUNTIME_LITERT);
    assert_int_equal(
        runtime_of(MAP "/v/tensorflow/lite/python/_pywrap_tensorflow_interpreter_wrapper.so"),
        -ENOENT);
    assert_int_equal(runtime_of(MAP "/v/tensorflow/lite/python/libpywrap_tflite_common.so"),
                     -ENOENT);
}

static void other_mappings_are_no_runtimes(void **state)
{
    static const char *const other[] = {"",
                                        MAP,
                                        MAP "[heap]",
                                        MAP "/usr/lib/libc.so.6",
                                        MAP "/data/libgomp.txt",
                                        MAP "/usr/lib/libgompx.so",
                                        MAP "/libgomp.so.d/data",
                                        MAP "/x/mylibgomp.so.1"};

    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        assert_int_equal(runtime_of(other[i]), -ENOENT);
}

static void a_library_may_carry_its_version_in_its_name(void **state)
{
    char version[PROC_VERSION_MAX] = "";

    assert_int_equal(proc_library_version("/lib/libgomp.so.1.0.0", version), 0);
    assert_string_equal(version, "1.0.0");
    assert_int_equal(proc_library_version("/lib/libopenblasp-r0.3.21.so", version), 0);
    assert_string_equal(version, "0.3.21");
    assert_int_equal(proc_library_version("/lib/libgomp.so.1 (deleted)", version), 0);
    assert_string_equal(version, "1");
    assert_int_equal(proc_library_version("/lib.so.9/libtorch_cpu.so", version), -ENOENT);
    assert_int_equal(proc_library_version("/l/libx.so.11111111111111111111111111111111", version),
                     -ENOENT);
}

static const struct tree_file recorded[] = {
    {"proc/17/stat", "17 (python)" STAT_TAIL},
    {"proc/17/status", STATUS},
    {"proc/17/cmdline", "python"},
    {"proc/17/maps", "00400000-00401000 r--p 0 08:01 1 /usr/bin/python3\n" MAP
                     "/v/lib/python3.11/site-packages/tensorflow/libtensorflow_framework.so.2\n" MAP
                     "/usr/lib/libgomp.so.1.0.0\n" MAP "/usr/lib/libgomp.so.1.0.0\n" MAP
                     "/v/lib/python3.11/site-packages/sklearn.libs/libgomp-a34b.so.1.0.0\n" MAP
                     "/jvm/j17/lib/server/libjvm.so\n"},
    {"proc/17/root/jvm/j17/", NULL},
    {"proc/17/task/17/status",
     "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"},
    {"proc/17/root/v/lib/python3.11/site-packages/tensorflow_estimator-9.9.dist-info/", NULL},
    {"proc/17/root/v/lib/python3.11/site-packages/tensorflow_cpu-2.21.0.dist-info/", NULL},
    {"proc/17/task/17/stat", "17 (python)" STAT_TAIL},
    {"proc/17/task/17/schedstat", "1000 2000 3\n"},
    {"proc/17/task/19/stat", "19 (worker)" STAT_TAIL},
    {"proc/17/task/18/", NULL}, /* ended between the listing and the reading */
    {"proc/20/maps", MAP "/l/site-packages/torch/lib/libtorch_cpu.so\n" MAP
                         "/out/site-packages/tensorflow/libtensorflow_framework.so.2\n"},
    {"proc/21/maps", MAP "/v/site-packages/ai_edge_litert/libpywrap_litert_common.so\n" MAP
                         "/v/site-packages/executorch/lib/libexecutorch_threadpool.so\n" MAP
                         "/usr/lib/libXNNPACK.so.0\n"},
    {"proc/21/root/v/site-packages/ai_edge_litert-2.3.0.dist-info/", NULL},
    {"proc/21/root/v/site-packages/tflite_runtime-2.14.0.dist-info/", NULL}, /* beside it */
    {"proc/21/root/v/site-packages/executorch-1.5.1.dist-info/", NULL},
    {"proc/20/root/l/real/torch-2.5.1.dist-info/", NULL},
    {"proc/20/root/out/", NULL},
    {"other/tensorflow-9.9.dist-info/", NULL},
    {"proc/18/stat", "18 (child) S 17 17 17 0 17 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 "
                     "0 1 1 0 0 0 0 0 0 0 0 0 0 17 0\n"},
    {"proc/meminfo", "MemTotal: 1 kB\n"},
    {"proc/5000000000/", NULL}, /* no pid */
};

static int setup_tree(void **state)
{
    static struct tree tree;

    tree_init(&tree, recorded, sizeof(recorded) / sizeof(recorded[0]));
    *state = &tree;
    return 0;
}

static int teardown_tree(void **state)
{
    tree_done(*state);
    return 0;
}

static void runtimes_carry_the_version_of_their_package(void **state)
{
    struct tree *tree = *state;
    struct proc_runtimes runtimes;

    /* Nobody writes into what lies beside a library. */
    assert_int_equal(mkfifoat(tree->fd, "proc/17/root/jvm/j17/release", 0600), 0);
    assert_int_equal(proc_read_runtimes(tree->fd, 17, &runtimes), 0);
    assert_true(runtimes.r[PROC_RUNTIME_TENSORFLOW].loaded);
    assert_string_equal(runtimes.r[PROC_RUNTIME_TENSORFLOW].version, "2.21.0");
    assert_true(runtimes.r[PROC_RUNTIME_GOMP].loaded);
    assert_string_equal(runtimes.r[PROC_RUNTIME_GOMP].version, "1.0.0");
    assert_int_equal(runtimes.r[PROC_RUNTIME_GOMP].copies, 2);
    assert_true(runtimes.r[PROC_RUNTIME_JVM].loaded);
    assert_false(runtimes.r[PROC_RUNTIME_TORCH].loaded);
    assert_false(runtimes.r[PROC_RUNTIME_AGENT].loaded);
    assert_int_equal(proc_read_runtimes(tree->fd, 21, &runtimes), 0);
    assert_string_equal(runtimes.r[PROC_RUNTIME_LITERT].version, "2.3.0");
    assert_string_equal(runtimes.r[PROC_RUNTIME_EXECUTORCH].version, "1.5.1");
    assert_true(runtimes.r[PROC_RUNTIME_XNNPACK].loaded);
    assert_string_equal(runtimes.r[PROC_RUNTIME_XNNPACK].version, ""); /* .so.0 is not one */
    assert_int_equal(proc_read_runtimes(tree->fd, 99, &runtimes), -ESRCH);
}

static void a_process_leads_to_nothing_outside_its_root(void **state)
{
    struct tree *tree = *state;
    struct proc_runtimes runtimes;
    char other[64];

    snprintf(other, sizeof(other), "%s/other", tree->path);
    assert_int_equal(symlinkat("/l/real", tree->fd, "proc/20/root/l/site-packages"), 0);
    assert_int_equal(symlinkat(other, tree->fd, "proc/20/root/out/site-packages"), 0);
    assert_int_equal(proc_read_runtimes(tree->fd, 20, &runtimes), 0);
    assert_string_equal(runtimes.r[PROC_RUNTIME_TORCH].version, "2.5.1");
    assert_string_equal(runtimes.r[PROC_RUNTIME_TENSORFLOW].version, "2");
}

static void switches_are_read_from_a_threads_status(void **state)
{
    struct tree *tree = *state;
    struct proc_switches switches;

    assert_int_equal(proc_read_switches(tree->fd, 17, 17, &switches), 0);
    assert_int_equal(switches.voluntary, 150);
    assert_int_equal(switches.involuntary, 545);
    assert_int_equal(proc_read_switches(tree->fd, 17, 19, &switches), -ESRCH);
    assert_int_equal(proc_parse_switches("", &switches), -EINVAL);
    assert_int_equal(proc_parse_switches("voluntary_ctxt_switches:\t1\n", &switches), -EINVAL);
    assert_int_equal(proc_parse_switches("voluntary_ctxt_switches:\tx\n"
                                         "nonvoluntary_ctxt_switches:\t1\n",
                                         &switches),
                     -EINVAL);
}

#define RODATA      0x10000
#define RODATA_SIZE (64u << 20)

/* A program of @n sections .rodata with nothing in them, and one more with Rayon's name. */
static int program_with_sections(const struct tree *tree, unsigned n, uint64_t size)
{
    static const char names[] = "\0.rodata", rayon[] = "rayon-core-1.2.3/";
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shoff = sizeof(header),
                         .e_shnum = (uint16_t)(n + 2)};
    Elf64_Shdr section = {.sh_offset = RODATA - sizeof(names), .sh_size = sizeof(names)};
    int fd = openat(tree->fd, "program", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, &header, sizeof(header)), sizeof(header));
    assert_int_equal(write(fd, &section, sizeof(section)), sizeof(section));
    section = (Elf64_Shdr){.sh_name = 1, .sh_offset = RODATA, .sh_size = size};
    for (unsigned i = 0; i <= n; i++) {
        if (i == n)
            section = (Elf64_Shdr){
                .sh_name = 1, .sh_offset = RODATA + size, .sh_size = sizeof(rayon) + 1};
        assert_int_equal(write(fd, &section, sizeof(section)), sizeof(section));
    }
    assert_int_equal(pwrite(fd, names, sizeof(names), RODATA - sizeof(names)), sizeof(names));
    /* In two, so that this program does not contain it. */
    assert_int_equal(pwrite(fd, "/", 1, (off_t)(RODATA + size)), 1);
    assert_int_equal(pwrite(fd, rayon, sizeof(rayon), (off_t)(RODATA + size + 1)), sizeof(rayon));
    return fd;
}

static void no_program_makes_the_search_long(void **state)
{
    struct proc_runtimes small = {0}, large = {0};
    int fd = program_with_sections(*state, 3, 4096);

    assert_int_equal(proc_parse_program(fd, &small), 0);
    assert_string_equal(small.r[PROC_RUNTIME_RAYON].version, "1.2.3");
    close(fd);
    fd = program_with_sections(*state, 1, RODATA_SIZE);
    assert_int_equal(proc_parse_program(fd, &large), 0);
    assert_false(large.r[PROC_RUNTIME_RAYON].loaded); /* the first section was all it may cost */
    close(fd);
}

/* This program: dynamic, no Go. A text that only looks like a program: no program. */
static void an_executable_tells_what_it_contains(void **state)
{
    struct tree *tree = *state;
    struct proc_runtimes runtimes = {0};
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int text = openat(tree->fd, "proc/17/stat", O_RDONLY | O_CLOEXEC);

    assert_int_equal(proc_parse_program(self, &runtimes), 0);
    assert_false(runtimes.is_static);
    for (int i = 0; i < PROC_RUNTIME_MAX; i++)
        assert_false(runtimes.r[i].loaded);
    assert_int_equal(proc_parse_program(text, &runtimes), -ENOEXEC);
    assert_int_equal(proc_read_program(tree->fd, 99, &runtimes), -ESRCH);
    close(self);
    close(text);
}

static void threads_that_end_meanwhile_are_left_out(void **state)
{
    struct tree *tree = *state;
    struct proc_threads threads;

    assert_int_equal(proc_read_threads(tree->fd, 17, &threads), 0);
    assert_int_equal(threads.n, 2);
    assert_int_equal(threads.thread[0].tid, 17);
    assert_int_equal(threads.thread[0].cpu_ns, 1000);
    assert_int_equal(threads.thread[0].wait_ns, 2000);
    assert_int_equal(threads.thread[1].tid, 19);
    assert_int_equal(threads.thread[1].wait_ns, 0);
    assert_int_not_equal(threads.thread[1].cpu_ns, 0); /* from stat's ticks */
    proc_threads_done(&threads);
    assert_int_equal(proc_read_threads(tree->fd, 99, &threads), -ESRCH);
}

static void the_load_of_a_process_is_its_threads(void **state)
{
    struct tree *tree = *state;
    struct proc_load load = {0};

    assert_int_equal(proc_read_load(tree->fd, 17, 8, &load), 0);
    assert_int_equal(load.threads, 1); /* the other one has no schedstat */
    assert_int_equal(load.cpu_ns, 1000);
    assert_int_equal(load.wait_ns, 2000);
    assert_int_equal(proc_read_load(tree->fd, 17, 0, &load), -E2BIG);
    assert_int_equal(proc_read_load(tree->fd, 99, 8, &load), -ESRCH);
}

static void processes_are_listed_in_order(void **state)
{
    struct tree *tree = *state;
    pid_t *pids;
    size_t n;

    assert_int_equal(proc_list(tree->fd, &pids, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(pids[0], 17);
    assert_int_equal(pids[1], 18);
    assert_int_equal(pids[2], 20);
    assert_int_equal(pids[3], 21);
    free(pids);
}

static void a_command_line_without_a_final_nul_gets_one(void **state)
{
    struct tree *tree = *state;
    char *text;
    size_t len;

    assert_int_equal(proc_read_cmdline(tree->fd, 17, &text, &len), 0);
    assert_int_equal(len, 7);
    assert_memory_equal(text, "python", 7);
    free(text);
}

/* ---- this machine's own /proc ---- */

static int setup_real(void **state)
{
    static int root;

    root = file_open_root();
    *state = &root;
    return root < 0;
}

static int teardown_real(void **state)
{
    return close(*(int *)*state);
}

static void own_process_is_seen_as_it_is(void **state)
{
    int root = *(int *)*state;
    struct proc_stat stat;
    struct proc_status status;
    struct cpuset affinity;

    assert_int_equal(proc_read_stat(root, getpid(), &stat), 0);
    assert_int_equal(stat.pid, getpid());
    assert_int_equal(stat.parent, getppid());
    assert_int_equal(stat.state, 'R');
    assert_int_equal(proc_read_status(root, getpid(), &status), 0);
    assert_int_equal(status.uid, geteuid());
    assert_int_equal(proc_all_of(&status, geteuid()), getuid() == geteuid());
    assert_int_equal(proc_get_affinity(0, &affinity), 0);
    assert_true(cpuset_equal(&affinity, &status.allowed));
}

static void on_signal(int number)
{
}

static void a_handler_is_seen_when_it_is_installed(void **state)
{
    int root = *(int *)*state, number = SIGRTMIN + 7;
    struct proc_status status;

    assert_int_equal(proc_read_status(root, getpid(), &status), 0);
    assert_false(proc_has_handler(&status, number));
    signal(number, on_signal);
    assert_int_equal(proc_read_status(root, getpid(), &status), 0);
    assert_true(proc_has_handler(&status, number));
    signal(number, SIG_DFL);
}

static void a_process_that_is_gone_is_esrch_everywhere(void **state)
{
    int root = *(int *)*state;
    struct proc_stat stat;
    struct proc_status status;
    struct proc_threads threads;
    struct proc_runtimes runtimes;
    struct cpuset set;
    char path[64], *text;
    size_t len;
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    assert_int_equal(proc_read_stat(root, pid, &stat), -ESRCH);
    assert_int_equal(proc_read_status(root, pid, &status), -ESRCH);
    assert_int_equal(proc_read_threads(root, pid, &threads), -ESRCH);
    assert_int_equal(proc_read_runtimes(root, pid, &runtimes), -ESRCH);
    assert_int_equal(proc_read_cmdline(root, pid, &text, &len), -ESRCH);
    assert_int_equal(proc_read_cgroup(root, pid, "cpu", path, sizeof(path)), -ESRCH);
    assert_int_equal(proc_get_affinity(pid, &set), -ESRCH);
    assert_int_equal(proc_get_affinity_all(root, pid, &set, NULL), -ESRCH);
    assert_int_equal(proc_pidfd_open(pid), -ESRCH);
    cpuset_zero(&set);
    cpuset_add(&set, 0);
    assert_int_equal(proc_set_affinity(root, pid, &set, NULL), -ESRCH);
}

static void a_pidfd_tells_the_end(void **state)
{
    int fds[2], fd;
    struct pollfd p;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        char c;

        close(fds[1]);
        _exit(read(fds[0], &c, 1) != 0);
    }
    close(fds[0]);
    fd = proc_pidfd_open(pid);
    assert_true(fd >= 0);
    p = (struct pollfd){.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    close(fds[1]);
    assert_int_equal(poll(&p, 1, 30000), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(fd);
}

static void the_environment_of_the_start_is_read(void **state)
{
    int root = *(int *)*state, fds[2];
    char *value = NULL, byte;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        execle("/bin/sh", "sh", "-c", "echo; kill -STOP $$", NULL,
               (char *[]){(char *)"TIDE_TOKENS=no", (char *)"TIDE_TOKEN=abc=d", NULL});
        _exit(127);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(proc_read_environ(root, pid, "TIDE_TOKEN", &value), 0);
    assert_string_equal(value, "abc=d");
    free(value);
    assert_int_equal(proc_read_environ(root, pid, "TIDE", &value), -ENODATA);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fds[0]);
}

/* A process that keeps making threads, each of which makes the next before it ends. */
static void *breed(void *arg)
{
    pthread_t next;
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 65536);
    usleep(2000);
    pthread_create(&next, &attr, breed, NULL);
    return NULL;
}

static void *sleep_long(void *arg)
{
    pause();
    return NULL;
}

static pid_t start_breeder(void)
{
    int fds[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        pthread_t thread;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < 20; i++)
            pthread_create(&thread, NULL, sleep_long, NULL);
        breed(NULL);
        if (write(fds[1], "", 1) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return pid;
}

static void affinity_reaches_every_thread_also_those_being_born(void **state)
{
    int root = *(int *)*state;
    struct cpuset usable, one, got;
    unsigned threads = 0;
    bool uniform = false;
    pid_t pid = start_breeder();

    assert_int_equal(proc_get_affinity(0, &usable), 0);
    cpuset_zero(&one);
    cpuset_add(&one, (unsigned)cpuset_next(&usable, 0));
    for (int i = 0; i < 20; i++) {
        int r = proc_set_affinity(root, pid, i % 2 ? &usable : &one, &threads);

        assert_int_equal(r, 0);
        assert_true(threads >= 21);
        assert_int_equal(proc_get_affinity_all(root, pid, &got, &uniform), 0);
        assert_true(uniform);
        assert_true(cpuset_equal(&got, i % 2 ? &usable : &one));
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void affinity_to_a_cpu_that_is_not_there_is_einval(void **state)
{
    struct cpuset none;

    cpuset_zero(&none);
    assert_int_equal(proc_set_affinity(*(int *)*state, getpid(), &none, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest pure[] = {
        cmocka_unit_test(stat_is_read_field_by_field),
        cmocka_unit_test(a_comm_may_look_like_the_rest_of_the_line),
        cmocka_unit_test(a_damaged_stat_is_refused),
        cmocka_unit_test(status_tells_owner_cpus_and_handlers),
        cmocka_unit_test(a_status_with_a_field_missing_or_damaged_is_refused),
        cmocka_unit_test(schedstat_is_run_and_wait_time),
        cmocka_unit_test(memory_of_its_own_is_what_no_file_backs),
        cmocka_unit_test(the_machine_is_busy_when_it_neither_idles_nor_waits_for_disks),
        cmocka_unit_test(idle_time_is_that_of_the_cpus_asked_for),
        cmocka_unit_test(cgroup_membership_is_found_by_controller),
        cmocka_unit_test(libraries_are_known_by_their_names),
        cmocka_unit_test(tensorflows_own_litert_is_not_told),
        cmocka_unit_test(other_mappings_are_no_runtimes),
        cmocka_unit_test(a_library_may_carry_its_version_in_its_name),
    };
    const struct CMUnitTest tree[] = {
        cmocka_unit_test(runtimes_carry_the_version_of_their_package),
        cmocka_unit_test(a_process_leads_to_nothing_outside_its_root),
        cmocka_unit_test(switches_are_read_from_a_threads_status),
        cmocka_unit_test(no_program_makes_the_search_long),
        cmocka_unit_test(an_executable_tells_what_it_contains),
        cmocka_unit_test(threads_that_end_meanwhile_are_left_out),
        cmocka_unit_test(the_load_of_a_process_is_its_threads),
        cmocka_unit_test(processes_are_listed_in_order),
        cmocka_unit_test(a_command_line_without_a_final_nul_gets_one),
    };
    const struct CMUnitTest real[] = {
        cmocka_unit_test(own_process_is_seen_as_it_is),
        cmocka_unit_test(a_handler_is_seen_when_it_is_installed),
        cmocka_unit_test(a_process_that_is_gone_is_esrch_everywhere),
        cmocka_unit_test(a_pidfd_tells_the_end),
        cmocka_unit_test(the_environment_of_the_start_is_read),
        cmocka_unit_test(affinity_reaches_every_thread_also_those_being_born),
        cmocka_unit_test(affinity_to_a_cpu_that_is_not_there_is_einval),
    };

    return cmocka_run_group_tests(pure, NULL, NULL) +
           cmocka_run_group_tests(tree, setup_tree, teardown_tree) +
           cmocka_run_group_tests(real, setup_real, teardown_real);
}
