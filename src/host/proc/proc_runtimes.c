/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/proc.h"

#include "base/cleanup.h"
#include "host/proc/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_MAX 65536 /* of a directory of packages: its owner may have made any number */

static const char *const names[] = {
    [PROC_RUNTIME_AGENT] = "threadtide",
    [PROC_RUNTIME_TENSORFLOW] = "tensorflow",
    [PROC_RUNTIME_TORCH] = "torch",
    [PROC_RUNTIME_ONNXRUNTIME] = "onnxruntime",
    [PROC_RUNTIME_JAX] = "jax",
    [PROC_RUNTIME_GOMP] = "gomp",
    [PROC_RUNTIME_LLVM_OMP] = "llvm-openmp",
    [PROC_RUNTIME_OPENBLAS] = "openblas",
    [PROC_RUNTIME_MKL] = "mkl",
    [PROC_RUNTIME_ONEDNN] = "onednn",
    [PROC_RUNTIME_BLIS] = "blis",
    [PROC_RUNTIME_TBB] = "tbb",
    [PROC_RUNTIME_GGML] = "ggml",
    [PROC_RUNTIME_LITERT] = "litert",
    [PROC_RUNTIME_EXECUTORCH] = "executorch",
    [PROC_RUNTIME_XNNPACK] = "xnnpack",
    [PROC_RUNTIME_XGBOOST] = "xgboost",
    [PROC_RUNTIME_LIGHTGBM] = "lightgbm",
    [PROC_RUNTIME_OPENCV] = "opencv",
    [PROC_RUNTIME_NUMBA] = "numba",
    [PROC_RUNTIME_POLARS] = "polars",
    [PROC_RUNTIME_RAYON] = "rayon",
    [PROC_RUNTIME_JVM] = "java",
    [PROC_RUNTIME_GO] = "go",
    [PROC_RUNTIME_JULIA] = "julia",
    [PROC_RUNTIME_R] = "r",
};
static_assert(ARRAY_LEN(names) == PROC_RUNTIME_MAX, "a runtime without a name");

/* The beginning of a library's file name; ".so" or a wheel's "-<hash>.so" follows. */
static const struct {
    enum proc_runtime runtime;
    const char *stem;
} libraries[] = {
    {PROC_RUNTIME_AGENT, "libtide-agent"},
    {PROC_RUNTIME_TENSORFLOW, "libtensorflow_framework"},
    {PROC_RUNTIME_TORCH, "libtorch_cpu"},
    {PROC_RUNTIME_ONNXRUNTIME, "libonnxruntime"},
    {PROC_RUNTIME_ONNXRUNTIME, "onnxruntime_pybind11_state"},
    {PROC_RUNTIME_JAX, "libjax_common"},
    {PROC_RUNTIME_JAX, "xla_extension"},
    {PROC_RUNTIME_GOMP, "libgomp"},
    {PROC_RUNTIME_LLVM_OMP, "libomp"},
    {PROC_RUNTIME_LLVM_OMP, "libomp5"},
    {PROC_RUNTIME_LLVM_OMP, "libiomp5"},
    {PROC_RUNTIME_OPENBLAS, "libopenblas"},
    {PROC_RUNTIME_OPENBLAS, "libopenblasp"},
    {PROC_RUNTIME_OPENBLAS, "libopenblas64_"},
    {PROC_RUNTIME_OPENBLAS, "libopenblas64_p"},
    {PROC_RUNTIME_OPENBLAS, "libscipy_openblas"},
    {PROC_RUNTIME_OPENBLAS, "libscipy_openblas64_"},
    {PROC_RUNTIME_MKL, "libmkl_rt"},
    {PROC_RUNTIME_MKL, "libmkl_core"},
    {PROC_RUNTIME_ONEDNN, "libdnnl"},
    {PROC_RUNTIME_ONEDNN, "libmkldnn"},
    {PROC_RUNTIME_BLIS, "libblis"},
    {PROC_RUNTIME_BLIS, "libblis64"},
    {PROC_RUNTIME_TBB, "libtbb"},
    {PROC_RUNTIME_GGML, "libggml"},
    {PROC_RUNTIME_GGML, "libggml-base"},
    {PROC_RUNTIME_LITERT, "libpywrap_litert_common"},
    {PROC_RUNTIME_LITERT, "libLiteRt"},
    {PROC_RUNTIME_LITERT, "libtensorflowlite"},
    {PROC_RUNTIME_LITERT, "libtensorflowlite_c"},
    {PROC_RUNTIME_LITERT, "_pywrap_tensorflow_interpreter_wrapper"}, /* of tflite_runtime */
    {PROC_RUNTIME_EXECUTORCH, "libexecutorch_threadpool"},
    {PROC_RUNTIME_XNNPACK, "libXNNPACK"},
    {PROC_RUNTIME_XNNPACK, "libpthreadpool"},
    {PROC_RUNTIME_XGBOOST, "libxgboost"},
    {PROC_RUNTIME_LIGHTGBM, "lib_lightgbm"},
    {PROC_RUNTIME_OPENCV, "libopencv_core"},
    {PROC_RUNTIME_OPENCV, "cv2"},
    {PROC_RUNTIME_NUMBA, "workqueue"}, /* numba/np/ufunc/; one of the three is loaded */
    {PROC_RUNTIME_NUMBA, "omppool"},
    {PROC_RUNTIME_NUMBA, "tbbpool"},
    {PROC_RUNTIME_POLARS, "polars"},
    {PROC_RUNTIME_POLARS, "_polars_runtime"},
    {PROC_RUNTIME_RAYON, "tokenizers"},
    {PROC_RUNTIME_JVM, "libjvm"},
    {PROC_RUNTIME_JVM, "libj9vm29"},
    {PROC_RUNTIME_JULIA, "libjulia-internal"},
    {PROC_RUNTIME_R, "libR"},
};

