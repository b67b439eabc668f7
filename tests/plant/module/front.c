// SPDX-License-Identifier: GPL-2.0-only
/*
 * The plant behind the kernel's own powercap class, for virtual machines in which no processor has
 * RAPL. What the CPUs do comes from the kernel's own accounts of idle time.
 *
 *   insmod tide_plant.ko params=N,… [seed=N] [psys=1] [dram=0] [wrap_uj=N] [step_ms=N] [board=NAME]
 *
 * params are those of plant.h, in its order. A step is made each step_ms; counters stand still in
 * between.
 *
 * intel-rapl:0 "package-0" has constraint_0, which acts: the plant's governor lowers the speed that
 * the cpufreq driver "tide_plant" reports, hence the energy. It slows no real work. The files of
 * debugfs's tide_plant/ tell, to root alone, what the meters hide.
 *
 * board=NAME: a chip of that name in the hwmon class has power1_input, the plant's power at the
 * wall in the last step. It reads board_uw instead once that is written, and fails with errno
 * board_error while that is not 0.
 */
#include "plant.h"

#include <linux/cpufreq.h>
#include <linux/debugfs.h>
#include <linux/hwmon.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/powercap.h>
#include <linux/workqueue.h>

#define BASE_KHZ  2000000
#define WINDOW_US 999424

enum zone_of { OF_PACKAGE, OF_CORE, OF_DRAM, OF_PSYS, ZONES };

static const char *const NAMES[ZONES] = {"package-0", "core", "dram", "psys"};

static unsigned long long params[PLANT_PARAM_COUNT];
static int given;
module_param_array(params, ullong, &given, 0400);
static ulong seed;
module_param(seed, ulong, 0400);
static bool psys;
module_param(psys, bool, 0400);
static bool dram = true;
module_param(dram, bool, 0400);
static unsigned long long wrap_uj = 262143328850ULL;
module_param(wrap_uj, ullong, 0400);
static uint step_ms = 50;
module_param(step_ms, uint, 0400);
static char *board;
module_param(board, charp, 0400);
static long board_uw = LONG_MIN;
module_param(board_uw, long, 0600);
static int board_error;
module_param(board_error, int, 0600);

/* All of it is the lock's. */
static DEFINE_MUTEX(lock);
static struct plant plant;
static struct plant_load load[PLANT_CORES_MAX];
static u64 idle_us[PLANT_CORES_MAX];
static u64 step_ns, time_ns, speed_permille = 1000;
static u64 limit_uw, most_uw, wall_uw;
static bool limited = true;

static struct powercap_control_type *control;
static struct powercap_zone *zones[ZONES];
static struct dentry *folder;
static struct platform_device *board_device;
static struct device *chip;
static void step(struct work_struct *work);
static DECLARE_DELAYED_WORK(stepper, step);

/* Busy time since the last step. CPUs that are off line count as idle. */
static void look(u64 ns)
{
    unsigned int cpu, i = 0;

    for_each_possible_cpu(cpu)
    {
        u64 wall, idle = cpu_online(cpu) ? get_cpu_idle_time(cpu, &wall, 0) : 0;
        u64 idle_ns = (idle - idle_us[i]) * NSEC_PER_USEC;

        load[i].busy_ns = cpu_online(cpu) && idle >= idle_us[i] && idle_ns < ns ? ns - idle_ns : 0;
        idle_us[i] = idle;
        if (++i == plant.cores)
            break;
    }
}

static void step(struct work_struct *work)
{
    u64 now, ns, before;

    mutex_lock(&lock);
    before = plant.total.wall_uj;
    now = ktime_get_ns();
    ns = now - step_ns;
    step_ns = now;
    look(ns);
    speed_permille = plant_govern(&plant, ns, limited ? limit_uw : 0, load);
    plant_step(&plant, ns, load);
    if (ns)
        wall_uw = div64_u64((plant.total.wall_uj - before) * NSEC_PER_SEC, ns);
    time_ns = now;
    mutex_unlock(&lock);
    schedule_delayed_work(&stepper, msecs_to_jiffies(step_ms));
}

static enum zone_of which(const struct powercap_zone *zone)
{
    int i;

    for (i = 0; i < ZONES; i++)
        if (zones[i] == zone)
            return i;
    return OF_PACKAGE; /* it is being registered */
}

