/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which a file is written, synced and renamed. --wrap sends both calls here and to
 * disk_steps.h. */
#include "base/wholefile.h"

#include "disk_steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __wrap_rename(const char *from, const char *to)
{
    return note('r') < 0 ? -1 : __real_rename(from, to);
}

static int setup(void **state)
{
    char dir[] = "/tmp/test-wholefile-XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return -1;
    *state = strdup(dir);
    done[0] = failing = '\0';
    return wholefile_replace("file", "old", 3, NULL);
}

static int teardown(void **state)
{
    unlink("file");
    if (chdir("/") < 0 || rmdir(*state) < 0) /* nothing else is left in it */
        return -1;
    free(*state);
    return 0;
}

static void assert_text(const char *path, const char *text)
{
    struct stat st;
    char *found;
    size_t len;

    assert_int_equal(wholefile_read(path, 100, &found, &len, &st), 0);
    assert_string_equal(found, text);
    free(found);
}

static void text_is_on_the_disk_before_the_name_and_the_name_before_the_return(void **state)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/file", (const char *)*state);
    for (int relative = 0; relative < 2; relative++) {
        done[0] = '\0';
        assert_int_equal(wholefile_replace(relative ? "file" : path, "newer", 5, NULL), 0);
        assert_string_equal(done, "frd");
        assert_int_equal(synced, 5);
        assert_text(path, "newer");
    }
}

static void file_that_cannot_be_synced_leaves_the_old_one(void **state)
{
    failing = 'f';
    done[0] = '\0';
    assert_int_equal(wholefile_replace("file", "newer", 5, NULL), -EIO);
    assert_string_equal(done, "f");
    assert_text("file", "old");
}

static void rename_that_fails_leaves_the_old_one(void **state)
{
    failing = 'r';
    assert_int_equal(wholefile_replace("file", "newer", 5, NULL), -EIO);
    assert_text("file", "old");
}

static void directory_that_cannot_be_synced_is_said(void **state)
{
    failing = 'd';
    assert_int_equal(wholefile_replace("file", "newer", 5, NULL), -EIO);
    assert_text("file", "newer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            text_is_on_the_disk_before_the_name_and_the_name_before_the_return, setup, teardown),
        cmocka_unit_test_setup_teardown(file_that_cannot_be_synced_leaves_the_old_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(rename_that_fails_leaves_the_old_one, setup, teardown),
        cmocka_unit_test_setup_teardown(directory_that_cannot_be_synced_is_said, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
