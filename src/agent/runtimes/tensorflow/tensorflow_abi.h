/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of TensorFlow's and libstdc++'s binary interfaces that the agent uses.
 * Sources: tsl/platform/threadpool.cc, Eigen's NonBlockingThreadPool.h, tensorflow/core/framework/
 * device_base.h, the Itanium C++ ABI; read off the wheels 2.15.0, 2.18.0 and 2.21.0. Every layout
 * is checked at run time before it is used.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TF_EXPORT     __attribute__((visibility("default")))
#define TF_STRING_(x) #x
#define TF_STRING(x)  TF_STRING_(x)

#define TF_SONAME "libtensorflow_framework.so.2"

/* Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::x, and its const methods */
#define TF_EIGEN(x)       _ZN5Eigen15ThreadPoolTemplIN3tsl6thread16EigenEnvironmentEE##x
#define TF_EIGEN_CONST(x) _ZNK5Eigen15ThreadPoolTemplIN3tsl6thread16EigenEnvironmentEE##x

#define TF_EIGEN_C1           TF_EIGEN(C1EibS3_)
#define TF_EIGEN_C2           TF_EIGEN(C2EibS3_)
#define TF_WORKER_LOOP        TF_EIGEN(10WorkerLoopEi)
#define TF_MAYBE_GET_TASK     TF_EIGEN(12MaybeGetTaskEPNS3_4TaskE)
#define TF_LOCAL_STEAL        TF_EIGEN(10LocalStealEv)
#define TF_WAIT_FOR_WORK      TF_EIGEN(11WaitForWorkEPNS_10EventCount6WaiterEPNS3_4TaskE)
#define TF_SCHEDULE_WITH_HINT TF_EIGEN(16ScheduleWithHintESt8functionIFvvEEii)
#define TF_EIGEN_NUM_THREADS  TF_EIGEN_CONST(10NumThreadsEv)

/* tsl::thread::ThreadPool */
#define TF_THREADPOOL_CTOR(c)                                                                      \
    _ZN3tsl6thread10ThreadPool##c##EPNS_3EnvERKNS_13ThreadOptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEibPN5Eigen9AllocatorE
#define TF_THREADPOOL_C1          TF_THREADPOOL_CTOR(C1)
#define TF_THREADPOOL_C2          TF_THREADPOOL_CTOR(C2)
#define TF_THREADPOOL_D1          _ZN3tsl6thread10ThreadPoolD1Ev
#define TF_THREADPOOL_D2          _ZN3tsl6thread10ThreadPoolD2Ev
#define TF_THREADPOOL_NUM_THREADS _ZNK3tsl6thread10ThreadPool10NumThreadsEv

#define TF_PER_THREAD_MAX_PARALLELISM _ZN10tensorflow26GetPerThreadMaxParallelismEv
#define TF_SET_EIGEN_CPU_DEVICE                                                                    \
    _ZN10tensorflow10DeviceBase20set_eigen_cpu_deviceEPN5Eigen16ThreadPoolDeviceE

/* tsl::CancellationManager, tsl::RegisterCancellationCallback() */
#define TF_START_CANCEL    _ZN3tsl19CancellationManager11StartCancelEv
#define TF_CANCELLATION_D1 _ZN3tsl19CancellationManagerD1Ev
#define TF_CANCELLATION_D2 _ZN3tsl19CancellationManagerD2Ev
#define TF_REGISTER_CANCELLATION                                                                   \
    _ZN3tsl28RegisterCancellationCallbackEPNS_19CancellationManagerESt8functionIFvvEEPS4_

/* Slots of the Eigen pool's vtable. */
#define EIGEN_VTABLE_SCHEDULE 0

/* std::string and std::function of libstdc++'s new ABI. */
struct stdstring {
    const char *data;
    size_t size;
};

struct stdfunction {
    void *data[2];
    bool (*manage)(void *to, const void *from, int operation);
    void (*invoke)(const void *data);
};

enum stdfunction_operation {
    STDFUNCTION_TYPE,
    STDFUNCTION_POINTER,
    STDFUNCTION_CLONE,
    STDFUNCTION_DESTROY
};

/* tsl::thread::EigenEnvironment::Task. */
enum task_layout {
    TASK_UNKNOWN,
    TASK_INLINE, /* 2.21: optional<TaskImpl>; TaskImpl begins with the std::function */
    TASK_BOXED,  /* before: unique_ptr<TaskImpl> */
    TASK_LAYOUT_MAX
};
#define TASK_INLINE_ENGAGED 0x30
#define TASK_INLINE_SIZE    0x38

/* Eigen::ThreadPoolDevice */
struct eigen_device {
    void *pool;
    int num_threads;
};

/* tensorflow::DeviceBase::CpuWorkerThreads, and where a DeviceBase keeps the pointer to it */
struct cpu_worker_threads {
    int num_threads;
    void *workers; /* tsl::thread::ThreadPool */
};
#define TF_DEVICE_WORKERS_OFFSET 0x10

/* The agent searches this many words of a tsl::thread::ThreadPool for its device. */
#define TF_THREADPOOL_WORDS 6