static int get_energy(struct powercap_zone *zone, u64 *ret)
{
    mutex_lock(&lock);
    switch (which(zone)) {
    case OF_CORE:
        *ret = plant.total.core_uj;
        break;
    case OF_DRAM:
        *ret = plant.total.dram_uj;
        break;
    case OF_PSYS:
        *ret = plant.total.wall_uj;
        break;
    default:
        *ret = plant.total.package_uj;
    }
    mutex_unlock(&lock);
    *ret %= wrap_uj + 1;
    return 0;
}

static int get_range(struct powercap_zone *zone, u64 *ret)
{
    *ret = wrap_uj;
    return 0;
}

static int get_enable(struct powercap_zone *zone, bool *ret)
{
    *ret = READ_ONCE(limited);
    return 0;
}

static int set_enable(struct powercap_zone *zone, bool mode)
{
    if (which(zone) != OF_PACKAGE)
        return -EINVAL;
    mutex_lock(&lock);
    limited = mode;
    mutex_unlock(&lock);
    return 0;
}

static const struct powercap_zone_ops ZONE_OPS = {
    .get_energy_uj = get_energy,
    .get_max_energy_range_uj = get_range,
    .get_enable = get_enable,
    .set_enable = set_enable,
};

static int get_limit(struct powercap_zone *zone, int id, u64 *ret)
{
    mutex_lock(&lock);
    *ret = limit_uw;
    mutex_unlock(&lock);
    return 0;
}

static int set_limit(struct powercap_zone *zone, int id, u64 uw)
{
    mutex_lock(&lock);
    limit_uw = uw;
    mutex_unlock(&lock);
    return 0;
}

static int get_window(struct powercap_zone *zone, int id, u64 *ret)
{
    *ret = WINDOW_US;
    return 0;
}

static int set_window(struct powercap_zone *zone, int id, u64 us)
{
    return -EINVAL;
}

static int get_most(struct powercap_zone *zone, int id, u64 *ret)
{
    *ret = most_uw;
    return 0;
}

static const char *get_name(struct powercap_zone *zone, int id)
{
    return "long_term";
}

static const struct powercap_zone_constraint_ops CONSTRAINT_OPS = {
    .get_power_limit_uw = get_limit,
    .set_power_limit_uw = set_limit,
    .get_time_window_us = get_window,
    .set_time_window_us = set_window,
    .get_max_power_uw = get_most,
    .get_name = get_name,
};

static int add_zone(enum zone_of of, struct powercap_zone *parent)
{
    /* The class wants the operations for zones without constraints as well. */
    zones[of] = powercap_register_zone(NULL, control, NAMES[of], parent, &ZONE_OPS,
                                       of == OF_PACKAGE, &CONSTRAINT_OPS);
    if (IS_ERR(zones[of])) {
        int r = PTR_ERR(zones[of]);

        zones[of] = NULL;
        return r;
    }
    return 0;
}

static void remove_zones(void)
{
    int i;

    /* Those inside a package come behind it. */
    for (i = ZONES - 1; i >= 0; i--)
        if (zones[i])
            powercap_unregister_zone(control, zones[i]);
    powercap_unregister_control_type(control);
}

static int add_zones(void)
{
    int r;

    control = powercap_register_control_type(NULL, "intel-rapl", NULL);
    if (IS_ERR(control))
        return PTR_ERR(control);
    r = add_zone(OF_PACKAGE, NULL);
    if (r == 0)
        r = add_zone(OF_CORE, zones[OF_PACKAGE]);
    if (r == 0 && dram)
        r = add_zone(OF_DRAM, zones[OF_PACKAGE]);
    if (r == 0 && psys)
        r = add_zone(OF_PSYS, NULL);
    if (r < 0)
        remove_zones();
    return r;
}

static int speed_init(struct cpufreq_policy *policy)
{
    policy->min = policy->cpuinfo.min_freq = BASE_KHZ / 1000 * PLANT_SPEED_MIN;
    policy->policy = CPUFREQ_POLICY_PERFORMANCE; /* the class asks for one of the two */
    policy->max = policy->cpuinfo.max_freq = BASE_KHZ / 1000 * plant.params.turbo_permille;
    return 0;
}

static int speed_verify(struct cpufreq_policy_data *policy)
{
    cpufreq_verify_within_cpu_limits(policy);
    return 0;
}

static int speed_setpolicy(struct cpufreq_policy *policy)
{
    return 0;
}

static unsigned int speed_get(unsigned int cpu)
{
    return BASE_KHZ / 1000 * READ_ONCE(speed_permille);
}

static ssize_t show_base_frequency(struct cpufreq_policy *policy, char *text)
{
    return sysfs_emit(text, "%u\n", BASE_KHZ);
}
cpufreq_freq_attr_ro(base_frequency);
static struct freq_attr *attributes[] = {&base_frequency, NULL};

