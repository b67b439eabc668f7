/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to tided (docs/http-api.md) as JSON values, and its errors as messages and exit codes.
 * Single-threaded; used by the commands.
 */
#pragma once

#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/rundir.h"
#include "host/net/http.h"

#include <jansson.h>
#include <limits.h>

#define API_TIMEOUT_MS 5000 /* for a request that does not wait for an acknowledgement */
#define API_PATH_MAX   1024

struct api_answer {
    int status;                /* HTTP status */
    json_t *body;              /* never NULL after success; JSON null when the answer had none */
    char dir[RUNDIR_PATH_MAX]; /* of the daemon that answered; "": another machine's */
};

void api_answer_done(struct api_answer *answer);

#define _cleanup_answer_ _cleanup_(api_answer_done)

#define API_HOST_VARIABLE "TIDE_HOST"

/*
 * From now on requests go to the machine that TIDE_HOST names, if it names one; without this call
 * they never do. Returns CLI_OK, or an exit code after the message.
 */
int api_host(const struct command *cmd);
const char *api_host_name(void); /* NULL: this machine */

/*
 * Sends one request to this user's daemon: the system's, or the user's own when that one does not
 * run. @body may be NULL (borrowed). Prints nothing. Returns 0 (whatever the status), or -errno of
 * http_request() with *err saying where: -ENOENT when no daemon runs, -EBADMSG also for an answer
 * that is not JSON.
 */
int api_try(const char *method, const char *path, json_t *body, unsigned timeout_ms,
            struct api_answer *ret, struct error *err);

/*
 * The same for a path that answers with a stream of events, from behind the event @last (may be
 * empty). With ret->status 200, *ret_stream is the stream and the body JSON null.
 */
int api_stream(const char *path, const char *last, struct http_stream *ret_stream,
               struct api_answer *ret, struct error *err);

/* Parses the daemon's JSON and makes it printable; NULL when it is not JSON. */
json_t *api_parse(const char *text);

/* Says why `tide run` could not start a daemon here: 0, or -errno with the reason in *err. */
int api_cannot_start(struct error *err);

/* Prints the message for a failure of api_try(); returns CLI_UNREACHABLE or CLI_DENIED. */
int api_unreachable(const struct command *cmd, int code, const struct error *err);

/* Prints the daemon's complaint in @answer (status >= 400); returns the exit code. */
int api_refused(const struct command *cmd, const struct api_answer *answer);

/* Returns the exit code for an HTTP status. */
int api_exit_code(int status);

/*
 * The usual case: sends the request and prints a failure. Returns CLI_OK with *ret, the body (the
 * caller's), or the exit code.
 */
int api_request(const struct command *cmd, const char *method, const char *path, json_t *body,
                unsigned timeout_ms, json_t **ret);

/* Writes "/v1/jobs/<job><suffix>", escaped. Returns CLI_OK, or an exit code after the message. */
int api_job_path(const struct command *cmd, const char *job, const char *suffix,
                 char ret_path[API_PATH_MAX]);

/* ---- members of an object; a missing one, or one of another type, is "", 0, false ---- */

const char *member_text(const json_t *object, const char *key);
long member_long(const json_t *object, const char *key);
double member_number(const json_t *object, const char *key);
bool member_bool(const json_t *object, const char *key);

static inline void cleanup_json(json_t **json)
{
    json_decref(*json);
}

#define _cleanup_json_ _cleanup_(cleanup_json)

/* Prints @json, indented, with a final newline; returns CLI_OK. */
int api_print(const json_t *json);
