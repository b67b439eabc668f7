/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `docker run`: tide's options are found, docker's stay unchanged. */
#include "cli/docker/docker_words.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct command test_command = {.name = "docker"};

#define READ(words, ...) docker_words_read(&test_command, (char *[]){__VA_ARGS__, NULL}, &(words))

/* The words that docker gets, with blanks between. */
static void assert_theirs(const struct docker_words *words, const char *expected)
{
    char joined[512] = "";

    for (size_t i = 0; i < words->theirs.n; i++) {
        strcat(joined, i ? " " : "");
        strcat(joined, words->theirs.word[i]);
    }
    assert_string_equal(joined, expected);
}

static void our_options_are_found_among_dockers(void **state)
{
    struct docker_words w;

    assert_int_equal(READ(w, "--rm", "--max", "4", "-v", "/a:/b", "--min=2", "-it", "--priority",
                          "-5", "image", "prog", "--max", "9"),
                     CLI_OK);
    assert_theirs(&w, "--rm -v /a:/b -it image prog --max 9");
    assert_string_equal(w.image, "image");
    assert_int_equal(member_long(w.terms, "max"), 4);
    assert_int_equal(member_long(w.terms, "min"), 2);
    assert_int_equal(member_long(w.terms, "priority"), -5);
    assert_null(docker_words_variable(&w, "LD_PRELOAD"));
    docker_words_done(&w);
}

static void value_that_looks_like_an_option_is_a_value(void **state)
{
    struct docker_words w;

    assert_int_equal(READ(w, "--name", "--max", "--entrypoint", "-e", "-h", "--rm", "-tw", "-i",
                          "-p=80:80", "image", "x"),
                     CLI_OK);
    assert_theirs(&w, "--name --max --entrypoint -e -h --rm -tw -i -p=80:80 image x");
    assert_string_equal(w.image, "image");
    assert_null(w.terms);
    docker_words_done(&w);
}

static void switches_do_not_eat_the_image(void **state)
{
    static char *const switches[] = {
        "-d",
        "--detach",
        "--disable-content-trust",
        "--init",
        "-i",
        "--interactive",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--privileged",
        "-P",
        "--publish-all",
        "-q",
        "--quiet",
        "--read-only",
        "--rm",
        "--sig-proxy",
        "-t",
        "--tty",
        "--use-api-socket",
        "--rm=false",
        "-t=false",
        "-itd",
    };

    for (size_t i = 0; i < ARRAY_LEN(switches); i++) {
        struct docker_words w;

        assert_int_equal(READ(w, switches[i], "image", "--max", "3"), CLI_OK);
        assert_string_equal(w.image, "image");
        assert_null(w.terms);
        docker_words_done(&w);
    }
}

static void behind_an_unknown_option_everything_is_dockers(void **state)
{
    static char *const unknown[] = {"--brand-new", "--brand-new=1", "-Z", "-iZ", "---"};

    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        struct docker_words w;

        assert_int_equal(READ(w, "--max", "4", unknown[i], "--max", "3", "image"), CLI_OK);
        assert_int_equal(member_long(w.terms, "max"), 4);
        assert_int_equal(w.theirs.n, 4);
        assert_string_equal(w.theirs.word[0], unknown[i]);
        assert_string_equal(w.theirs.word[1], "--max");
        assert_null(w.image);
        docker_words_done(&w);
    }
}

static void two_dashes_end_the_options(void **state)
{
    struct docker_words w;

    assert_int_equal(READ(w, "-i", "--", "image", "--max", "3"), CLI_OK);
    assert_theirs(&w, "-i -- image --max 3");
    assert_string_equal(w.image, "image");
    docker_words_done(&w);
}

static void own_preload_is_taken_out_however_it_is_written(void **state)
{
    struct docker_words w;

    setenv("LD_PRELOAD_", "no", 1);
    assert_int_equal(READ(w, "-e", "LD_PRELOAD=a", "image"), CLI_OK);
    assert_theirs(&w, "image");
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "a");
    docker_words_done(&w);
    assert_int_equal(READ(w, "-ite", "LD_PRELOAD=b", "--env", "A=b", "image"), CLI_OK);
    assert_theirs(&w, "-it --env A=b image");
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "b");
    docker_words_done(&w);
    assert_int_equal(READ(w, "-ie=LD_PRELOAD=c", "-eLD_PRELOAD=d", "image"), CLI_OK);
    assert_theirs(&w, "-i image");
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "d");
    docker_words_done(&w);
    assert_int_equal(READ(w, "--env=LD_PRELOAD=", "-e", "LD_PRELOAD_=1", "image"), CLI_OK);
    assert_theirs(&w, "-e LD_PRELOAD_=1 image");
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "");
    docker_words_done(&w);
    /* Without "=" docker takes it from its own environment. */
    assert_int_equal(READ(w, "-e", "LD_PRELOAD", "image"), CLI_OK);
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "");
    docker_words_done(&w);
}

