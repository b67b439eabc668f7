/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/api.h"

#include "cli/remote/inventory.h"
#include "cli/remote/remote.h"
#include "host/net/daemon.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "daemon-silent"

#define API_AGAIN_US 1000000 /* the Retry-After of a 429 answer */

void api_answer_done(struct api_answer *answer)
{
    json_decref(answer->body);
    answer->body = NULL;
}

/*
 * Names and notes come from other users' programs. Control characters (C0, DEL, C1) could steer the
 * terminal, so they are replaced here, once, before any command prints them.
 */
static void make_printable(json_t *json)
{
    const char *key;
    json_t *member;
    size_t i;

    if (json_is_string(json)) {
        char *text = (char *)json_string_value(json);

        for (; *text; text++) {
            if ((unsigned char)*text < 0x20 || *text == 0x7f)
                *text = '?';
            else if ((unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0)
                memcpy(text, "??", 2);
        }
    }
    json_array_foreach (json, i, member)
        make_printable(member);
    json_object_foreach (json, key, member)
        make_printable(member);
}

json_t *api_parse(const char *text)
{
    json_t *json = *text ? json_loads(text, JSON_DECODE_ANY, NULL) : json_null();

    make_printable(json);
    return json;
}

/* ---- another machine ---- */

static struct {
    struct remote remote;
    char name[ADDRESS_TEXT_MAX]; /* "": this machine's daemon is asked */
} far;

int api_host(const struct command *cmd)
{
    const char *name = getenv(API_HOST_VARIABLE);
    struct address address;
    struct error err = {0};
    int r;

    if (!name || !*name)
        return CLI_OK;
    r = inventory_resolve(name, &address, &err);
    if (r < 0)
        return cli_error_as(cmd, CLI_USAGE, err.word, "tide-fleet(1) says what --host takes.", "%s",
                            err.text);
    address.named = true;
    remote_init(&far.remote, &address, false);
    snprintf(far.name, sizeof(far.name), "%s", name);
    return CLI_OK;
}

const char *api_host_name(void)
{
    return *far.name ? far.name : NULL;
}

/* ---- requests ---- */

struct call {
    const char *method, *path, *body;
    unsigned timeout_ms;
    const char *last; /* id of a stream's last event */
    struct http_stream *stream;
};

static int request_in(const char *dir, const struct call *c, struct api_answer *ret,
                      struct error *err)
{
    char socket_path[RUNDIR_PATH_MAX + sizeof(RUNDIR_API_SOCKET) + 1];
    _cleanup_free_ char *text = NULL;
    json_t *json;
    int status;
    int r;

    snprintf(socket_path, sizeof(socket_path), "%s/" RUNDIR_API_SOCKET, dir);
    if (c->stream)
        r = http_stream_open(socket_path, c->path, c->last, c->timeout_ms, c->stream, &status,
                             &text, err);
    else
        r = http_request(socket_path, c->method, c->path, c->body, c->timeout_ms, &status, &text,
                         err);
    if (r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR)
        return error_word(
            err, error_set(err, -ENOENT, "no daemon runs (no process listens on %s)", socket_path),
            "no-daemon");
    if (r == -EACCES)
        return error_word(err, error_set(err, r, "the daemon in %s belongs to another user", dir),
                          "daemon-of-another");
    if (r == -ETIMEDOUT)
        return error_word(err, error_set(err, r, "the daemon in %s does not answer", dir),
                          "daemon-silent");
    if (r < 0)
        return r;
    json = api_parse(text ? text : "");
    if (!json)
        return error_word(
            err, error_set(err, -EBADMSG, "the daemon in %s sent an answer that is not JSON", dir),
            "bad-answer");
    ret->status = status;
    ret->body = json;
    snprintf(ret->dir, sizeof(ret->dir), "%s", dir);
    return 0;
}

static int call_far(const struct call *c, struct api_answer *ret, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    json_t *json;
    int status;
    int r;

    if (c->stream)
        r = remote_stream(&far.remote, c->path, c->last, c->timeout_ms, c->stream, &status, &text,
                          err);
    else
        r = remote_request(&far.remote, c->method, c->path, c->body, c->timeout_ms, &status, &text,
                           err);
    if (r < 0)
        return r;
    json = api_parse(text ? text : "");
    if (!json)
        return error_word(
            err, error_set(err, -EBADMSG, "%.100s sent an answer that is not JSON", far.name),
            "bad-answer");
    *ret = (struct api_answer){.status = status, .body = json};
    return 0;
}

static int call_api_once(const struct call *c, struct api_answer *ret, struct error *err)
{
    char dir[RUNDIR_PATH_MAX];
    char own[RUNDIR_PATH_MAX];
    int r;

    if (*far.name)
        return call_far(c, ret, err);
    r = rundir_find(dir);
    if (r < 0)
        return error_word(err,
                          error_set(err, r,
                                    "the path in TIDE_DIR or XDG_RUNTIME_DIR is too long for a "
                                    "socket: set TIDE_DIR to a shorter one"),
                          "directory-too-long");
    r = request_in(dir, c, ret, err);
    if (r != -ENOENT && r != -EACCES)
        return r;
    /* The system's daemon may leave a socket behind; it must not hide the user's own daemon. */
    if (rundir_user(own) < 0 || strcmp(own, dir) == 0)
        return r;
    return request_in(own, c, ret, err);
}

/* A 429 answer means that the daemon did nothing, so the request is sent once more. */
static int try_call(const struct call *c, struct api_answer *ret, struct error *err)
{
    int r = call_api_once(c, ret, err);

    if (r < 0 || ret->status != 429)
        return r;
    api_answer_done(ret);
    usleep(API_AGAIN_US);
    return call_api_once(c, ret, err);
}

int api_try(const char *method, const char *path, json_t *body, unsigned timeout_ms,
            struct api_answer *ret, struct error *err)
{
    _cleanup_free_ char *text = NULL;

    if (body && !(text = json_dumps(body, JSON_COMPACT)))
        return error_set(err, -ENOMEM, "out of memory");
    return try_call(
        &(struct call){.method = method, .path = path, .body = text, .timeout_ms = timeout_ms}, ret,
        err);
}

int api_stream(const char *path, const char *last, struct http_stream *ret_stream,
               struct api_answer *ret, struct error *err)
{
    return try_call(
        &(struct call){
            .path = path, .last = last, .stream = ret_stream, .timeout_ms = API_TIMEOUT_MS},
        ret, err);
}

int api_cannot_start(struct error *err)
{
    char dir[RUNDIR_PATH_MAX];
    char program[PATH_MAX];
    int r = rundir_user(dir);

    if (r < 0)
        return error_word(
            err,
            error_set(err, r,
                      "the path of the run directory is too long for a socket: set TIDE_DIR to a "
                      "shorter one"),
            "directory-too-long");
    r = rundir_check(dir, err);
    return r < 0 ? r : daemon_find_program(program, sizeof(program), err);
}

static int no_daemon(const struct command *cmd, const struct error *err)
{
    char hint[ERROR_TEXT_MAX + 32];
    struct error why;

    snprintf(hint, sizeof(hint),
             "'tide run -- COMMAND' starts one by itself; tided(8) says how to run one for the "
             "machine.");
    if (api_cannot_start(&why) < 0)
        snprintf(hint, sizeof(hint), "'tide run' cannot start one: %s.", why.text);
    return cli_error_as(cmd, CLI_UNREACHABLE, err->word, hint, "%s", err->text);
}

int api_unreachable(const struct command *cmd, int code, const struct error *err)
{
    if (*far.name)
        return cli_error_as(cmd, CLI_UNREACHABLE, err->word, NULL, "%s", err->text);
    switch (code) {
    case -ENOENT:
        return no_daemon(cmd, err);
    case -EACCES:
        return cli_error_as(cmd, CLI_DENIED, err->word, "Ask its owner, or run as root.", "%s",
                            err->text);
    case -EPERM:
        return cli_error_as(cmd, CLI_DENIED, "unsafe-directory",
                            "That user could send false answers. Set TIDE_DIR or XDG_RUNTIME_DIR "
                            "to a directory of your own.",
                            "%s", err->text);
    case -ETIMEDOUT:
        return cli_error_as(
            cmd, CLI_UNREACHABLE, err->word,
            "It may be stopped or overloaded; its log is tided.log in that directory.", "%s",
            err->text);
    default:
        return cli_error_as(cmd, CLI_UNREACHABLE, err->word, NULL, "%s", err->text);
    }
}

int api_exit_code(int status)
{
    switch (status) {
    case 400:
    case 409:
    case 413:
        return CLI_USAGE;
    case 401:
    case 403:
        return CLI_DENIED;
    case 404:
        return CLI_NOT_FOUND;
    case 429:
    case 503:
        return CLI_UNREACHABLE;
    default:
        return status < 400 ? CLI_OK : CLI_FAILED;
    }
}

int api_refused(const struct command *cmd, const struct api_answer *answer)
{
    const json_t *error = json_object_get(answer->body, "error");
    const char *message = member_text(error, "message");
    const char *hint = member_text(error, "hint");
    const char *word = member_text(error, "code");
    int code = api_exit_code(answer->status);

    if (*message && !*hint && code == CLI_USAGE)
        return cli_usage_as(cmd, word, "%s", message);
    if (!*message)
        return cli_error_as(cmd, code, "bad-answer", NULL,
                            "the daemon refused this with HTTP status %d", answer->status);
    return cli_error_as(cmd, code, word, hint, "%s", message);
}

int api_request(const struct command *cmd, const char *method, const char *path, json_t *body,
                unsigned timeout_ms, json_t **ret)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err = {0};
    int r = api_try(method, path, body, timeout_ms, &answer, &err);

    if (r < 0)
        return api_unreachable(cmd, r, &err);
    if (answer.status >= 400)
        return api_refused(cmd, &answer);
    *ret = TAKE_PTR(answer.body);
    return CLI_OK;
}

int api_job_path(const struct command *cmd, const char *job, const char *suffix,
                 char ret_path[API_PATH_MAX])
{
    char name[API_PATH_MAX - 64];

    if (!*job)
        return cli_usage(cmd,
                         "JOB is empty: give an id, a name, or the pid of one of its processes");
    /* A job's name has no slash, and a server may take an escaped slash for a plain one. */
    if (strchr(job, '/') || http_escape(job, name, sizeof(name)) < 0)
        return cli_error_as(cmd, CLI_NOT_FOUND, "no-such-job", "'tide ps' lists the jobs.",
                            "there is no job '%.64s'", job);
    snprintf(ret_path, API_PATH_MAX, "/v1/jobs/%s%s", name, suffix);
    return CLI_OK;
}

const char *member_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

long member_long(const json_t *object, const char *key)
{
    return (long)json_integer_value(json_object_get(object, key));
}

double member_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool member_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

int api_print(const json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    putchar('\n');
    return CLI_OK;
}
