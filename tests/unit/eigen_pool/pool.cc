// SPDX-License-Identifier: Apache-2.0
// Stands in for tsl/platform/threadpool.cc of TensorFlow, as far as the agent knows it: the same
// symbols and the same layouts. Compiled without inlining, so that the calls between Eigen's
// members stay calls and can be interposed.
#include "eigen_pool/pool.h"

#define EIGEN_USE_THREADS
#if EIGEN_POOL_MASTER // the headers of a TensorFlow wheel
#include <unsupported/Eigen/CXX11/Tensor>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
namespace Eigen
{
class Allocator;
}
#endif

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace tsl
{
class Env
{
};
struct ThreadOptions {
};

namespace thread
{

struct EigenEnvironment {
    struct EnvThread {
        explicit EnvThread(std::function<void()> f) : thread(std::move(f))
        {
        }
        ~EnvThread()
        {
            thread.join();
        }
        void OnCancel()
        {
        }
        std::thread thread;
    };
    struct TaskImpl {
        std::function<void()> f;
        long context;
        unsigned long trace_id;
    };
#if EIGEN_POOL_MASTER
    struct Task {
        Task() = default;
        Task(std::nullptr_t)
        {
        }
        explicit Task(TaskImpl impl) : f(std::move(impl))
        {
        }
        Task(Task &&other) : f(std::move(other.f))
        {
            other.f.reset();
        }
        Task &operator=(Task &&other)
        {
            f = std::move(other.f);
            other.f.reset();
            return *this;
        }
        std::optional<TaskImpl> f;
    };
    Task CreateTask(std::function<void()> f)
    {
        return Task(TaskImpl{std::move(f), 1, 2});
    }
    void ExecuteTask(Task &t)
    {
        t.f->f();
        t.f.reset();
    }
#else
    struct Task {
        std::unique_ptr<TaskImpl> f;
    };
    Task CreateTask(std::function<void()> f)
    {
        return Task{std::unique_ptr<TaskImpl>(new TaskImpl{std::move(f), 1, 2})};
    }
    void ExecuteTask(const Task &t)
    {
        t.f->f();
    }
#endif
    EnvThread *CreateThread(std::function<void()> f)
    {
        return new EnvThread(std::move(f));
    }

    std::string name; // not trivial to copy: passed by reference, as TensorFlow's is
};

// Eigen::ThreadPoolDevice, whose header needs the whole of Eigen's tensors.
struct Device {
    void *pool;
    int num_threads;
};

class ThreadPool
{
  public:
    ThreadPool(Env *env, const ThreadOptions &options, const std::string &name, int threads,
               bool low_latency, Eigen::Allocator *allocator);
    ~ThreadPool();
    int NumThreads() const;
    void Schedule(std::function<void()> f)
    {
        underlying_->Schedule(std::move(f));
    }
    int CurrentThreadId() const
    {
        return underlying_->CurrentThreadId();
    }
    int Pieces() const
    {
        return underlying_->NumThreads();
    }
    int Shards() const
    {
        return __atomic_load_n(&device_->num_threads, __ATOMIC_RELAXED);
    }

  private:
    using Pool = Eigen::ThreadPoolTempl<EigenEnvironment>;

    Eigen::ThreadPoolInterface *underlying_;
    std::unique_ptr<Pool> eigen_;
    std::unique_ptr<Device> device_;
};

ThreadPool::ThreadPool(Env *, const ThreadOptions &, const std::string &name, int threads,
                       bool low_latency, Eigen::Allocator *)
    : eigen_(new Pool(threads, low_latency, EigenEnvironment{"tf_" + name}))
{
    underlying_ = eigen_.get();
    device_.reset(new Device{underlying_, threads});
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::NumThreads() const
{
    return underlying_->NumThreads();
}

} // namespace thread
} // namespace tsl

struct eigen_pool {
    eigen_pool(const char *name, int threads, bool spin)
        : pool(nullptr, tsl::ThreadOptions(), name, threads, spin, nullptr)
    {
    }
    tsl::thread::ThreadPool pool;
};

struct eigen_pool *eigen_pool_new(const char *name, int threads, int spin)
{
    return new eigen_pool(name, threads, spin != 0);
}

void eigen_pool_free(struct eigen_pool *pool)
{
    delete pool;
}

void eigen_pool_schedule(struct eigen_pool *pool, void (*fn)(void *), void *arg)
{
    pool->pool.Schedule([fn, arg] { fn(arg); });
}

int eigen_pool_threads(const struct eigen_pool *pool)
{
    return pool->pool.NumThreads();
}

int eigen_pool_shards(const struct eigen_pool *pool)
{
    return pool->pool.Shards();
}

int eigen_pool_pieces(const struct eigen_pool *pool)
{
    return pool->pool.Pieces();
}

int eigen_pool_worker(const struct eigen_pool *pool)
{
    return pool->pool.CurrentThreadId();
}

int eigen_pool_has_gate(void)
{
    return EIGEN_POOL_MASTER;
}
