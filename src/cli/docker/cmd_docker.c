/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide docker run`, also as a plugin of Docker's command line, `docker tide run`. Docker itself
 * runs the container; tide puts options that make it elastic in front of the user's own.
 */
#include "cli/docker/docker_words.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/cpuset.h"
#include "base/rundir.h"
#include "base/startup.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define ERROR_WORD "docker-not-run"

#define DOCKER_FAILED 125 /* exit code of `docker run` when it cannot start the container */

#define TAKEN_NS (2 * NS_PER_S) /* by then the daemon has seen a container that has started */
#define LOOK_NS  (10 * NS_PER_MS)

#define ENV_LINE_MAX 65000 /* docker reads lines of less than 64 KiB */

/* The docker that called us as its plugin, and the socket that it closes to end us. */
#define DOCKER_VARIABLE "DOCKER_CLI_PLUGIN_ORIGINAL_CLI_COMMAND"
#define SOCKET_VARIABLE "DOCKER_CLI_PLUGIN_SOCKET"

extern char **environ;

struct call {
    const char *docker;
    char *const *globals; /* options of docker itself; n_globals of them */
    int n_globals;
    const char *verb; /* run or create */
    struct docker_words words;
    struct words image;                                    /* the image's variables */
    bool knows_image;                                      /* they have been read */
    struct words ours;                                     /* options and values that tide adds */
    char socket[RUNDIR_PATH_MAX + CONTAINER_KEY_MAX + 32]; /* the container's, on the host */
    bool joins;                                            /* the container joins the job of tide */
};

static const struct command *const cmd = &command_docker;

static int no_memory(void)
{
    return cli_no_memory(cmd);
}

/* ---- other commands of docker ---- */

static bool begin(const struct call *call, struct words *command)
{
    bool good = words_add(command, call->docker);

    for (int i = 0; i < call->n_globals; i++)
        good = good && words_add(command, call->globals[i]);
    return good;
}

/* Runs docker with stdout on @out; without @messages stderr is dropped. True: it ended well. */
static bool ask_docker(const struct words *command, int out, bool messages)
{
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;
    int r = posix_spawn_file_actions_init(&actions);

    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (r == 0 && !messages)
        r = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (r == 0)
        r = posix_spawnp(&pid, command->word[0], &actions, NULL, command->word, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0)
        return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Reads the image's variables. Returns false when there is no such image. */
static bool ask_image(struct call *call)
{
    static const char format[] = "{{range .Config.Env}}{{json .}}{{println}}{{end}}";
    struct words command = {0};
    _cleanup_file_ FILE *answer = tmpfile(); /* docker could block on a pipe */
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    bool good = answer && begin(call, &command) && words_add(&command, "image") &&
                words_add(&command, "inspect") && words_addf(&command, "--format=%s", format) &&
                words_add(&command, "--") && words_add(&command, call->words.image) &&
                ask_docker(&command, fileno(answer), false);

    words_done(&command);
    if (!good)
        return false;
    rewind(answer);
    while (good && getline(&line, &size, answer) > 0) {
        _cleanup_json_ json_t *variable = json_loads(line, JSON_DECODE_ANY, NULL);

        if (json_is_string(variable)) /* it may have several lines */
            good = words_add(&call->image, json_string_value(variable));
    }
    return good;
}

/* Pulls a missing image, as `docker run` does; docker's messages go to stderr here, too. */
static bool pull_image(const struct call *call)
{
    const struct docker_words *words = &call->words;
    struct words command = {0};
    bool good = begin(call, &command) && words_add(&command, "pull");

    if (words->quiet)
        good = good && words_add(&command, "--quiet");
    if (words->platform)
        good = good && words_addf(&command, "--platform=%s", words->platform);
    good = good && words_add(&command, "--") && words_add(&command, words->image) &&
           ask_docker(&command, STDERR_FILENO, true);
    words_done(&command);
    return good;
}

/* ---- what makes the container elastic ---- */

/* Tide's own variables would replace the image's. */
static int learn_image(struct call *call)
{
    struct docker_words *words = &call->words;

    if (!words->image)
        return CLI_OK;
    call->knows_image = ask_image(call);
    if (call->knows_image || (words->pull && strcmp(words->pull, "never") == 0))
        return CLI_OK;
    if (!pull_image(call))
        return DOCKER_FAILED; /* docker has printed the reason */
    call->knows_image = ask_image(call);
    return CLI_OK;
}

/* Without what an earlier `tide docker run` set, if the image is a container's (docker commit). */
static const char *image_variable(const struct call *call, const char *name)
{
    const char *value = words_variable(&call->image, name);
    struct startup earlier;

    if (!startup_read_mark(words_variable(&call->image, STARTUP_MARK), &earlier))
        return value;
    return startup_own_of(name, &earlier, value);
}

/* The variable that the container would have without tide; NULL: none. */
static const char *find_variable(const void *arg, const char *name)
{
    const struct call *call = arg;
    const char *value = docker_words_variable(&call->words, name);

    if (!value)
        value = image_variable(call, name);
    if (!value && strcmp(name, STARTUP_SPIN) == 0)
        value = getenv(name);
    return value && *value ? value : NULL;
}

/* The user's own LD_PRELOAD was taken out of docker's words. */
static int without_agent(struct call *call, const char *before, const char *why)
{
    cli_note_as(cmd, "container-unchanged", "the container runs with a fixed number of threads: %s",
                why);
    return !before || words_addf(&call->ours, "--env=LD_PRELOAD=%s", before) ? CLI_OK : no_memory();
}

static int add_agent(struct call *call)
{
    const char *before = find_variable(call, "LD_PRELOAD");
    _cleanup_free_ char *preload = NULL;
    char dir[PATH_MAX];
    struct error err;

    if (preload_find(dir, sizeof(dir), &err) < 0)
        return without_agent(call, before, err.text);
    if (before && strlen(before) + sizeof(CONTAINER_PRELOAD) > PRELOAD_VARIABLE_MAX - 32)
        return without_agent(call, before, "its LD_PRELOAD is too long");
    if (preload_value(before, CONTAINER_AGENT_DIR, &preload) < 0 ||
        !words_addf(&call->ours, "--volume=%s:" CONTAINER_AGENT_DIR ":ro", dir) ||
        !words_addf(&call->ours, "--env=LD_PRELOAD=%s", preload) ||
        !words_add(&call->ours, "--env=TIDE_SOCKET=" CONTAINER_SOCKET))
        return no_memory();
    return CLI_OK;
}

struct sized {
    const struct call *call;
    int fd; /* of a file of variables */
};

static const char *find_sized(const void *arg, const char *name)
{
    const struct sized *sized = arg;

    return find_variable(sized->call, name);
}

/*
 * Leaves out what the user has set, which counts more, and what docker would refuse the whole file
 * for: a line's end, or 64 KiB.
 */
static int add_sized(void *arg, const char *name, const char *value)
{
    const struct sized *sized = arg;
    const char *own = docker_words_variable(&sized->call->words, name);

    if ((own && *own) || strchr(value, '\n') || strlen(name) + strlen(value) > ENV_LINE_MAX)
        return 1;
    return dprintf(sized->fd, "%s=%s\n", name, value) < 0 ? -EIO : 0;
}

/* The user's own --env-file comes behind ours and counts more, and --env more than files. */
static int add_sizes(struct call *call)
{
    const json_t *terms = call->words.terms;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct startup_container c = {
        .request = (unsigned)member_long(terms, "request"),
        .min = (unsigned)member_long(terms, "min"),
        .max = (unsigned)member_long(terms, "max"),
        .cores = cores > 0 ? (unsigned)cores : 1,
    };
    struct sized sized = {.call = call};
    struct cpuset cpus;
    struct startup s;

    if (!call->knows_image) /* ours would replace its variables */
        return CLI_OK;
    sized.fd = memfd_create("tide-env", 0); /* stays open for docker */
    if (call->words.cpus > 0 && call->words.cpus <= STARTUP_NUMBER_MAX)
        c.limit_mcpu = (unsigned)(call->words.cpus * 1000 + 0.999);
    if (call->words.cpuset && cpuset_parse(call->words.cpuset, &cpus) == 0 && cpuset_count(&cpus))
        c.cores = cpuset_count(&cpus);
    s = startup_of_container(&c, find_sized, &sized);
    if (sized.fd < 0 || startup_apply(&s, find_sized, add_sized, &sized) < 0)
        return CLI_OK; /* the container chooses its sizes itself */
    if (!words_addf(&call->ours, "--env-file=/proc/self/fd/%d", sized.fd) ||
        (startup_sized(&s) &&
         !words_addf(&call->ours, "--label=" CONTAINER_LABEL ".sized=%u", s.size)))
        return no_memory();
    return CLI_OK;
}

/* Returns false also when tide may not ask the daemon: then a daemon runs. */
static bool daemon_is_missing(const char *dir)
{
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" RUNDIR_API_SOCKET, dir);
    return fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 &&
           (errno == ENOENT || errno == ECONNREFUSED);
}

/* dockerd makes the directory at every start of the container; tided opens its socket in it. */
static int add_control(struct call *call)
{
    unsigned char random[CONTAINER_KEY_MAX / 4];
    char key[2 * sizeof(random) + 1];
    char dir[RUNDIR_PATH_MAX];

    if (rundir_machine(dir) < 0 || *dir != '/' || strchr(dir, ':'))
        return cli_error(cmd, CLI_USAGE,
                         "Set TIDE_DIR to an absolute path without a colon, or not at all.",
                         "docker cannot mount the daemon's directory '%s'", getenv("TIDE_DIR"));
    if (daemon_is_missing(dir))
        cli_note_as(cmd, "no-daemon", "the container runs unmanaged until a tided runs in %s", dir);
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return cli_error_as(cmd, CLI_FAILED, "system-refused", NULL,
                            "cannot get random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof(random); i++)
        sprintf(key + 2 * i, "%02x", random[i]);
    snprintf(call->socket, sizeof(call->socket), "%s/" CONTAINER_RUN_DIR "/%s/" RUNDIR_AGENT_SOCKET,
             dir, key);
    if (!words_addf(&call->ours,
                    "--volume=%s/" CONTAINER_RUN_DIR "/%s:" CONTAINER_CONTROL_DIR ":ro", dir,
                    key) ||
        !words_addf(&call->ours, "--label=" CONTAINER_LABEL ".key=%s", key)) /* tided looks there */
        return no_memory();
    return CLI_OK;
}

/*
 * A container that a job's program starts joins that job, which its token names. Every user can
 * read a command line, but only we can read a file without a name.
 */
static int add_job(struct call *call)
{
    const char *token = getenv("TIDE_TOKEN");
    int fd = token && *token ? memfd_create("tide-label", 0) : -1; /* stays open for docker */

    if (fd < 0)
        return CLI_OK;
    call->joins = dprintf(fd, CONTAINER_LABEL ".job=%s\n", token) > 0;
    return words_addf(&call->ours, "--label-file=/proc/self/fd/%d", fd) ? CLI_OK : no_memory();
}

/* A deadline is a moment, as for `tide run`: "90s" begins now, not when docker is ready. */
static bool add_label(struct words *ours, const char *name, const json_t *value)
{
    char when[32];
    time_t at;
    struct tm tm;

    if (json_is_integer(value))
        return words_addf(ours, "--label=" CONTAINER_LABEL ".%s=%lld", name,
                          (long long)json_integer_value(value));
    if (json_is_string(value))
        return words_addf(ours, "--label=" CONTAINER_LABEL ".%s=%s", name,
                          json_string_value(value));
    if (!json_is_real(value)) /* null: "none" */
        return true;
    at = (time_t)json_real_value(value);
    gmtime_r(&at, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return words_addf(ours, "--label=" CONTAINER_LABEL ".%s=%s", name, when);
}

static int add_labels(struct call *call)
{
    const char *name;
    json_t *value;

    if (!words_add(&call->ours, "--label=" CONTAINER_LABEL "=true"))
        return no_memory();
    json_object_foreach (call->words.terms, name, value)
        if (!add_label(&call->ours, name, value))
            return no_memory();
    return CLI_OK;
}

/* ---- signals ---- */

static int connect_socket(const char *name)
{
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t n = strlen(name);

    if (fd < 0 || n >= sizeof(addr.sun_path))
        return -1;
    memcpy(addr.sun_path, name, n);
    if (*name == '@') /* an abstract socket */
        addr.sun_path[0] = '\0';
    n += offsetof(struct sockaddr_un, sun_path) + (*name != '@');
    return connect(fd, (struct sockaddr *)&addr, (socklen_t)n) < 0 ? -1 : TAKE_FD(fd);
}

/*
 * Docker keeps signals from its plugin. Since version 25 it closes a socket instead. The plugin
 * itself becomes another docker, so a child waits for that and passes the signal on.
 */
static void forward_signals(void)
{
    const char *name = getenv(SOCKET_VARIABLE);
    pid_t client = getpid(), docker = getppid();
    char byte;
    int fd;

    if (!name)
        return;
    fd = connect_socket(name);
    unsetenv(SOCKET_VARIABLE);
    if (fd < 0 || fork() != 0) {
        close_fd(fd);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the terminal sends it to the client, too */
    while (getppid() == client && read(fd, &byte, 1) > 0)
        ;
    if (getppid() == client && kill(docker, 0) == 0)
        kill(client, SIGTERM);
    _exit(0);
}

/* ---- the command ---- */

static bool whole_command(const struct call *call, struct words *ret)
{
    bool good = begin(call, ret) && words_add(ret, call->verb);

    for (size_t i = 0; i < call->ours.n; i++)
        good = good && words_add(ret, call->ours.word[i]);
    for (size_t i = 0; i < call->words.theirs.n; i++)
        good = good && words_add(ret, call->words.theirs.word[i]);
    return good;
}

static int cannot_start(const struct call *call, int code)
{
    return cli_error_as(cmd, code == ENOENT ? CLI_NO_PROGRAM : CLI_CANNOT_RUN,
                        code == ENOENT ? "no-program" : "program-cannot-run", NULL, "%s: %s",
                        call->docker, strerror(code));
}

/* Becomes docker; returns only if there is no docker. */
static int become_docker(const struct call *call, const struct words *command)
{
    forward_signals();
    execvp(command->word[0], command->word);
    return cannot_start(call, errno);
}

/*
 * With -d docker's own process ends at once, and the job would end before the daemon has seen its
 * container. So tide waits until the container's socket exists.
 */
static int await_docker(const struct call *call, const struct words *command)
{
    uint64_t until;
    int status = 0;
    pid_t pid;
    int r = posix_spawnp(&pid, command->word[0], NULL, NULL, command->word, environ);

    if (r != 0)
        return cannot_start(call, r);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status))
        return 128 + WTERMSIG(status);
    until = clock_now_ns() + TAKEN_NS;
    while (WEXITSTATUS(status) == 0 && access(call->socket, F_OK) < 0 && clock_now_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    return WEXITSTATUS(status);
}

static int carry_out(const struct call *call)
{
    struct words command = {0};
    int r;

    if (!whole_command(call, &command))
        r = no_memory();
    else if (call->joins && call->words.detach && strcmp(call->verb, "run") == 0)
        r = await_docker(call, &command);
    else
        r = become_docker(call, &command);
    words_done(&command);
    return r;
}

/* @argv: options of docker, then run or create and its arguments. */
static int docker_run(const char *docker, char *const *globals, int n_globals, char *const *argv)
{
    struct call call = {.docker = docker && *docker ? docker : "docker",
                        .globals = globals,
                        .n_globals = n_globals,
                        .verb = argv[0]};
    int r = docker_words_read(cmd, argv + 1, &call.words);

    if (r == CLI_OK && call.words.help) {
        r = cli_help(cmd);
    } else {
        if (r == CLI_OK)
            r = add_control(&call);
        if (r == CLI_OK)
            r = learn_image(&call);
        if (r == CLI_OK)
            r = add_agent(&call);
        if (r == CLI_OK)
            r = add_sizes(&call);
        if (r == CLI_OK)
            r = add_labels(&call);
        if (r == CLI_OK)
            r = add_job(&call);
        if (r == CLI_OK)
            r = carry_out(&call);
    }
    docker_words_done(&call.words);
    words_done(&call.image);
    words_done(&call.ours);
    return r;
}

static bool is_ours(const char *verb)
{
    return verb && (strcmp(verb, "run") == 0 || strcmp(verb, "create") == 0);
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static int docker_command(int argc, char **argv)
{
    int n = 0;

    if (argc > 1 && is_help(argv[1]))
        return cli_help(cmd);
    n = docker_words_global(argv + 1);
    if (is_ours(argv[1 + n]))
        return docker_run(getenv(DOCKER_VARIABLE), argv + 1, n, argv + 1 + n);
    if (!argv[1 + n])
        return cli_usage(cmd, "run or create is missing: tide docker run IMAGE");
    return cli_usage(cmd, "'%s' is neither run nor create: call docker itself", argv[1 + n]);
}

int docker_launch(char *const *argv)
{
    const char *slash = strrchr(argv[0], '/');
    int n;

    if (strcmp(slash ? slash + 1 : argv[0], "docker") != 0)
        return -1;
    n = docker_words_global(argv + 1);
    if (!argv[1 + n] || strcmp(argv[1 + n], "run") != 0)
        return -1;
    return docker_run(argv[0], argv + 1, n, argv + 1 + n);
}

bool docker_is_plugin(const char *program)
{
    const char *slash = program ? strrchr(program, '/') : NULL;

    return program && strcmp(slash ? slash + 1 : program, "docker-tide") == 0;
}

/*
 * Docker calls its plugins with its own command line: options, then the plugin's name, or "help"
 * and the plugin's name.
 */
int docker_plugin(int argc, char **argv, int *ret_skip)
{
    char *const *rest;
    int n;

    if (argc > 1 && strcmp(argv[1], "docker-cli-plugin-metadata") == 0) {
        printf("{\"SchemaVersion\":\"0.1.0\",\"Vendor\":\"Threadtide\",\"Version\":\"%s\","
               "\"ShortDescription\":\"Elastic containers: cores and threads that change "
               "together\"}\n",
               TIDE_VERSION);
        return CLI_OK;
    }
    n = docker_words_global(argv + 1);
    rest = argv + 1 + n;
    if (rest[0] && rest[1] && strcmp(rest[0], "help") == 0 && strcmp(rest[1], "tide") == 0)
        return cli_help(cmd);
    if (!rest[0] || strcmp(rest[0], "tide") != 0)
        return cli_usage(cmd, "docker-tide is a plugin of docker: call it as 'docker tide'");
    if (!rest[1] || (is_help(rest[1]) && !rest[2]))
        return cli_help(cmd);
    if (is_ours(rest[1]))
        return docker_run(getenv(DOCKER_VARIABLE), argv + 1, n, rest + 1);
    *ret_skip = n;
    return -1;
}

const struct command command_docker = {
    .name = "docker",
    .usage = "[DOCKER-OPTION...] run|create [OPTION...] IMAGE [COMMAND...]",
    .brief = "run a container whose cores and threads can change while it runs",
    .help = "As a plugin of docker: docker tide run [OPTION...] IMAGE [COMMAND...]\n"
            "\n"
            "All options of 'docker run' are taken, before and behind these:\n" TERMS_HERE "\n"
            "The job is named after the container (--name). The agent, which governs its\n"
            "threads, comes in by a mount and LD_PRELOAD; images with musl and static\n"
            "programs run without it. Without a daemon the container starts all the same, and\n"
            "one line says so.\n"
            "\n"
            "Examples:\n"
            "  docker tide run --rm --max 8 -v $PWD:/work -w /work tensorflow/tensorflow \\\n"
            "      python train.py\n"
            "  tide docker run -d --name urgent --weight 300 mytraining\n"
            "  docker tide ps\n"
            "\n"
            "Exit status: that of docker; 2 wrong options (nothing was run), 127 there is no\n"
            "docker.\n",
    .takes = ATTRIBUTES_OF_DOCKER,
    .run = docker_command,
};