/* Names of the Python packages with those libraries, as their dist-info spells them. */
static const struct {
    enum proc_runtime runtime;
    const char *name;
} packages[] = {
    {PROC_RUNTIME_TENSORFLOW, "tensorflow"},
    {PROC_RUNTIME_TENSORFLOW, "tensorflow_cpu"},
    {PROC_RUNTIME_TENSORFLOW, "tensorflow_intel"},
    {PROC_RUNTIME_TENSORFLOW, "tf_nightly"},
    {PROC_RUNTIME_TENSORFLOW, "tf_nightly_cpu"},
    {PROC_RUNTIME_TORCH, "torch"},
    {PROC_RUNTIME_ONNXRUNTIME, "onnxruntime"},
    {PROC_RUNTIME_ONNXRUNTIME, "onnxruntime_gpu"},
    {PROC_RUNTIME_JAX, "jaxlib"},
    {PROC_RUNTIME_XGBOOST, "xgboost"},
    {PROC_RUNTIME_XGBOOST, "xgboost_cpu"},
    {PROC_RUNTIME_LIGHTGBM, "lightgbm"},
    {PROC_RUNTIME_OPENCV, "opencv_python"},
    {PROC_RUNTIME_OPENCV, "opencv_python_headless"},
    {PROC_RUNTIME_LITERT, "ai_edge_litert"},
    {PROC_RUNTIME_LITERT, "tflite_runtime"},
    {PROC_RUNTIME_EXECUTORCH, "executorch"},
    {PROC_RUNTIME_NUMBA, "numba"},
    {PROC_RUNTIME_POLARS, "polars"},
};

const char *proc_runtime_name(enum proc_runtime runtime)
{
    return names[runtime];
}

/* Debian's OpenBLAS and BLIS also lie in openblas-pthread/, blis-openmp/ … under the names of the
 * reference library. */
static int by_folder(const char *path, const char *base)
{
    if (strncmp(base, "libblas.so", 10) != 0 && strncmp(base, "liblapack.so", 12) != 0)
        return -ENOENT;
    return strstr(path, "/openblas") ? (int)PROC_RUNTIME_OPENBLAS
           : strstr(path, "/blis-")  ? (int)PROC_RUNTIME_BLIS
                                     : -ENOENT;
}

int proc_parse_maps_line(const char *line, const char **ret_path)
{
    const char *path = strchr(line, '/'); /* the five columns before it hold no slash */
    const char *base = path ? strrchr(path, '/') + 1 : NULL;
    int found = -ENOENT;

    if (!path || !strstr(base, ".so"))
        return -ENOENT;
    for (size_t i = 0; found < 0 && i < ARRAY_LEN(libraries); i++) {
        size_t n = strlen(libraries[i].stem);

        if (strncmp(base, libraries[i].stem, n) == 0 && (base[n] == '.' || base[n] == '-'))
            found = (int)libraries[i].runtime;
    }
    if (found < 0)
        found = by_folder(path, base);
    if (found == PROC_RUNTIME_NUMBA && !strstr(path, "/numba/")) /* its files have common names */
        found = -ENOENT;
    if (found == PROC_RUNTIME_LITERT && strstr(path, "/tensorflow/lite/"))
        found = -ENOENT; /* every `import tensorflow` loads it */
    if (found >= 0)
        *ret_path = path;
    return found;
}

/* Copies "1.2.3" from @text; -ENOENT if it is not a version or too long. */
static int copy_version(const char *text, char ret_version[PROC_VERSION_MAX])
{
    size_t n = strspn(text, "0123456789.");

    while (n > 0 && text[n - 1] == '.')
        n--;
    if (n == 0 || text[0] == '.' || n >= PROC_VERSION_MAX)
        return -ENOENT;
    memcpy(ret_version, text, n);
    ret_version[n] = '\0';
    return 0;
}

int proc_library_version(const char *path, char ret_version[PROC_VERSION_MAX])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const char *so = strstr(base, ".so."), *release = strstr(base, "-r");

    if (so && copy_version(so + 4, ret_version) == 0)
        return 0;
    return release ? copy_version(release + 2, ret_version) : -ENOENT; /* libopenblasp-r0.3.21.so */
}

enum match { MATCH_NONE, MATCH_RUNTIME, MATCH_FOLDER };