static void preload_of_a_file_of_variables_counts_unless_an_option_says_more(void **state)
{
    char path[] = "/tmp/tide-env-XXXXXX";
    static const char text[] =
        "# LD_PRELOAD=no\nA=b\r\n  LD_PRELOAD=f\nLD_PRELOADS=no\nTIDE_NOBODY\n";
    struct docker_words w;
    int fd = mkostemp(path, O_CLOEXEC);

    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    assert_int_equal(READ(w, "--env-file", path, "image"), CLI_OK);
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "f");
    assert_string_equal(docker_words_variable(&w, "A"), "b");
    assert_null(docker_words_variable(&w, "TIDE_NOBODY")); /* docker skips it: the image's counts */
    assert_int_equal(w.theirs.n, 3);
    docker_words_done(&w);
    assert_int_equal(READ(w, "-e", "LD_PRELOAD=e", "--env-file", path, "image"), CLI_OK);
    assert_string_equal(docker_words_variable(&w, "LD_PRELOAD"), "e");
    docker_words_done(&w);
    unlink(path);
    assert_int_equal(READ(w, "--env-file", path, "image"), CLI_OK);
    assert_null(docker_words_variable(&w, "LD_PRELOAD"));
    docker_words_done(&w);
}

static void variables_and_limits_are_read_and_stay_dockers(void **state)
{
    struct docker_words w;

    assert_int_equal(READ(w, "-e", "A=1", "--env=A=2", "-eB", "--cpus", "1.5", "--cpuset-cpus=0-2",
                          "--cpu-quota=900000", "image"),
                     CLI_OK);
    assert_theirs(&w, "-e A=1 --env=A=2 -eB --cpus 1.5 --cpuset-cpus=0-2 --cpu-quota=900000 image");
    assert_string_equal(docker_words_variable(&w, "A"), "2");
    assert_string_equal(docker_words_variable(&w, "B"), "");
    assert_null(docker_words_variable(&w, "C"));
    assert_string_equal(w.cpuset, "0-2");
    assert_true(w.cpus > 1.49 && w.cpus < 1.51);
    docker_words_done(&w);
    assert_int_equal(READ(w, "--cpu-quota=50000", "--cpu-period", "20000", "image"), CLI_OK);
    assert_true(w.cpus > 2.49 && w.cpus < 2.51);
    docker_words_done(&w);
    assert_int_equal(READ(w, "--cpu-quota", "50000", "image"), CLI_OK);
    assert_true(w.cpus > 0.49 && w.cpus < 0.51);
    docker_words_done(&w);
}

static void wrong_values_of_ours_are_complained_about(void **state)
{
    struct docker_words w;

    assert_int_equal(READ(w, "--max", "many", "image"), CLI_USAGE);
    docker_words_done(&w);
    assert_int_equal(READ(w, "--max"), CLI_USAGE);
    docker_words_done(&w);
    assert_int_equal(READ(w, "--min", "3", "--max", "2", "image"), CLI_USAGE);
    docker_words_done(&w);
    assert_int_equal(READ(w, "--placement", "here", "image"), CLI_USAGE);
    docker_words_done(&w);
    assert_int_equal(READ(w, "--deadline", "soon", "image"), CLI_USAGE);
    docker_words_done(&w);
    /* docker itself reports a missing value of its own option. */
    assert_int_equal(READ(w, "-v"), CLI_OK);
    assert_theirs(&w, "-v");
    docker_words_done(&w);
}

static void options_of_docker_itself_are_counted(void **state)
{
    assert_int_equal(docker_words_global((char *[]){"run", NULL}), 0);
    assert_int_equal(docker_words_global((char *[]){"-H", "run", "-D", "run", NULL}), 3);
    assert_int_equal(
        docker_words_global((char *[]){"--host=x", "--context", "c", "--tls", "tide", NULL}), 4);
    assert_int_equal(docker_words_global((char *[]){"-H", NULL}), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_options_are_found_among_dockers),
        cmocka_unit_test(value_that_looks_like_an_option_is_a_value),
        cmocka_unit_test(switches_do_not_eat_the_image),
        cmocka_unit_test(behind_an_unknown_option_everything_is_dockers),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(own_preload_is_taken_out_however_it_is_written),
        cmocka_unit_test(variables_and_limits_are_read_and_stay_dockers),
        cmocka_unit_test(preload_of_a_file_of_variables_counts_unless_an_option_says_more),
        cmocka_unit_test(wrong_values_of_ours_are_complained_about),
        cmocka_unit_test(options_of_docker_itself_are_counted),
    };

    unsetenv("LD_PRELOAD");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
