/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/docker/docker_words.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CPU_PERIOD_US 100000 /* the engine's, without --cpu-period */

/* clang-format off */
/* Options of `docker run`, 20.10 to 28, hidden ones too; "a" is the letter of "attach". */
static const char *const with_value[] = {
    "a", "attach", "add-host", "annotation", "blkio-weight", "blkio-weight-device", "cap-add",
    "cap-drop", "cgroup-parent", "cgroupns", "cidfile", "cpu-count", "cpu-percent", "cpu-period",
    "cpu-quota", "cpu-rt-period", "cpu-rt-runtime", "c", "cpu-shares", "cpus", "cpuset-cpus",
    "cpuset-mems", "detach-keys", "device", "device-cgroup-rule", "device-read-bps",
    "device-read-iops", "device-write-bps", "device-write-iops", "dns", "dns-opt", "dns-option",
    "dns-search", "domainname", "entrypoint", "e", "env", "env-file", "expose", "gpus", "group-add",
    "health-cmd", "health-interval", "health-retries", "health-start-interval",
    "health-start-period", "health-timeout", "h", "hostname", "io-maxbandwidth", "io-maxiops", "ip",
    "ip6", "ipc", "isolation", "kernel-memory", "l", "label", "label-file", "link", "link-local-ip",
    "log-driver", "log-opt", "mac-address", "m", "memory", "memory-reservation", "memory-swap",
    "memory-swappiness", "mount", "name", "net", "net-alias", "network", "network-alias",
    "oom-score-adj", "pid", "pids-limit", "platform", "p", "publish", "pull", "restart", "runtime",
    "security-opt", "shm-size", "stop-signal", "stop-timeout", "storage-opt", "sysctl", "tmpfs",
    "ulimit", "u", "user", "userns", "uts", "v", "volume", "volume-driver", "volumes-from", "w",
    "workdir", NULL,
};
static const char *const without_value[] = {
    "d", "detach", "disable-content-trust", "help", "init", "i", "interactive", "no-healthcheck",
    "oom-kill-disable", "privileged", "P", "publish-all", "q", "quiet", "read-only", "rm",
    "sig-proxy", "t", "tty", "use-api-socket", NULL,
};
static const char *const global_with_value[] = {
    "config", "c", "context", "H", "host", "l", "log-level", "tlscacert", "tlscert", "tlskey", NULL,
};
/* clang-format on */

/* ---- words ---- */

bool words_add(struct words *words, const char *word)
{
    char **grown = reallocarray(words->word, words->n + 2, sizeof(*grown));

    if (!grown)
        return false;
    words->word = grown;
    words->word[words->n] = strdup(word);
    if (!words->word[words->n])
        return false;
    words->word[++words->n] = NULL;
    return true;
}

bool words_addf(struct words *words, const char *fmt, ...)
{
    _cleanup_free_ char *word = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&word, fmt, ap) < 0)
        word = NULL;
    va_end(ap);
    return word && words_add(words, word);
}

void words_done(struct words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->word[i]);
    free(words->word);
    *words = (struct words){0};
}

/* ---- one option ---- */

static bool is(const char *name, size_t length, const char *option)
{
    return strlen(option) == length && strncmp(option, name, length) == 0;
}

static bool listed(const char *const *list, const char *name, size_t length)
{
    for (; *list; list++)
        if (is(name, length, *list))
            return true;
    return false;
}

/* One word of options: letters without a value, then at most one option with a value. */
struct option_word {
    const char *name; /* of the last option; @length bytes */
    const char *value;
    size_t length;
    size_t flags;  /* bytes of "-it" before the option with a value; 0: none */
    bool known;    /* all of its options are docker's or ours */
    bool detach;   /* -d is among them */
    bool separate; /* the value is the next word */
};

static bool takes_value(const char *name, size_t length)
{
    return listed(with_value, name, length) || terms_of_docker(name, length);
}

/* "--name", "--name=value", "--name value" */
static struct option_word read_long(char *const *argv)
{
    struct option_word o = {.name = argv[0] + 2};
    const char *equals = strchr(o.name, '=');

    o.length = equals ? (size_t)(equals - o.name) : strlen(o.name);
    o.value = equals ? equals + 1 : NULL;
    o.separate = !equals && takes_value(o.name, o.length);
    if (o.separate)
        o.value = argv[1];
    o.detach = is(o.name, o.length, "detach") && !(o.value && strcmp(o.value, "false") == 0);
    o.known =
        o.length > 1 && (takes_value(o.name, o.length) || listed(without_value, o.name, o.length));
    return o;
}

/* "-it", "-eNAME=value", "-e=NAME=value", "-ite NAME=value", "-t=false" */
static struct option_word read_short(char *const *argv)
{
    struct option_word o = {.length = 1};

    for (const char *letter = argv[0] + 1; *letter; letter++) {
        o.name = letter;
        if (listed(with_value, o.name, 1)) {
            o.flags = o.name > argv[0] + 1 ? (size_t)(o.name - argv[0]) : 0;
            o.separate = !o.name[1];
            o.value = o.separate ? argv[1] : o.name + 1 + (o.name[1] == '=');
            o.known = true;
            return o;
        }
        if (!listed(without_value, o.name, 1))
            return o;
        o.detach |= *letter == 'd' && strcmp(o.name + 1, "=false") != 0;
        if (o.name[1] == '=')
            break;
    }
    o.known = true;
    return o;
}

/* ---- variables ---- */

const char *words_variable(const struct words *list, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = list->n; i-- > 0;)
        if (strncmp(list->word[i], name, n) == 0 && list->word[i][n] == '=')
            return list->word[i] + n + 1;
    return NULL;
}

