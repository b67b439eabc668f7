/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide setup docker`: makes a machine's Docker ready for elastic containers, and takes everything
 * back. Running containers go on in any case.
 */
#include "cli/api.h"
#include "cli/docker/docker_config.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/wholefile.h"
#include "host/net/http.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "setup-failed"

#define CONFIG_MAX        (1u << 20) /* bytes of daemon.json */
#define RELOAD_TIMEOUT_NS (10 * NS_PER_S)
#define ASK_TIMEOUT_MS    5000
#define RUNTIME_PROGRAM   "tide-runc"
#define PLUGIN            "docker-tide"
#define PLUGIN_DIR        "/usr/local/lib/docker/cli-plugins"

struct setup {
    const char *config, *pidfile, *socket;
    const char *plugins; /* NULL: the directory where Docker looks */
    bool undo, user;
    char self[PATH_MAX];    /* this program */
    char runtime[PATH_MAX]; /* tide-runc */
    char backup[PATH_MAX];
};

static const struct command *const cmd = &command_setup;

static int failed(const char *what, int r)
{
    return cli_error(cmd, r == -EACCES || r == -EPERM ? CLI_DENIED : CLI_FAILED, NULL, "%s: %s",
                     what, strerror(-r));
}

static int bad_config(const struct setup *s, const struct error *err)
{
    if (err->code == -EBUSY)
        return cli_error(cmd, CLI_FAILED, "Choose another default runtime in that file first.",
                         "%s: %s; nothing was changed", s->config, err->text);
    return cli_error(cmd, CLI_FAILED,
                     "Correct the file first: dockerd would not start with it either.",
                     "%s: %s; nothing was changed", s->config, err->text);
}

/* ---- dockerd ---- */

/* Returns dockerd's pid, or 0. */
static pid_t find_dockerd(const struct setup *s)
{
    _cleanup_file_ FILE *file = fopen(s->pidfile, "re");
    _cleanup_file_ FILE *comm = NULL;
    char path[64], name[32] = "";
    int pid = 0;

    if (!file || fscanf(file, "%d", &pid) != 1 || pid <= 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    comm = fopen(path, "re");
    if (!comm || !fgets(name, sizeof(name), comm) || strcmp(name, "dockerd\n") != 0)
        return 0; /* another process has its pid now */
    return pid;
}

/* Returns 1 or 0: whether dockerd has the runtime; -errno: dockerd does not answer. */
static int dockerd_knows(const struct setup *s)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *info = NULL;
    int status;
    int r = http_request(s->socket, "GET", "/info", NULL, ASK_TIMEOUT_MS, &status, &text, NULL);

    if (r < 0)
        return r;
    info = status == 200 ? json_loads(text, 0, NULL) : NULL;
    if (!info)
        return -EBADMSG;
    return json_object_get(json_object_get(info, "Runtimes"), CONTAINER_RUNTIME) != NULL;
}

/* Lets a running dockerd read its file, and waits until it @wants the runtime or has dropped it. */
static int reload(const struct setup *s, bool want)
{
    uint64_t end = clock_now_ns() + RELOAD_TIMEOUT_NS;
    pid_t pid = find_dockerd(s);
    int r;

    if (!pid) {
        printf("dockerd does not run (%s): it reads its file when it starts\n", s->pidfile);
        return CLI_OK;
    }
    if (kill(pid, SIGHUP) < 0)
        return failed("cannot signal dockerd", -errno);
    while ((r = dockerd_knows(s)) != want && r >= 0 && clock_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    if (r < 0)
        printf("dockerd (pid %d) was told to read its file, but does not answer on %s\n", (int)pid,
               s->socket);
    else if (r != want)
        return cli_error(cmd, CLI_FAILED, "Its log says why ('journalctl -u docker').",
                         "dockerd (pid %d) did not apply the change", (int)pid);
    else
        printf("dockerd (pid %d) %s the runtime '" CONTAINER_RUNTIME "'\n", (int)pid,
               want ? "knows" : "no longer knows");
    return CLI_OK;
}

/* ---- daemon.json ---- */

/* Returns 0, or -errno; -ENOENT: no file. An empty file counts as "{}". */
static int read_config(const char *path, struct jsontext *ret, struct stat *ret_status)
{
    int r = wholefile_read(path, CONFIG_MAX, &ret->text, &ret->len, ret_status);
    struct json_span none = {0, 0};

    if (r == 0 && strspn(ret->text, " \t\r\n") == ret->len)
        r = jsontext_replace(ret, none, "{}");
    return r;
}

static int make_parent(const char *path)
{
    char dir[PATH_MAX];
    char *slash;

    snprintf(dir, sizeof(dir), "%s", path);
    slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return 0;
    *slash = '\0';
    if (mkdir(dir, 0755) == 0 || errno == EEXIST)
        return 0;
    if (errno != ENOENT)
        return -errno;
    return make_parent(dir) < 0 || mkdir(dir, 0755) < 0 ? -errno : 0;
}

/* Keeps a backup beside the file; without a backup there was no file before. */
static int write_new(const struct setup *s, const struct jsontext *config, int change, bool made,
                     const struct stat *status)
{
    _cleanup_free_ char *before = NULL;
    struct stat st;
    size_t len;
    int r = 0;

    if (made) {
        unlink(s->backup);
        r = make_parent(s->config);
    } else if (change == 1) {
        r = wholefile_read(s->config, CONFIG_MAX, &before, &len, &st);
        if (r == 0)
            r = wholefile_replace(s->backup, before, len, status);
    }
    if (r == 0)
        r = wholefile_replace(s->config, config->text, config->len, made ? NULL : status);
    return r;
}

static int add_runtime(const struct setup *s)
{
    _cleanup_jsontext_ struct jsontext config = {0};
    struct error err = {0};
    struct stat status;
    int change, r = read_config(s->config, &config, &status);
    bool made = r == -ENOENT;

    if (made) {
        config = (struct jsontext){strdup("{}\n"), 3};
        r = config.text ? 0 : -ENOMEM;
    }
    if (r < 0)
        return failed(s->config, r);
    change = docker_config_add(&config, s->runtime, &err);
    if (change < 0)
        return bad_config(s, &err);
    if (change == 0) {
        printf("the runtime '" CONTAINER_RUNTIME "' is in %s already\n", s->config);
        return dockerd_knows(s) == 0 ? reload(s, true) : CLI_OK;
    }
    r = write_new(s, &config, change, made, &status);
    if (r < 0)
        return failed(s->config, r);
    printf("the runtime '" CONTAINER_RUNTIME "' is in %s%s%s\n", s->config,
           made || change == 2 ? "" : "; backup: ", made || change == 2 ? "" : s->backup);
    return reload(s, true);
}

/* True if nobody else has changed the file since its backup was made. */
static bool only_ours(const struct setup *s, const struct jsontext *config)
{
    _cleanup_jsontext_ struct jsontext backup = {0};
    struct stat status;

    return read_config(s->backup, &backup, &status) == 0 &&
           docker_config_add(&backup, s->runtime, NULL) == 1 && backup.len == config->len &&
           memcmp(backup.text, config->text, config->len) == 0;
}

/* Takes our entry out of the file, once dockerd no longer has the runtime. */
static int put_back(const struct setup *s, struct jsontext *config, bool as_before,
                    const struct stat *status)
{
    struct error err = {0};
    bool backed_up = access(s->backup, F_OK) == 0;
    bool empty;
    int r;

    if (as_before)
        return rename(s->backup, s->config) < 0 ? -errno : 0;
    r = docker_config_tidy(config, &empty, &err);
    if (r < 0)
        return r;
    if (empty && !backed_up)
        return unlink(s->config) < 0 ? -errno : 0;
    r = wholefile_replace(s->config, config->text, config->len, status);
    if (r == 0 && backed_up)
        unlink(s->backup);
    return r;
}

static int remove_runtime(const struct setup *s)
{
    _cleanup_jsontext_ struct jsontext config = {0};
    struct error err = {0};
    struct stat status;
    bool as_before;
    int code, r = read_config(s->config, &config, &status);

    if (r < 0 && r != -ENOENT)
        return failed(s->config, r);
    as_before = r == 0 && only_ours(s, &config);
    if (r == 0) {
        r = docker_config_remove(&config, &err);
        if (r < 0)
            return bad_config(s, &err);
    }
    if (r <= 0) {
        printf("the runtime '" CONTAINER_RUNTIME "' is not in %s\n", s->config);
        return CLI_OK;
    }
    r = wholefile_replace(s->config, config.text, config.len, &status);
    if (r < 0)
        return failed(s->config, r);
    code = reload(s, false);
    r = put_back(s, &config, as_before, &status);
    if (r < 0)
        return failed(s->config, r);
    printf("%s is restored\n", s->config);
    return code;
}

/* ---- the plugin ---- */

static bool is_self(const struct setup *s, const char *path)
{
    char target[PATH_MAX];

    return realpath(path, target) && strcmp(target, s->self) == 0;
}

/* True if a package has put the plugin where Docker looks. */
static bool is_installed(const struct setup *s)
{
    static const char *const paths[] = {
        "/usr/local/libexec/docker/cli-plugins/" PLUGIN,
        "/usr/libexec/docker/cli-plugins/" PLUGIN,
        "/usr/lib/docker/cli-plugins/" PLUGIN,
    };

    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (is_self(s, paths[i]))
            return true;
    return false;
}

static void plugin_path(const struct setup *s, char ret[PATH_MAX])
{
    const char *docker = getenv("DOCKER_CONFIG"), *home = getenv("HOME");

    if (s->plugins)
        snprintf(ret, PATH_MAX, "%s/" PLUGIN, s->plugins);
    else if (s->user && docker && *docker)
        snprintf(ret, PATH_MAX, "%s/cli-plugins/" PLUGIN, docker);
    else if (s->user)
        snprintf(ret, PATH_MAX, "%s/.docker/cli-plugins/" PLUGIN, home ? home : "");
    else
        snprintf(ret, PATH_MAX, PLUGIN_DIR "/" PLUGIN);
}

static int add_plugin(const struct setup *s)
{
    char path[PATH_MAX];
    struct stat st;
    int r;

    plugin_path(s, path);
    if (is_self(s, path) || (!s->plugins && !s->user && is_installed(s))) {
        printf("'docker tide' is installed already\n");
        return CLI_OK;
    }
    if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode))
        return cli_error(cmd, CLI_FAILED, "Move it away first.",
                         "'docker tide' cannot be installed: %s is in the way", path);
    unlink(path); /* the link points to another tide */
    r = make_parent(path);
    if (r < 0 || symlink(s->self, path) < 0)
        return failed(path, r < 0 ? r : -errno);
    printf("'docker tide' is installed: %s\n", path);
    return CLI_OK;
}

static int remove_plugin(const struct setup *s)
{
    char path[PATH_MAX];

    plugin_path(s, path);
    if (!is_self(s, path))
        return CLI_OK;
    if (unlink(path) < 0)
        return failed(path, -errno);
    printf("removed %s\n", path);
    for (int i = 0; i < 2 && !s->plugins;
         i++) { /* removes cli-plugins and docker if they are empty */
        *strrchr(path, '/') = '\0';
        if (rmdir(path) < 0)
            break;
    }
    return CLI_OK;
}

/* ---- the command ---- */

static int find_programs(struct setup *s)
{
    char resolved[PATH_MAX];
    char *slash;

    if (!realpath("/proc/self/exe", s->self))
        return failed("/proc/self/exe", -errno);
    memcpy(s->runtime, s->self, sizeof(s->runtime));
    slash = strrchr(s->runtime, '/');
    if ((size_t)(slash - s->runtime) + sizeof("/" RUNTIME_PROGRAM) > sizeof(s->runtime))
        return failed(s->self, -ENAMETOOLONG);
    strcpy(slash + 1, RUNTIME_PROGRAM);
    if (!s->user && !s->undo && access(s->runtime, X_OK) < 0)
        return failed(s->runtime, -errno);
    if (realpath(s->config, resolved)) /* changes the file itself, not a link to it */
        s->config = strdup(resolved);
    if (!s->config ||
        (size_t)snprintf(s->backup, sizeof(s->backup), "%s.before-tide", s->config) >= PATH_MAX)
        return failed("daemon.json", s->config ? -ENAMETOOLONG : -ENOMEM);
    return CLI_OK;
}

static int setup_docker(struct setup *s, bool own_config)
{
    int r = find_programs(s);

    if (r == CLI_OK && !s->user && !own_config && geteuid() != 0)
        return cli_error_as(cmd, CLI_DENIED, "setup-needs-root",
                            "Use sudo; or 'tide setup docker --user' for 'docker tide' alone.",
                            "only root can change %s", s->config);
    if (r == CLI_OK && !s->user)
        r = s->undo ? remove_runtime(s) : add_runtime(s);
    if (r == CLI_OK)
        r = s->undo ? remove_plugin(s) : add_plugin(s);
    return r;
}

static int setup_run(int argc, char **argv)
{
    enum { OPT_UNDO = 256, OPT_USER, OPT_CONFIG, OPT_PIDFILE, OPT_SOCKET, OPT_PLUGINS };
    static const struct option options[] = {
        {"undo", no_argument, NULL, OPT_UNDO},
        {"user", no_argument, NULL, OPT_USER},
        {"config", required_argument, NULL, OPT_CONFIG},
        {"pidfile", required_argument, NULL, OPT_PIDFILE},
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"plugins", required_argument, NULL, OPT_PLUGINS},
        {0},
    };
    struct setup s = {.config = "/etc/docker/daemon.json",
                      .pidfile = "/var/run/docker.pid",
                      .socket = "/var/run/docker.sock"};
    bool own_config = false;
    int c;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        s.undo |= c == OPT_UNDO;
        s.user |= c == OPT_USER;
        own_config |= c == OPT_CONFIG;
        if (c == OPT_CONFIG)
            s.config = optarg;
        else if (c == OPT_PIDFILE)
            s.pidfile = optarg;
        else if (c == OPT_SOCKET)
            s.socket = optarg;
        else if (c == OPT_PLUGINS)
            s.plugins = optarg;
    }
    option_operands(cmd, argc, argv, 1, 1);
    if (strcmp(argv[optind], "docker") != 0)
        return cli_usage(cmd, "'%s' cannot be set up; docker can", argv[optind]);
    return setup_docker(&s, own_config);
}

const struct command command_setup = {
    .name = "setup",
    .usage = "docker [--undo] [--user] [OPTION...]",
    .brief = "make Docker ready for elastic containers, or take that back",
    .help = "Registers the runtime 'tide' in dockerd's daemon.json, beside what is there, and\n"
            "lets dockerd read it, without a restart. Then 'docker run --runtime tide IMAGE'\n"
            "starts an elastic container. Also makes 'docker tide' a command of docker.\n"
            "\n"
            "Options:\n"
            "      --undo          leave the machine as it was; containers go on\n"
            "      --user          only 'docker tide', for yourself\n"
            "      --config FILE   another daemon.json than /etc/docker/daemon.json\n"
            "      --pidfile FILE  of that dockerd (/var/run/docker.pid)\n"
            "      --socket FILE   of that dockerd (/var/run/docker.sock)\n"
            "      --plugins DIR   another directory for docker's plugins\n"
            "\n"
            "Examples:\n"
            "  sudo tide setup docker\n"
            "  docker run --rm --runtime tide tensorflow/tensorflow python train.py\n",
    .run = setup_run,
};
