/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_start(), observed from the inside of what it starts: run with --auto-exit this executable
 * writes down what it was given (environment, descriptors, signals, session) and answers on
 * api.sock until the file "stop" appears; the file "fail" makes it end at once.
 */
#include "host/net/daemon.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#define TIMEOUT_MS 30000

static char self[FILE_PATH_MAX];

/* ---- inside ---- */

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = -1; /* without the directory's own */

    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void write_down(const char *dir)
{
    struct proc_status status;
    struct cpuset affinity;
    char path[128], cwd[64] = "";
    int root = file_open_root();
    FILE *file;

    snprintf(path, sizeof(path), "%s/seen-%d", dir, (int)getpid());
    proc_read_status(root, getpid(), &status);
    proc_get_affinity(0, &affinity);
    close(root);
    file = fopen(path, "we");
    fprintf(file, "preload=%s\ntoken=%s\nkept=%s\n", getenv("LD_PRELOAD") ? "set" : "unset",
            getenv("TIDE_TOKEN") ? "set" : "unset", getenv("TIDE_TEST_KEPT"));
    fprintf(file, "fds=%d\n", count_descriptors() - 1); /* without this file */
    fprintf(file, "cwd=%s\n", getcwd(cwd, sizeof(cwd)));
    fprintf(file, "blocked=%d\n", status.sig_blocked != 0);
    fprintf(file, "hup_ignored=%d\n", (int)(status.sig_ignored & 1));
    fprintf(file, "own_session=%d\n", getsid(0) != getpid() && getppid() != getsid(0));
    fprintf(file, "cpus=%u\n", cpuset_count(&affinity));
    fclose(file);
}

static int act_as_daemon(const char *dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/fail", dir);
    if (access(path, F_OK) == 0) {
        fprintf(stderr, "first line\ncannot do it: no reason\n");
        return 1;
    }
    write_down(dir);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/api.sock", dir);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/stop", dir);
    for (int i = 0; i < 3000 && access(path, F_OK) < 0; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        if (poll(&p, 1, 10) > 0) {
            char buf[1024];
            int peer = accept(fd, NULL, NULL);

            if (recv(peer, buf, sizeof(buf), 0) > 0)
                send(peer, answer, strlen(answer), MSG_NOSIGNAL);
            close(peer);
        }
    }
    return 0;
}

/* ---- outside ---- */

static int setup(void **state)
{
    static struct tree tree;

    tree_init(&tree, NULL, 0);
    *state = &tree;
    return 0;
}

static int teardown(void **state)
{
    struct tree *tree = *state;

    tree_write(tree, "stop", "");
    usleep(30000); /* the daemon looks every 10 ms */
    tree_done(tree);
    return 0;
}

/* Contents of the one seen-PID file; the number of such files. */
static int read_seen(struct tree *tree, char *text, size_t size)
{
    DIR *dir = opendir(tree->path);
    int n = 0;

    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "seen-", 5) == 0) {
            assert_true(file_read(tree->fd, entry->d_name, text, size) >= 0);
            n++;
        }
    }
    closedir(dir);
    return n;
}

static void the_daemon_starts_with_a_clean_slate(void **state)
{
    struct tree *tree = *state;
    struct cpuset before, one;
    struct error err = {0};
    char text[1024] = "", cpus[32];
    sigset_t mask;
    int root = file_open_root(), leaked = open("/dev/null", O_RDONLY); /* without CLOEXEC */

    assert_int_equal(proc_get_affinity(0, &before), 0);
    cpuset_zero(&one);
    cpuset_add(&one, (unsigned)cpuset_next(&before, 0));
    assert_int_equal(proc_set_affinity(root, getpid(), &one, NULL), 0);
    setenv("LD_PRELOAD", "", 1);
    setenv("TIDE_TOKEN", "secret", 1);
    setenv("TIDE_TEST_KEPT", "yes", 1);
    signal(SIGHUP, SIG_IGN);
    sigfillset(&mask);
    sigprocmask(SIG_BLOCK, &mask, NULL);

    assert_int_equal(daemon_start(tree->path, self, NULL, TIMEOUT_MS, &err), 0);

    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    signal(SIGHUP, SIG_DFL);
    unsetenv("LD_PRELOAD");
    assert_int_equal(proc_set_affinity(root, getpid(), &before, NULL), 0);
    close(leaked);
    close(root);
    assert_int_equal(read_seen(tree, text, sizeof(text)), 1);
    snprintf(cpus, sizeof(cpus), "cpus=%u\n", cpuset_count(&before));
    assert_non_null(strstr(text, "preload=unset\ntoken=unset\nkept=yes\n"));
    assert_non_null(strstr(text, "fds=3\ncwd=/\nblocked=0\nhup_ignored=0\nown_session=1\n"));
    assert_non_null(strstr(text, cpus));
}

