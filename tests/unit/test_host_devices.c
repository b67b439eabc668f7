/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: their numbers as text, those of a recorded machine, those that a process has open. */
#include "base/size.h"
#include "host/proc/devices.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void numbers_read_back_as_they_were_written(void **state)
{
    static const char *const good[] = {"nvidia=1", "nvidia=2,uverbs=1", "render=64,vfio=3",
                                       "nvidia=64,render=64,accel=64,uverbs=64,vfio=64"};
    char text[DEVICES_TEXT_MAX];
    int64_t counts;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(devices_parse(good[i], &counts), 0);
        assert_in_range(counts, 1, DEVICES_COUNTS_MAX);
        assert_string_equal(devices_text(counts, text), good[i]);
    }
    assert_int_equal(devices_parse("uverbs=3,nvidia=2", &counts), 0);
    assert_int_equal(devices_of(counts, DEVICE_NVIDIA), 2);
    assert_int_equal(devices_of(counts, DEVICE_UVERBS), 3);
    assert_int_equal(devices_of(counts, DEVICE_RENDER), 0);
    assert_int_equal(devices_total(counts), 5);
    assert_string_equal(devices_text(0, text), "");
}

static void what_is_no_list_of_numbers_is_refused(void **state)
{
    static const char *const bad[] = {"",           "nvidia",     "nvidia=",   "nvidia=0",
                                      "nvidia=65",  "nvidia=1,",  ",nvidia=1", "nvidia=1,nvidia=1",
                                      "nvidia=-1",  "nvidia= 1",  "nvidia=1 ", "nvidia=1;vfio=1",
                                      "gpu=1",      "nvidia=1=1", "NVIDIA=1",  "nvidia=0001",
                                      "nvidia=1.5", "=1",         "nvidiaa=1", "nvid=1"};
    int64_t counts = 77;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(devices_parse(bad[i], &counts), -EINVAL);
    assert_int_equal(counts, 77);
}

static void nodes_of_devices_are_told_from_those_of_their_drivers(void **state)
{
    static const struct {
        const char *path;
        int kind;
        unsigned number;
    } nodes[] = {
        {"/dev/nvidia0", DEVICE_NVIDIA, 0},
        {"/dev/nvidia15", DEVICE_NVIDIA, 15},
        {"/dev/dri/renderD128", DEVICE_RENDER, 128},
        {"/dev/accel/accel1", DEVICE_ACCEL, 1},
        {"/dev/accel1", DEVICE_ACCEL, 1},
        {"/dev/infiniband/uverbs2", DEVICE_UVERBS, 2},
        {"/dev/vfio/107", DEVICE_VFIO, 107},
        {"/dev/nvidiactl", -1, 0},
        {"/dev/nvidia-uvm", -1, 0},
        {"/dev/nvidia", -1, 0},
        {"/dev/nvidia0 (deleted)", -1, 0},
        {"/dev/nvidia00001", -1, 0},
        {"/dev/nvidia-caps/nvidia-cap1", -1, 0},
        {"/dev/dri/card0", -1, 0},
        {"/dev/kfd", -1, 0},
        {"/dev/infiniband/rdma_cm", -1, 0},
        {"/dev/vfio/vfio", -1, 0},
        {"/dev/null", -1, 0},
        {"/home/dev/nvidia0", -1, 0},
        {"", -1, 0},
    };

    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        struct device device;

        assert_int_equal(proc_parse_device(nodes[i].path, &device), nodes[i].kind >= 0);
        if (nodes[i].kind < 0)
            continue;
        assert_int_equal(device.kind, nodes[i].kind);
        assert_int_equal(device.number, nodes[i].number);
    }
}

static void link_fd(const struct tree *tree, const char *path, const char *node)
{
    assert_int_equal(symlinkat(node, tree->fd, path), 0);
}