const char *docker_words_variable(const struct docker_words *words, const char *name)
{
    const char *value = words_variable(&words->env, name);

    return value ? value : words_variable(&words->files, name);
}

/* Without "=" docker takes the value from its own environment. */
static bool keep_variable(struct words *list, const char *variable)
{
    const char *own = strchr(variable, '=') ? NULL : getenv(variable);

    if (strchr(variable, '='))
        return words_add(list, variable);
    return words_addf(list, "%s=%s", variable, own ? own : "");
}

/* Skips an unreadable file: docker complains about it. */
static bool read_env_file(struct docker_words *words, const char *path)
{
    _cleanup_file_ FILE *file = fopen(path, "re");
    _cleanup_free_ char *line = NULL;
    size_t size = 0;

    while (file && getline(&line, &size, file) > 0) {
        const char *variable = line + strspn(line, " \t");

        line[strcspn(line, "\r\n")] = '\0';
        if (!*variable || *variable == '#' || (!strchr(variable, '=') && !getenv(variable)))
            continue; /* docker, too, skips a name that its environment lacks */
        if (!keep_variable(&words->files, variable))
            return false;
    }
    return true;
}

/* ---- the whole command line ---- */

struct reader {
    const struct command *cmd;
    struct docker_words *words;
};

/* Docker itself complains about numbers that are none. */
static void take_limit(struct docker_words *words, const struct option_word *o)
{
    if (is(o->name, o->length, "cpus"))
        words->cpus = strtod(o->value, NULL);
    else if (is(o->name, o->length, "cpu-quota"))
        words->quota_us = strtod(o->value, NULL);
    else if (is(o->name, o->length, "cpu-period"))
        words->period_us = strtod(o->value, NULL);
    else if (is(o->name, o->length, "cpuset-cpus"))
        words->cpuset = o->value;
}

/* Returns CLI_OK if the option is ours, -1 if it is docker's. */
static int take(struct reader *reader, const struct option_word *o)
{
    struct docker_words *words = reader->words;
    const struct attribute *term = terms_of_docker(o->name, o->length);

    if (term && !o->value)
        return cli_usage(reader->cmd, "--%s needs a value", o->name);
    if (term)
        return terms_set(reader->cmd, term, o->value, &words->terms);
    words->detach |= o->detach;
    words->help |= is(o->name, o->length, "help");
    words->quiet |= is(o->name, o->length, "quiet") || is(o->name, o->length, "q");
    if (!o->value)
        return -1;
    take_limit(words, o);
    if (is(o->name, o->length, "platform"))
        words->platform = o->value;
    else if (is(o->name, o->length, "pull"))
        words->pull = o->value;
    else if (is(o->name, o->length, "env-file") && !read_env_file(words, o->value))
        return cli_no_memory(reader->cmd);
    if (!is(o->name, o->length, "env") && !is(o->name, o->length, "e"))
        return -1;
    if (!keep_variable(&words->env, o->value))
        return cli_no_memory(reader->cmd);
    return strncmp(o->value, "LD_PRELOAD", 10) == 0 && (!o->value[10] || o->value[10] == '=')
               ? CLI_OK /* the agent's comes in its place */
               : -1;
}

/* Reads one word of options and its value; moves *argv behind them. */
static int read_option(struct reader *reader, char *const **argv, const struct option_word *o)
{
    struct words *theirs = &reader->words->theirs;
    size_t n = o->separate && o->value ? 2 : 1;
    int r = take(reader, o);
    bool good = true;

    if (r == -1)
        good = words_add(theirs, (*argv)[0]) && (n < 2 || words_add(theirs, (*argv)[1]));
    else if (r == CLI_OK && o->flags)
        good = words_addf(theirs, "%.*s", (int)o->flags, (*argv)[0]);
    *argv += n;
    if (!good)
        return cli_no_memory(reader->cmd);
    return r == -1 ? CLI_OK : r;
}

int docker_words_read(const struct command *cmd, char *const *argv, struct docker_words *ret)
{
    struct reader reader = {cmd, ret};
    int r = CLI_OK;

    *ret = (struct docker_words){0};
    while (r == CLI_OK && *argv && argv[0][0] == '-' && argv[0][1]) {
        struct option_word o = argv[0][1] == '-' ? read_long(argv) : read_short(argv);

        if (!o.known)
            break;
        r = read_option(&reader, &argv, &o);
    }
    /* Behind "--" comes the image; behind an unknown option tide cannot find the image. */
    if (*argv && strcmp(*argv, "--") == 0)
        ret->image = argv[1];
    else if (*argv && argv[0][0] != '-')
        ret->image = argv[0];
    for (; r == CLI_OK && *argv; argv++)
        if (!words_add(&ret->theirs, *argv))
            r = cli_no_memory(cmd);
    if (ret->cpus <= 0 && ret->quota_us > 0)
        ret->cpus = ret->quota_us / (ret->period_us > 0 ? ret->period_us : CPU_PERIOD_US);
    return r == CLI_OK ? terms_check(cmd, ret->terms) : r;
}

void docker_words_done(struct docker_words *words)
{
    json_decref(words->terms);
    words_done(&words->theirs);
    words_done(&words->files);
    words_done(&words->env);
    *words = (struct docker_words){0};
}

int docker_words_global(char *const *argv)
{
    int n = 0;

    while (argv[n] && argv[n][0] == '-' && argv[n][1]) {
        const char *name = argv[n] + (argv[n][1] == '-' ? 2 : 1);
        bool value = listed(global_with_value, name, strlen(name));

        n += value && argv[n + 1] ? 2 : 1;
    }
    return n;
}