static void a_running_daemon_is_not_started_again(void **state)
{
    struct tree *tree = *state;
    struct error err = {0};
    char text[1024];

    assert_int_equal(daemon_start(tree->path, self, NULL, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(daemon_start(tree->path, self, NULL, TIMEOUT_MS, &err), 1);
    assert_int_equal(read_seen(tree, text, sizeof(text)), 1);
}

static void racing_callers_start_one_daemon(void **state)
{
    struct tree *tree = *state;
    int fds[2], started = 0, found = 0;
    char text[1024], byte;

    assert_int_equal(pipe(fds), 0);
    for (int i = 0; i < 12; i++) {
        if (fork() == 0) {
            close(fds[1]);
            if (read(fds[0], &byte, 1) != 0) /* all go when the pipe closes */
                _exit(9);
            _exit(daemon_start(tree->path, self, NULL, TIMEOUT_MS, NULL) & 0x7f);
        }
    }
    close(fds[0]);
    close(fds[1]);
    for (int i = 0; i < 12; i++) {
        int status;

        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status));
        started += WEXITSTATUS(status) == 0;
        found += WEXITSTATUS(status) == 1;
    }
    assert_int_equal(started, 1);
    assert_int_equal(found, 11);
    assert_int_equal(read_seen(tree, text, sizeof(text)), 1);
}

static void a_daemon_that_ends_at_once_is_told_with_its_last_words(void **state)
{
    struct tree *tree = *state;
    struct error err = {0};

    tree_write(tree, "fail", "");
    assert_int_equal(daemon_start(tree->path, self, NULL, TIMEOUT_MS, &err), -ECHILD);
    assert_non_null(strstr(err.text, "cannot do it: no reason"));
    assert_null(strstr(err.text, "first line"));
}

static void what_keeps_it_from_starting_is_told(void **state)
{
    struct tree *tree = *state;
    struct error err = {0};
    char path[128];

    assert_int_equal(daemon_start(tree->path, "/nonexistent/tided", NULL, TIMEOUT_MS, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/tided"));
    assert_int_equal(daemon_start("/nonexistent/dir", self, NULL, TIMEOUT_MS, &err), -ENOENT);
    snprintf(path, sizeof(path), "%s/link", tree->path);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_true(daemon_start(path, self, NULL, TIMEOUT_MS, &err) < 0);
    assert_int_equal(fchmod(tree->fd, 0777), 0); /* others could put their own socket there */
    assert_int_equal(daemon_start(tree->path, self, NULL, TIMEOUT_MS, &err), -EPERM);
}

static void the_program_is_found_beside_ours_or_where_told(void **state)
{
    char path[FILE_PATH_MAX];
    struct error err;

    unsetenv("TIDE_DAEMON");
    assert_int_equal(daemon_find_program(path, sizeof(path), &err), -ENOENT); /* none beside us */
    assert_non_null(strstr(err.text, "there is no "));
    setenv("TIDE_DAEMON", self, 1);
    assert_int_equal(daemon_find_program(path, sizeof(path), &err), 0);
    assert_string_equal(path, self);
    assert_int_equal(daemon_find_program(path, 4, NULL), -ENAMETOOLONG);
    setenv("TIDE_DAEMON", "/nonexistent/tided", 1);
    assert_int_equal(daemon_find_program(path, sizeof(path), &err), -ENOENT);
    assert_non_null(strstr(err.text, "TIDE_DAEMON names /nonexistent/tided"));
    unsetenv("TIDE_DAEMON");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_daemon_starts_with_a_clean_slate, setup, teardown),
        cmocka_unit_test_setup_teardown(a_running_daemon_is_not_started_again, setup, teardown),
        cmocka_unit_test_setup_teardown(racing_callers_start_one_daemon, setup, teardown),
        cmocka_unit_test_setup_teardown(a_daemon_that_ends_at_once_is_told_with_its_last_words,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_keeps_it_from_starting_is_told, setup, teardown),
        cmocka_unit_test(the_program_is_found_beside_ours_or_where_told),
    };
    ssize_t n;

    if (argc == 4 && strcmp(argv[1], "--auto-exit") == 0)
        return act_as_daemon(argv[3]);
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return 1;
    self[n] = '\0';
    return cmocka_run_group_tests(tests, NULL, NULL);
}
