/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a job's attributes, one row each. attribute.h and attribute.c include this file
 * with ATTRIBUTE(ID, member, fields...) defined; the fields are those of struct attribute.
 * `usual`, or 0 where it is missing, is the value of a job that asks for nothing.
 */
/* clang-format off */
ATTRIBUTE(MIN, min, .key = "min", .kind = KIND_NUMBER, .none = true,
    .least = 1, .most = PROTO_THREADS_MAX,
    .value = "K", .text = "at least K cores and threads, also when the machine is full",
    .page = "At least _K_ cores and threads, also when the machine is full.")
ATTRIBUTE(MAX, max, .key = "max", .shown = "limit", .kind = KIND_NUMBER, .none = true,
    .least = 1, .most = PROTO_THREADS_MAX,
    .value = "K", .text = "at most K; may exceed the cores of the machine",
    .page = "At most _K_ cores and threads. May exceed the machine's cores: thread pools that are\n"
            "\tmade later are then built with _K_ threads.")
ATTRIBUTE(WEIGHT, weight, .key = "weight", .kind = KIND_NUMBER,
    .least = 1, .most = 10000, .usual = 100,
    .value = "W", .text = "share among jobs",
    .page = "Its share among jobs: one of weight 200 gets twice as much as one of weight 100.")
ATTRIBUTE(PRIORITY, priority, .key = "priority", .kind = KIND_NUMBER,
    .least = -PROTO_PRIORITY_MAX, .most = PROTO_PRIORITY_MAX,
    .value = "N", .text = "larger goes first",
    .page = "Larger goes first.")
ATTRIBUTE(CLASS, class, .key = "class", .kind = KIND_NUMBER,
    .least = 0, .most = PROTO_CLASS_MAX,
    .value = "N", .text = "smaller goes first in the queue",
    .page = "Jobs of a smaller class go first in the queue of *fcfs* and, among those of one priority,\n"
            "\tof *priority*: give interactive jobs 0 and batch jobs 10. A job may wait for as long as\n"
            "\tothers of smaller classes come. *response* ranks by class before size, until a job has\n"
            "\twaited too long (its *slowdown*), and idle cores are lent to the smaller class first.\n"
            "\t*equal* and the other policies, under which all jobs run at once, do not look at it:\n"
            "\tthere a *--weight* tells jobs apart.")
ATTRIBUTE(REQUEST, request, .key = "request", .kind = KIND_NUMBER, .none = true, .none_word = true,
    .least = 1, .most = PROTO_THREADS_MAX,
    .value = "K", .text = "cores that it should have, for policies that go by requests",
    .page = "Cores that the job should have. Policies that go by requests start it when so many are\n"
            "\tfree; a job without a request counts as one of *--min* cores, or of one core.")
ATTRIBUTE(MEMORY, memory_bytes, .key = "memory", .kind = KIND_MEMORY, .none = true, .none_word = true,
    .least = 1 << 20, .most = (int64_t)SIZE_MAX_BYTES, .docker_has = true,
    .value = "SIZE", .text = "memory that it needs, like 512M or 2G",
    .page = "Memory that the job needs (*512M*, *2G*, units of 1024). A job of *tide submit*\n"
            "\twaits until so much is free. A job that has begun, also a paused one, reserves what\n"
            "\tit asked for, or what it uses if that is more. No job is limited or ended for it. A\n"
            "\tjob that would wait is refused if it asks for more than all jobs of the machine may\n"
            "\thave together (_memory_ in *tide.conf*(5)).")
ATTRIBUTE(DEVICES, devices, .key = "devices", .stored = "device_counts", .kind = KIND_DEVICES,
    .none = true, .none_word = true, .least = 1, .most = DEVICES_COUNTS_MAX,
    .value = "KIND=N", .text = "GPUs or network cards that it needs, like nvidia=1",
    .page = "Devices that the job needs: *nvidia*, *render* (/dev/dri/renderD128: GPUs of AMD and\n"
            "\tIntel), *accel*, *uverbs* (cards with RDMA), *vfio*; several kinds with commas between. A\n"
            "\tjob of *tide submit* waits until so many are free: each job counts with what it asked\n"
            "\tfor, or what its processes have open if that is more. It is given no device and kept\n"
            "\tfrom none. A job that would wait is refused if it asks for more than the machine has\n"
            "\t(_devices_ in *tide.conf*(5)).")
ATTRIBUTE(DEADLINE, deadline_ms, .key = "deadline", .stored = "deadline_ms",
    .kind = KIND_MOMENT, .none = true, .none_word = true, .least = 1, .most = INT64_MAX / 1000000,
    .value = "T", .text = "when it should be done: 90s, 10min, 2h from now, or 18:30",
    .page = "When it should be done: a time from now (*90s*, *10min*, *2h*, *1h30min*), or the next\n"
            "\ttime that the clock shows _HH:MM_.")
ATTRIBUTE(SLO, slo_us, .key = "slo", .stored = "slo_us", .kind = KIND_PROMISE,
    .none = true, .none_word = true, .least = 1000, .most = 60000000,
    .value = "p99=T", .text = "what 99 of 100 requests take at most, like p99=50ms",
    .page = "A promise of latency: 99 of 100 requests take at most _T_ (*p99=50ms*, *p99=1.5s*;\n"
            "\t*1ms* to *60s*). While they are slower, the job gets cores of its user's other jobs at\n"
            "\tonce; while they are clearly faster, it gives cores back one by one. Its program tells\n"
            "\trequests: _tide_request_begin()_ in C, _threadtide.request()_ in Python. Without\n"
            "\trequests the promise changes nothing. A line says so where it cannot be kept, as far as\n"
            "\tearlier runs of the same name and other promises of the user tell.")
ATTRIBUTE(PLACEMENT, placement, .key = "placement", .kind = KIND_CHOICE, .fixed = true,
    .least = 0, .most = PLACEMENT_MAX - 1, .choices = placements,
    .value = "P", .text = "how its share becomes cores",
    .page = "How its share becomes cores, fixed when the job starts:")
/* clang-format on */
