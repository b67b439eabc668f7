/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which the file of caps is synced and renamed. --wrap sends both calls here and to
 * disk_steps.h. */
#include "daemon/energy/cap_file.h"

#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "disk_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);

int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return note('r') < 0 ? -1 : __real_renameat(from_fd, from, to_fd, to);
}

static struct daemon d;
static char dir[64];

static int setup(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/test-cap-file-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    d.state_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d.root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    done[0] = failing = '\0';
    return d.state_fd < 0 || d.root < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    unlinkat(d.state_fd, CAP_FILE, 0);
    close(d.state_fd);
    close(d.root);
    return rmdir(dir);
}

static void a_cap_is_on_the_disk_by_its_name_when_it_is_saved(void **state)
{
    assert_int_equal(cap_file_save(&d, &(struct caps){0}), 0);
    assert_string_equal(done, "frd");
    assert_true(synced > 0);
}

static void what_the_disk_does_not_take_is_told(void **state)
{
    static const char steps[] = "frd";

    for (const char *step = steps; *step; step++) {
        done[0] = '\0';
        failing = *step;
        assert_int_equal(cap_file_save(&d, &(struct caps){0}), -EIO);
        assert_int_equal(faccessat(d.state_fd, CAP_FILE ".new", F_OK, 0), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cap_is_on_the_disk_by_its_name_when_it_is_saved, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_the_disk_does_not_take_is_told, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
