/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of NRI v1alpha1 (containerd's and CRI-O's Node Resource Interface) that we read and
 * write, and the parts of them that we use. Pure; any thread.
 */
#pragma once

#include "base/container.h"
#include "base/cpuset.h"
#include "pods/protobuf.h"

#include <sys/types.h>

#define NRI_PLUGIN  "nri.pkg.api.v1alpha1.Plugin"  /* calls that we answer */
#define NRI_RUNTIME "nri.pkg.api.v1alpha1.Runtime" /* calls that we make */

#define NRI_UNIMPLEMENTED 12 /* gRPC's code for a method that is not there */

/* The calls; StateChange stands for several of them in older runtimes. */
enum nri_event {
    NRI_CREATE = 4,
    NRI_POST_START = 7,
    NRI_UPDATE = 8,
    NRI_STOP = 10,
    NRI_REMOVE = 11,
};

enum nri_state { NRI_UNKNOWN, NRI_CREATED, NRI_PAUSED, NRI_RUNNING, NRI_STOPPED };

/* Borrowed from the message. */
struct nri_pod {
    struct span whole, id, name, name_space, cgroup_parent;
};

/* Limits as the runtime has them; empty or 0: none. */
struct nri_limits {
    char cpus[CPUSET_TEXT_MAX];
    int64_t quota_us;
    uint64_t period_us, shares, memory_bytes;
};

struct nri_container {
    struct span whole, pod, name, image;
    char id[CONTAINER_KEY_MAX + 1];
    enum nri_state state;
    pid_t pid;
    int64_t started_ns;
    int exit_code;
    bool has_limits;
    struct nri_limits limits;
};

/* Both return 0 or -EBADMSG; a container's id is 1 to 64 letters, digits, "-" and "_". */
int nri_read_pod(struct span message, struct nri_pod *ret);
int nri_read_container(struct span message, struct nri_container *ret);

/* Takes over the values that an update names; the others stay. */
int nri_read_limits(struct span resources, struct nri_limits *limits);

/* Steps through the texts of field @number. False after the last; *rest starts as the message. */
bool nri_next(struct span *rest, unsigned number, struct span *ret);

#define NRI_CONTAINER_LABELS      5
#define NRI_CONTAINER_ANNOTATIONS 6
#define NRI_CONTAINER_ENV         8
#define NRI_CONTAINER_MOUNTS      9 /* field 1 of each: where */

/* Finds a label, else an annotation of that name. */
bool nri_note(struct span pod, const char *key, struct span *ret);

/* ---- writing ---- */

void nri_put_registration(struct buffer *b, const char *name, const char *index);
void nri_put_events(struct buffer *b); /* those that we want to hear of */
void nri_put_update(struct buffer *b, const char *id, const char *cpus);

/* Whether the answer to an update says that it failed. */
bool nri_update_failed(struct span answer);
