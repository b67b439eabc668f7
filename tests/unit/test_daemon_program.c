/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls of programs are alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/job/program.h"
#include "host/proc/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXE "/usr/bin/python3.11"

/* @line: words with one blank between. */
static uint64_t in(const char *cwd, const char *line)
{
    char words[400];
    size_t len = strlen(line) + 1;

    memcpy(words, line, len);
    for (size_t i = 0; i < len; i++)
        words[i] = words[i] == ' ' ? '\0' : words[i];
    return program_hash(EXE, 7, cwd, words, len);
}

static void alike(const char *a, const char *b)
{
    if (in("/home/me", a) != in("/home/me", b))
        fail_msg("not alike: '%s', '%s'", a, b);
}

static void different(const char *a, const char *b)
{
    if (in("/home/me", a) == in("/home/me", b))
        fail_msg("alike: '%s', '%s'", a, b);
}

static void numbers_make_no_difference(void **state)
{
    alike("python t.py --lr=0.1 --epochs 3", "python t.py --lr=1e-4 --epochs 250");
    alike("python t.py --lr=0.1", "python t.py --lr=3");
    alike("python t.py -b64", "python t.py -b128");
    alike("python t.py --size 3x224x224", "python t.py --size 1x28x28");
    alike("python t.py --x=1.5e+10", "python t.py --x=7");
    alike("python t.py 1", "python t.py 2");
}

static void words_do(void **state)
{
    different("python t.py --train", "python t.py --test");
    different("python t.py --a 1", "python t.py 1 --a");
    different("python t.py a b", "python t.py ab");
    different("python t.py a=b", "python t.py a b");
    different("python t.py", "python t.py x");
    different("python t.py 1e", "python t.py 1"); /* no exponent */
    different("python t.py 1.", "python t.py 1");
    different("python -O t.py", "python t.py");
}

static void of_paths_the_last_component_counts(void **state)
{
    alike("python t.py --data /a/b/set1", "python t.py --data set2");
    alike("python t.py --data=/a/b/set1", "python t.py --data=../set2/");
    alike("python t.py --data=a=/x/y", "python t.py --data=/b/a=y//");
    different("python t.py --data /a/train", "python t.py --data /a/test");
    alike("python t.py /", "python t.py /");
}

static void the_script_counts_with_its_whole_path(void **state)
{
    alike("python t.py", "python /home/me/t.py");
    alike("python t.py", "python ./x/..//t.py");
    alike("python -u ../../../../home/me/t.py", "python -u t.py");
    different("python t.py", "python /home/you/t.py");
    different("python resnet18.py", "python resnet50.py");
    assert_true(in("/home/me", "python t.py") != in("/home/you", "python t.py"));
    assert_true(in("/home/me", "python /s/t.py") == in("/home/you", "python /s/t.py"));
}

static void the_executable_counts_with_path_and_inode(void **state)
{
    const char words[] = "a\0b";
    uint64_t hash = program_hash(EXE, 7, "/", words, sizeof(words));

    assert_true(hash != program_hash(EXE "x", 7, "/", words, sizeof(words)));
    assert_true(hash != program_hash(EXE, 8, "/", words, sizeof(words)));
    assert_true(hash == program_hash(EXE, 7, "/", "z\0b", sizeof(words))); /* its own name */
}

/* Arguments may hold anything, and paths may be longer than any file's. */
static void hostile_words_are_read_to_their_end(void **state)
{
    static char words[40000];
    const char *const bad[] = {"/", "//", "=",      "==/=/", "1e+", "9.",
                               ".", "..", "/../..", "e5",    "-"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        for (size_t len = 1; len <= strlen(bad[i]) + 1; len++) {
            char text[16] = "p";

            memcpy(text + 2, bad[i], strlen(bad[i]) + 1);
            program_hash(EXE, 7, "/", text, 2 + strlen(bad[i]) + 1);
        }
    memset(words, 'a', sizeof(words) - 1);
    for (size_t i = 1; i < sizeof(words) - 1; i += 200)
        words[i] = '/';
    words[1] = '\0';
    program_hash(EXE, 7, words + 2, words, sizeof(words));
    program_hash(EXE, 7, "/", "", 0);
    program_hash(EXE, 7, "/", "", 1);
}

static void a_process_is_read(void **state)
{
    _cleanup_fd_ int root = file_open_root();
    uint64_t first, second;

    assert_int_equal(program_read(root, getpid(), &first), 0);
    assert_int_equal(program_read(root, getpid(), &second), 0);
    assert_true(first == second);
    assert_true(program_read(root, 0x3fffffff, &first) < 0);
    assert_true(program_processor(root) == program_processor(root));
}

/* As /proc/cpuinfo has it. */
static uint64_t processor(const char *text)
{
    char folder[] = "/tmp/tide-program-XXXXXX", path[64];
    FILE *f;
    uint64_t hash;
    int root;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/proc", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/proc/cpuinfo", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    hash = program_processor(root);
    close(root);
    unlink(path);
    snprintf(path, sizeof(path), "%s/proc", folder);
    rmdir(path);
    rmdir(folder);
    return hash;
}

#define X86(model)                                                                                 \
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 85\nmodel name\t: " model               \
    "\nstepping\t: 4\n"
#define ARM(implementer, part, revision)                                                           \
    "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: " implementer                           \
    "\nCPU variant\t: 0x3\nCPU part\t: " part "\nCPU revision\t: " revision "\n"

static void a_processor_is_told_by_its_model_or_its_part(void **state)
{
    assert_int_not_equal(processor(X86("A")), processor(X86("B")));
    assert_int_equal(processor(X86("A")), processor(X86("A") "microcode\t: 0x1\n"));
    assert_int_not_equal(processor(ARM("0x41", "0xd0c", "1")),
                         processor(ARM("0x41", "0xd40", "1")));
    assert_int_not_equal(processor(ARM("0x41", "0xd0c", "1")),
                         processor(ARM("0x48", "0xd0c", "1")));
    assert_int_equal(processor(ARM("0x41", "0xd0c", "1")), processor(ARM("0x41", "0xd0c", "2")));
    assert_int_equal(processor(""), processor("processor\t: 0\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_make_no_difference),
        cmocka_unit_test(words_do),
        cmocka_unit_test(of_paths_the_last_component_counts),
        cmocka_unit_test(the_script_counts_with_its_whole_path),
        cmocka_unit_test(the_executable_counts_with_path_and_inode),
        cmocka_unit_test(hostile_words_are_read_to_their_end),
        cmocka_unit_test(a_process_is_read),
        cmocka_unit_test(a_processor_is_told_by_its_model_or_its_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
