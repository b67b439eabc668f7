/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-runc: an OCI runtime that makes containers elastic and then becomes the real runtime. If an
 * edit fails, the container starts without the agent. tide-runc prints nothing then, because the
 * engine reads the runtime's output.
 */
#include "base/cleanup.h"
#include "base/wholefile.h"
#include "runc/arguments.h"
#include "runc/control_dir.h"
#include "runc/spec.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>

#define ERROR_WORD "container-unchanged"

#define SPEC_MAX (4u << 20) /* bytes; a larger config.json or process.json is left alone */

#define SEARCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* ---- the log ---- */

/* Writes a line like the real runtime's. It is a warning, because engines show errors to users. */
static int write_log(const struct arguments *a, const char *text)
{
    _cleanup_fd_ int fd = open(a->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    _cleanup_free_ char *quoted = jsontext_quote(text);
    char when[32];
    time_t now = time(NULL);
    struct tm tm;

    if (fd < 0 || !quoted)
        return -1;
    gmtime_r(&now, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return dprintf(fd,
                   a->log_json ? "{\"level\":\"warning\",\"msg\":%s,\"time\":\"%s\"}\n"
                               : "level=warning msg=%s time=\"%s\"\n",
                   quoted, when);
}

static void complain(const struct arguments *a, const char *what, const struct error *err)
{
    char text[ERROR_TEXT_MAX + 64];

    snprintf(text, sizeof(text), "tide-runc: %s: %s (tide why %s)", what, err->text,
             error_why(err));
    if (!a->log || write_log(a, text) < 0)
        syslog(LOG_WARNING, "%s", text);
}

/* ---- the two files ---- */

static int failed(struct error *err, int r)
{
    return error_set(err, r, "cannot edit its OCI files: %s", strerror(-r));
}

static int edit_bundle(const struct arguments *a, struct error *err)
{
    char path[PATH_MAX], agent_dir[PATH_MAX], run[RUNDIR_PATH_MAX];
    char control_dir[sizeof(run) + sizeof(CONTAINER_RUN_DIR) + CONTAINER_KEY_MAX + 2];
    _cleanup_jsontext_ struct jsontext config = {0};
    _cleanup_fd_ int containers = -1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct startup size = {0};
    struct stat status;
    int r;

    if (!control_dir_is_key(a->id))
        return error_set(err, -EINVAL, "the container's id cannot name a directory");
    if ((size_t)snprintf(path, sizeof(path), "%s/config.json", a->bundle) >= sizeof(path))
        return failed(err, -ENAMETOOLONG);
    r = preload_find(agent_dir, sizeof(agent_dir), err);
    if (r < 0)
        return r;
    r = wholefile_read(path, SPEC_MAX, &config.text, &config.len, &status);
    if (r == 0)
        containers = r = control_dir_open(true, run);
    if (r < 0)
        return failed(err, r);
    snprintf(control_dir, sizeof(control_dir), "%s/" CONTAINER_RUN_DIR "/%s", run, a->id);
    r = spec_edit_config(&config, agent_dir, control_dir, cores > 0 ? (unsigned)cores : 1, &size,
                         err);
    if (r <= 0)
        return r;
    r = control_dir_make(containers, a->id);
    if (r == 0)
        r = wholefile_replace(path, config.text, config.len, &status);
    if (r < 0)
        return failed(err, r);
    control_dir_write(containers, a->id, &size);
    return 0;
}

/*
 * Engines make process.json without our changes to the container's environment. A container that
 * was created without the agent must not get its environment now.
 */
static int edit_process(const struct arguments *a, struct error *err)
{
    char run[RUNDIR_PATH_MAX];
    _cleanup_jsontext_ struct jsontext process = {0};
    _cleanup_fd_ int containers = control_dir_open(false, run);
    struct startup size;
    struct stat status;
    int r;

    if (containers < 0 || !control_dir_is_key(a->id) || faccessat(containers, a->id, F_OK, 0) < 0)
        return 0;
    r = wholefile_read(a->process, SPEC_MAX, &process.text, &process.len, &status);
    if (r < 0)
        return failed(err, r);
    size = control_dir_read(containers, a->id);
    r = spec_edit_process(&process, &size, err);
    if (r <= 0)
        return r;
    r = wholefile_replace(a->process, process.text, process.len, &status);
    return r < 0 ? failed(err, r) : 0;
}

/* ---- becoming the real runtime ---- */

static void run_unless_self(char **argv, const char *path)
{
    struct stat self, other;

    if (stat(path, &other) < 0 || !S_ISREG(other.st_mode))
        return;
    if (stat("/proc/self/exe", &self) == 0 && self.st_dev == other.st_dev &&
        self.st_ino == other.st_ino)
        return; /* the administrator made `runc` a link to this program */
    argv[0] = (char *)path;
    execv(path, argv);
}

/* Runs the first program called @name in the directories of @search. */
static void run_first(char **argv, const char *search, const char *name)
{
    char path[PATH_MAX];

    for (const char *dir = search; *dir;) {
        size_t n = strcspn(dir, ":");

        if (*dir == '/' &&
            (size_t)snprintf(path, sizeof(path), "%.*s/%s", (int)n, dir, name) < sizeof(path))
            run_unless_self(argv, path);
        dir += n + (dir[n] == ':');
    }
}

/* Becomes $TIDE_RUNC, else the runc or crun that the engine itself would have found. */
static void run_runtime(char **argv)
{
    static const char *const names[] = {"runc", "crun"};
    const char *given = getenv("TIDE_RUNC");
    const char *search = getenv("PATH");

    if (given && *given)
        run_unless_self(argv, given);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (search)
            run_first(argv, search, names[i]);
        run_first(argv, SEARCH_PATH, names[i]);
    }
}

int main(int argc, char **argv)
{
    static const char *const what[] = {
        [ARGUMENTS_OTHER] = "",
        [ARGUMENTS_CREATE] = "the container starts without the agent",
        [ARGUMENTS_EXEC] = "the program starts without the agent",
    };
    static_assert(ARRAY_LEN(what) == ARGUMENTS_VERB_MAX, "a text for each verb");
    struct arguments a = arguments_read(argv);
    struct error err = {0};
    int r = 0;

    if (a.verb == ARGUMENTS_CREATE)
        r = edit_bundle(&a, &err);
    else if (a.verb == ARGUMENTS_EXEC)
        r = edit_process(&a, &err);
    if (r < 0)
        complain(&a, what[a.verb], &err);
    run_runtime(argv);
    error_print("no-oci-runtime", "tide-runc: neither runc nor crun is in PATH or " SEARCH_PATH
                                  ": install one, or name a runtime in TIDE_RUNC");
    return 127;
}