/* A training: process 7 feeds two GPUs, 8 is its helper, 9 closed the node that it has mapped. */
static void a_process_holds_the_devices_that_it_has_open(void **state)
{
    static const struct tree_file files[] = {
        {"proc/7/fd/", NULL},
        {"proc/7/maps", "7f00-7f10 rw-s 00000000 00:05 77 /dev/nvidia9\n"},
        {"proc/8/fd/", NULL},
        {"proc/8/maps", "7f00-7f10 rw-s 00000000 00:05 77 /dev/nvidia9\n"},
        {"proc/9/fd/", NULL},
        {"proc/9/maps", "55f0-55f1 r-xp 00000000 08:01 99 /usr/bin/python3\n"
                        "7f00-7f10 rw-s 00000000 00:05 77                 /dev/nvidia3\n"
                        "7f20-7f30 rw-s 00000000 00:05 78                 /dev/nvidiactl\n"
                        "7f40-7f50 r--p 00000000 08:01 98 /home/x /dev/nvidia4 \n"},
    };
    char names[DEVICES_NAMES_MAX];
    struct device_set set = {0};
    struct tree tree;

    tree_init(&tree, files, sizeof(files) / sizeof(files[0]));
    link_fd(&tree, "proc/7/fd/0", "/dev/null");
    link_fd(&tree, "proc/7/fd/1", "socket:[4711]");
    link_fd(&tree, "proc/7/fd/2", "/dev/nvidiactl");
    link_fd(&tree, "proc/7/fd/3", "/dev/nvidia1");
    link_fd(&tree, "proc/7/fd/4", "/dev/nvidia0");
    link_fd(&tree, "proc/7/fd/5", "/dev/nvidia1");
    link_fd(&tree, "proc/8/fd/0", "/dev/null");
    link_fd(&tree, "proc/9/fd/3", "/dev/nvidiactl");
    assert_int_equal(proc_read_devices(tree.fd, 7, &set), 0);
    assert_string_equal(device_set_text(&set, names, sizeof(names)), "nvidia0, nvidia1");
    assert_int_equal(proc_read_devices(tree.fd, 8, &set), 0);
    assert_int_equal(set.n, 2);
    assert_int_equal(proc_read_devices(tree.fd, 9, &set), 0);
    assert_string_equal(device_set_text(&set, names, sizeof(names)), "nvidia0, nvidia1, nvidia3");
    assert_int_equal(device_set_count(&set, DEVICE_NVIDIA, NULL), 3);
    assert_int_equal(device_set_count(&set, DEVICE_VFIO, NULL), 0);
    assert_int_equal(proc_read_devices(tree.fd, 10, &set), -ESRCH);
    tree_done(&tree);
}

static void the_machines_devices_are_those_that_the_kernel_lists(void **state)
{
    static const struct tree_file files[] = {
        {"proc/driver/nvidia/gpus/0000:17:00.0/information", ""},
        {"proc/driver/nvidia/gpus/0000:65:00.0/information", ""},
        {"sys/class/drm/card0/", NULL},
        {"sys/class/drm/card0-VGA-1/", NULL},
        {"sys/class/drm/version", ""},
        {"sys/class/drm/renderD128/", NULL},
        {"sys/class/infiniband_verbs/abi_version", ""},
        {"sys/class/infiniband_verbs/uverbs0/", NULL},
    };
    char text[DEVICES_TEXT_MAX];
    struct tree tree;

    tree_init(&tree, NULL, 0);
    assert_int_equal(proc_count_devices(tree.fd), 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        tree_write(&tree, files[i].path, files[i].text ? files[i].text : "");
    assert_string_equal(devices_text(proc_count_devices(tree.fd), text),
                        "nvidia=2,render=1,uverbs=1");
    tree_done(&tree);
}

static void a_set_that_is_full_stays_as_it_is(void **state)
{
    struct device_set set = {0}, but = {0};
    char names[DEVICES_NAMES_MAX];

    for (uint16_t i = 0; i < DEVICES_SET_MAX + 3; i++)
        device_set_add(&set, (struct device){DEVICE_VFIO, (uint16_t)(1000 - i)});
    assert_int_equal(set.n, DEVICES_SET_MAX);
    assert_int_equal(set.of[0].number, 1000 - DEVICES_SET_MAX + 1);
    assert_true(strlen(device_set_text(&set, names, sizeof(names))) < sizeof(names) - 1);
    device_set_add(&but, set.of[3]);
    assert_int_equal(device_set_count(&set, DEVICE_VFIO, &but), DEVICES_SET_MAX - 1);
    assert_string_equal(device_set_text(&set, names, 8), "vfio969");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_back_as_they_were_written),
        cmocka_unit_test(what_is_no_list_of_numbers_is_refused),
        cmocka_unit_test(nodes_of_devices_are_told_from_those_of_their_drivers),
        cmocka_unit_test(a_process_holds_the_devices_that_it_has_open),
        cmocka_unit_test(the_machines_devices_are_those_that_the_kernel_lists),
        cmocka_unit_test(a_set_that_is_full_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