static struct cpufreq_driver driver = {
    .name = "tide_plant",
    .flags = CPUFREQ_CONST_LOOPS,
    .init = speed_init,
    .verify = speed_verify,
    .setpolicy = speed_setpolicy,
    .get = speed_get,
    .attr = attributes,
};

static umode_t board_visible(const void *data, enum hwmon_sensor_types type, u32 attr, int channel)
{
    return 0444;
}

static int board_read(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
                      long *ret)
{
    int error = READ_ONCE(board_error);
    long told = READ_ONCE(board_uw);

    if (error)
        return -error;
    mutex_lock(&lock);
    *ret = told == LONG_MIN ? (long)wall_uw : told;
    mutex_unlock(&lock);
    return 0;
}

static const struct hwmon_ops BOARD_OPS = {.is_visible = board_visible, .read = board_read};
static const u32 BOARD_CONFIG[] = {HWMON_P_INPUT, 0};
static const struct hwmon_channel_info BOARD_POWER = {.type = hwmon_power, .config = BOARD_CONFIG};
static const struct hwmon_channel_info *BOARD_INFO[] = {&BOARD_POWER, NULL};
static const struct hwmon_chip_info BOARD_CHIP = {.ops = &BOARD_OPS, .info = BOARD_INFO};

static int add_board(void)
{
    int r;

    if (!board)
        return 0;
    board_device = platform_device_register_simple("tide_plant", PLATFORM_DEVID_NONE, NULL, 0);
    if (IS_ERR(board_device))
        return PTR_ERR(board_device);
    chip = hwmon_device_register_with_info(&board_device->dev, board, NULL, &BOARD_CHIP, NULL);
    if (!IS_ERR(chip))
        return 0;
    r = PTR_ERR(chip);
    platform_device_unregister(board_device);
    return r;
}

static void remove_board(void)
{
    if (!board)
        return;
    hwmon_device_unregister(chip);
    platform_device_unregister(board_device);
}

static void add_truth(void)
{
    folder = debugfs_create_dir("tide_plant", NULL);
    debugfs_create_u64("time_ns", 0400, folder, &time_ns);
    debugfs_create_u64("wall_uj", 0400, folder, &plant.total.wall_uj);
    debugfs_create_u64("package_uj", 0400, folder, &plant.total.package_uj);
    debugfs_create_u64("dram_uj", 0400, folder, &plant.total.dram_uj);
    debugfs_create_u64("speed_permille", 0400, folder, &speed_permille);
}

/* The parameters as a plant takes them; -EINVAL names what is wrong in the kernel's log. */
static int take_params(struct plant_params *ret)
{
    int i;

    if (given != PLANT_PARAM_COUNT || wrap_uj == 0 || wrap_uj == U64_MAX || step_ms == 0) {
        pr_err("tide_plant: params has %d numbers of %d, or wrap_uj or step_ms is 0\n", given,
               PLANT_PARAM_COUNT);
        return -EINVAL;
    }
    for (i = 0; i < PLANT_PARAM_COUNT; i++)
        *plant_param(ret, i) = params[i];
    i = plant_check(ret);
    if (i >= 0) {
        pr_err("tide_plant: %s is out of its bounds\n", plant_param_name(i));
        return -EINVAL;
    }
    return 0;
}

static int __init front_init(void)
{
    struct plant_params checked;
    int r = take_params(&checked);

    if (r < 0)
        return r;
    plant_init(&plant, &checked, min_t(u32, num_possible_cpus(), PLANT_CORES_MAX), seed);
    most_uw = 2 * (checked.package_idle_uw + (checked.core_uw * plant.cores + checked.uncore_uw) *
                                                 checked.turbo_permille / 1000);
    limit_uw = most_uw;
    step_ns = ktime_get_ns();
    look(0);
    r = add_zones();
    if (r < 0)
        return r;
    r = cpufreq_register_driver(&driver);
    if (r < 0) {
        remove_zones();
        return r;
    }
    r = add_board();
    if (r < 0) {
        cpufreq_unregister_driver(&driver);
        remove_zones();
        return r;
    }
    add_truth();
    schedule_delayed_work(&stepper, msecs_to_jiffies(step_ms));
    return 0;
}

static void __exit front_exit(void)
{
    cancel_delayed_work_sync(&stepper);
    debugfs_remove_recursive(folder);
    remove_board();
    cpufreq_unregister_driver(&driver);
    remove_zones();
}

module_init(front_init);
module_exit(front_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A hidden power model behind powercap, for tests of Threadtide");