/* Is @entry NAME-VERSION.dist-info of a package that contains @runtime? MATCH_FOLDER: @library lies
 * in a folder of the package's name. */
static enum match match_dist_info(const char *entry, enum proc_runtime runtime, const char *library,
                                  char ret_version[PROC_VERSION_MAX])
{
    const char *dash = strchr(entry, '-');
    const char *end = dash ? strstr(dash, ".dist-info") : NULL;
    size_t n;

    if (!end)
        return MATCH_NONE;
    n = (size_t)(end - dash - 1);
    if (n == 0 || n >= PROC_VERSION_MAX)
        return MATCH_NONE;
    for (size_t i = 0; i < ARRAY_LEN(packages); i++) {
        size_t len = strlen(packages[i].name);

        if (packages[i].runtime == runtime && len == (size_t)(dash - entry) &&
            memcmp(entry, packages[i].name, len) == 0) {
            memcpy(ret_version, dash + 1, n);
            ret_version[n] = '\0';
            return strncmp(library, entry, len) == 0 && library[len] == '/' ? MATCH_FOLDER
                                                                            : MATCH_RUNTIME;
        }
    }
    return MATCH_NONE;
}

/*
 * Opens a directory that the process names. Links are resolved in its own root, and nothing of it
 * is opened that could make us wait.
 */
static int open_directory(int root, pid_t pid, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    _cleanup_fd_ int theirs = -1;
    char name[64];
    int fd;

    snprintf(name, sizeof(name), "proc/%d/root", (int)pid);
    theirs = file_open(root, name, O_PATH | O_DIRECTORY);
    if (theirs < 0)
        return theirs;
    fd = (int)syscall(SYS_openat2, theirs, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

/* Looks beside the package of @path, through the process's own mount namespace. */
static int package_version(int root, pid_t pid, const char *path, enum proc_runtime runtime,
                           char ret_version[PROC_VERSION_MAX])
{
    const char *packages_dir = strstr(path, "-packages/"); /* site-packages, dist-packages */
    char name[FILE_PATH_MAX];
    enum match match = MATCH_NONE;
    struct dirent *entry;
    DIR *dir;
    int fd;

    if (!packages_dir ||
        file_path(name, sizeof(name), "%.*s", (int)(packages_dir - path + 9), path) < 0)
        return -ENOENT;
    fd = open_directory(root, pid, name);
    if (fd < 0)
        return fd;
    dir = fdopendir(fd);
    if (!dir) {
        close_fd(fd);
        return -ENOENT;
    }
    for (unsigned i = 0; i < ENTRIES_MAX && match < MATCH_FOLDER && (entry = readdir(dir)); i++) {
        char version[PROC_VERSION_MAX] = "";
        enum match m = match_dist_info(entry->d_name, runtime, packages_dir + 10, version);

        if (m > match) {
            memcpy(ret_version, version, sizeof(version));
            match = m;
        }
    }
    closedir(dir);
    return match ? 0 : -ENOENT;
}

/* Only a runtime's @first file is looked up beside its package. */
static void find_version(int root, pid_t pid, const char *path, enum proc_runtime runtime,
                         bool first, char ret_version[PROC_VERSION_MAX])
{
    if (!first || package_version(root, pid, path, runtime, ret_version) < 0)
        proc_library_version(path, ret_version);
    if ((runtime == PROC_RUNTIME_OPENBLAS || runtime == PROC_RUNTIME_XNNPACK) &&
        !strchr(ret_version, '.'))
        ret_version[0] = '\0'; /* libblas.so.3, libopenblas.so.0: of the interface */
}

/* The mappings of one file follow each other, so that the last path tells copies apart. */
int proc_read_runtimes(int root, pid_t pid, struct proc_runtimes *ret)
{
    struct proc_runtimes found = {0};
    _cleanup_free_ char(*last)[FILE_PATH_MAX] = calloc(PROC_RUNTIME_MAX, sizeof(*last));
    _cleanup_file_ FILE *file = NULL;
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    char name[64];
    int fd;

    if (!last)
        return -ENOMEM;
    snprintf(name, sizeof(name), "proc/%d/maps", (int)pid);
    fd = file_open(root, name, O_RDONLY);
    if (fd < 0)
        return fd == -ENOENT ? -ESRCH : fd;
    file = fdopen(fd, "r");
    if (!file) {
        close_fd(fd);
        return -ENOMEM;
    }
    for (ssize_t n; (n = getline(&line, &size, file)) > 0;) {
        const char *path;
        int runtime;

        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        runtime = proc_parse_maps_line(line, &path);
        if (runtime < 0 || strcmp(path, last[runtime]) == 0)
            continue;
        snprintf(last[runtime], FILE_PATH_MAX, "%s", path);
        found.r[runtime].copies++;
        if (!*found.r[runtime].version)
            find_version(root, pid, path, (enum proc_runtime)runtime, !found.r[runtime].loaded,
                         found.r[runtime].version);
        found.r[runtime].loaded = true;
    }
    if (ferror(file))
        return errno == ESRCH ? -ESRCH : -EIO;
    *ret = found;
    return 0;
}
