/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/enrol.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/wholefile.h"
#include "edge/enrol_token.h"
#include "edge/topic.h"
#include "host/net/transfer.h"
#include "host/trust/identity.h"
#include "unit/area/broker.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "enrolment-failed"

#define EXIT_USAGE  2
#define CONFIG      "/etc/tide/tide-power.conf"
#define STATE       "/var/lib/tide-power"
#define SOCKET      "/run/tide/api.sock"
#define USER        "tide-power" /* whose the files are, if root writes them */
#define HUB_PORT    8443
#define BROKER_PORT 8883
#define TIMEOUT_MS  20000
#define URL_MAX     300

static const char usage[] =
    "Usage: tide-power enrol https://HUB[:PORT] TOKEN|@FILE [--state DIR] [--config FILE]\n"
    "                        [--machine [--tided SOCKET]] [--force|--keep]\n"
    "\n"
    "Makes this machine a unit of the hub: with the one-time token that 'tide-hub token NAME'\n"
    "printed there, gets a certificate for a key that stays here. Port 8443 unless named.\n"
    "@FILE: the token is the file's text.\n"
    "\n"
    "  --machine       links this machine's tided, which obeys the hub's leases; with a token of\n"
    "                  'tide-hub token NAME --unit UNIT' it always does, and obeys that unit's\n"
    "  --tided SOCKET  where that answers; default " SOCKET "\n"
    "  --state DIR     where unit.key, unit.crt, ca.crt and hub-seal.pub are written;\n"
    "                  default " STATE "\n"
    "  --config FILE   is made if it is missing; default " CONFIG "\n"
    "  --force         replaces a certificate that is there\n"
    "  --keep          keeps a certificate that is there, and asks nobody\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'}, {"config", required_argument, NULL, 'c'},
    {"force", no_argument, NULL, 'f'},       {"keep", no_argument, NULL, 'k'},
    {"machine", no_argument, NULL, 'm'},     {"tided", required_argument, NULL, 't'},
    {"help", no_argument, NULL, 'h'},        {0}};

enum file { KEY, CERT, CA, SEAL, FILES };
static const char *const names[FILES] = {"unit.key", "unit.crt", "ca.crt", "hub-seal.pub"};

struct enrolment {
    const char *state, *config, *tided;
    bool force, keep, machine;
    char url[URL_MAX];
    struct enrol_token token;
    const char *token_text;
    char *key, *request, *ca; /* PEM */
    json_t *answer;
    char path[FILES][PATH_MAX];
};

/* ---- the hub ---- */

struct reply {
    bool done;
    int code, status;
    char reason[ERROR_TEXT_MAX];
    json_t *body;
};

static void on_done(void *arg, const struct transfer_answer *a)
{
    struct reply *r = arg;

    r->done = true;
    r->code = a->code;
    r->status = a->status;
    snprintf(r->reason, sizeof(r->reason), "%.200s", a->reason ? a->reason : "");
    r->body = a->code < 0 ? NULL : json_loadb(a->body, a->body_len, 0, NULL);
}

/* One request, and waits for its answer. Returns 0 with status 200, or -errno. */
static int ask(const struct transfer_server *server, const char *method, const char *path,
               const char *body, json_t **ret, struct error *err)
{
    struct reply reply = {0};
    const struct transfer_request request = {.method = method,
                                             .path = path,
                                             .body = body,
                                             .done = on_done,
                                             .arg = &reply,
                                             .timeout_ms = TIMEOUT_MS};
    struct transfers *set;
    const char *told;
    int r = transfers_new(server, &set);

    if (r == 0 && transfer_send(set, &request) < 0)
        r = -ENOMEM;
    while (r == 0 && !reply.done) {
        struct pollfd p = {transfers_fd(set), POLLIN, 0};

        if (poll(&p, 1, TIMEOUT_MS) < 0 && errno != EINTR)
            r = -errno;
        transfers_dispatch(set);
    }
    transfers_free(set);
    if (r == 0 && reply.code < 0)
        r = error_set(err, reply.code, "%s: %s", server->url,
                      *reply.reason ? reply.reason : strerror(-reply.code));
    else if (r < 0)
        error_set(err, r, "%s: %s", server->url, strerror(-r));
    else if (reply.status != 200 && reply.status != 201) {
        told = json_string_value(json_object_get(json_object_get(reply.body, "error"), "message"));
        r = error_set(err, -EREMOTEIO, "%s says: %.180s", server->url,
                      told ? told : "something that is no answer of a hub");
    } else if (!reply.body)
        r = error_set(err, -EBADMSG, "%s: no answer of a hub", server->url);
    if (r < 0)
        json_decref(reply.body);
    else
        *ret = reply.body;
    return r;
}

static const char *text_of(const json_t *answer, const char *member)
{
    const char *text = json_string_value(json_object_get(answer, member));

    return text ? text : "";
}

/* Whether it is the authority that the token speaks of. */
static bool is_the_hubs(const struct enrolment *e, const char *ca)
{
    char hash[SECRET_LEN + 1];

    return secret_hash(ca, strlen(ca), hash) == 0 && strcmp(hash, e->token.fingerprint) == 0;
}

/* Nothing secret is sent before the authority is the right one. */
static int get_ca(struct enrolment *e, struct error *err)
{
    const struct transfer_server server = {.url = e->url, .insecure = true};
    json_t *answer;
    int r = ask(&server, "GET", "/v1/ca", NULL, &answer, err);

    if (r < 0)
        return r;
    e->ca = strdup(text_of(answer, "ca"));
    json_decref(answer);
    if (!e->ca)
        return error_set(err, -ENOMEM, "out of memory");
    if (!is_the_hubs(e, e->ca))
        return error_set(err, -EACCES,
                         "%s is not the hub that made the token: is the address right? If it is, "
                         "somebody stands between",
                         e->url);
    return 0;
}

/* The hub's pages may have a certificate of the organization's instead of its own authority's. */
static int send_request(struct enrolment *e, struct error *err)
{
    struct transfer_server server = {.url = e->url, .ca = e->ca};
    json_t *body = json_pack("{s:s, s:s}", "token", e->token_text, "request", e->request);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    int r = text ? ask(&server, "POST", "/v1/enrol", text, &e->answer, err)
                 : error_set(err, -ENOMEM, "out of memory");

    if (r == -EPROTO) {
        server.ca = NULL;
        r = ask(&server, "POST", "/v1/enrol", text, &e->answer, err);
    }
    free(text);
    json_decref(body);
    return r;
}

/* "HOST:PORT", or nothing: what goes into a configuration file has no other character. */
static bool is_address(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]");

    return text[n] == '\0';
}

static int check_answer(const struct enrolment *e, struct error *err)
{
    const char *name = text_of(e->answer, "name");

    if (!edge_name_valid(name) || !*text_of(e->answer, "seal") ||
        !is_the_hubs(e, text_of(e->answer, "ca")))
        return error_set(err, -EBADMSG, "the hub's answer lacks a name, a seal, or its authority");
    if (!is_address(text_of(e->answer, "broker")) || !is_address(text_of(e->answer, "local")))
        return error_set(err, -EBADMSG, "the hub's answer names a broker that is no HOST:PORT");
    if (identity_check(text_of(e->answer, "certificate"), e->key, e->ca, name, err) < 0)
        return error_set(err, -EBADMSG, "the hub's certificate is not for the key made here");
    return 0;
}

/* ---- files ---- */

static struct stat owner(void)
{
    const struct passwd *user = geteuid() == 0 ? getpwnam(USER) : NULL;

    return (struct stat){.st_uid = user ? user->pw_uid : geteuid(),
                         .st_gid = user ? user->pw_gid : getegid()};
}

static int put(const char *path, const char *text, mode_t mode, struct error *err)
{
    struct stat status = owner();
    int r;

    status.st_mode = mode;
    r = wholefile_replace(path, text, strlen(text), &status);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* The folder of the configuration is not there on a machine that has no tided. */
static int make_config_folder(const char *config, struct error *err)
{
    char folder[PATH_MAX];
    char *slash;

    if ((size_t)snprintf(folder, sizeof(folder), "%s", config) >= sizeof(folder))
        return error_set(err, -ENAMETOOLONG, "%.100s…: too long", config);
    slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    if (mkdir(folder, 0755) < 0)
        return errno == EEXIST
                   ? 0
                   : error_set(err, -errno, "cannot make %s: %s", folder, strerror(errno));
    return chmod(folder, 0755) < 0 /* whatever the umask: the unit has to read its file */
               ? error_set(err, -errno, "%s: %s", folder, strerror(errno))
               : 0;
}

static int make_state(struct enrolment *e, struct error *err)
{
    const struct stat status = owner();

    if (mkdir(e->state, 0700) == 0) {
        if (chown(e->state, status.st_uid, status.st_gid) < 0)
            return error_set(err, -errno, "%s: %s", e->state, strerror(errno));
    } else if (errno != EEXIST) {
        return error_set(err, -errno, "cannot make %s: %s", e->state, strerror(errno));
    }
    for (int f = 0; f < FILES; f++)
        if ((size_t)snprintf(e->path[f], PATH_MAX, "%s/%s", e->state, names[f]) >= PATH_MAX)
            return error_set(err, -ENAMETOOLONG, "%s: too long", e->state);
    if (!e->force && access(e->path[CERT], F_OK) == 0)
        return error_set(err, -EEXIST, "%s is there: this is a unit already (--force replaces it)",
                         e->path[CERT]);
    return access(e->state, W_OK) < 0
               ? error_set(err, -errno, "%s cannot be written: run this as root", e->state)
               : 0;
}

/* The certificate comes last: a unit without it starts anew. */
static int write_identity(const struct enrolment *e, struct error *err)
{
    int r = put(e->path[KEY], e->key, 0600, err);

    if (r >= 0)
        r = put(e->path[CA], text_of(e->answer, "ca"), 0644, err);
    if (r >= 0)
        r = put(e->path[SEAL], text_of(e->answer, "seal"), 0644, err);
    if (r >= 0 && *text_of(e->answer, "revoked"))
        r = broker_put(e->state, "revoked.crl", text_of(e->answer, "revoked"), err);
    return r < 0 ? r : put(e->path[CERT], text_of(e->answer, "certificate"), 0644, err);
}

/* "HOST" of the url, where the hub does not say where its broker is. */
static void broker_of(const struct enrolment *e, char ret[URL_MAX])
{
    const char *host = e->url + strlen("https://");

    if (*text_of(e->answer, "broker")) {
        snprintf(ret, URL_MAX, "%.255s", text_of(e->answer, "broker"));
        return;
    }
    snprintf(ret, URL_MAX, "%.*s:%d", (int)(strrchr(host, ':') - host), host, BROKER_PORT);
}

static void write_broker(FILE *f, const struct enrolment *e, const char *section,
                         const char *broker)
{
    fprintf(f, "\n[%s]\nbroker = %s\nca = %s\ncert = %s\nkey = %s\n", section, broker, e->path[CA],
            e->path[CERT], e->path[KEY]);
}

/* A machine below a unit gets nothing under the hub's seal: it obeys that unit's leases. */
static char *config_text(const struct enrolment *e)
{
    char broker[URL_MAX], *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    broker_of(e, broker);
    fprintf(f, "[unit]\nname = %s\nstate-dir = %s\n", text_of(e->answer, "name"), e->state);
    write_broker(f, e, "uplink", broker);
    if (!*text_of(e->answer, "unit"))
        fprintf(f, "seal = %s\n", e->path[SEAL]);
    if (*text_of(e->answer, "local"))
        write_broker(f, e, "local", text_of(e->answer, "local"));
    if (e->machine)
        fprintf(f, "\n[tided]\nsocket = %s\n", e->tided);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static const char *what_next(const struct enrolment *e)
{
    if (e->machine)
        return "start tide-power, whose user has to be in tided's power-group";
    return *text_of(e->answer, "local")
               ? "add the area's meters and a [child NAME] for each machine"
               : "add the area's meters";
}

static int write_config(const struct enrolment *e, struct error *err)
{
    _cleanup_free_ char *text = config_text(e);
    struct stat status = {.st_mode = 0644, .st_uid = geteuid(), .st_gid = getegid()};
    int r;

    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (access(e->config, F_OK) == 0) {
        printf("%s stays as it is; it needs:\n\n%s\n", e->config, text);
        return 0;
    }
    r = wholefile_replace(e->config, text, strlen(text), &status);
    if (r < 0) {
        fprintf(stderr, "%s\n", text);
        return error_set(err, r, "cannot write %s: %s; it needs the lines above", e->config,
                         strerror(-r));
    }
    printf("%s is written: %s, see tide-power.conf(5)\n", e->config, what_next(e));
    return 0;
}

/* ---- the command ---- */

static int take_url(struct enrolment *e, const char *url)
{
    const char *host = url + strlen("https://"), *colon;
    size_t len;

    if (strncmp(url, "https://", strlen("https://")) != 0)
        return -EINVAL;
    len = strcspn(host, "/");
    if (len == 0 || len > URL_MAX - 32 || (host[len] && host[len + 1]))
        return -EINVAL;
    colon = memchr(host, ':', len);
    if (*host == '[')
        colon = strstr(host, "]:");
    snprintf(e->url, sizeof(e->url), "https://%.*s", (int)len, host);
    if (!colon)
        snprintf(e->url + strlen(e->url), 8, ":%d", HUB_PORT);
    return 0;
}

static int enrol(struct enrolment *e, struct error *err)
{
    int r = make_state(e, err);

    if (r >= 0)
        r = make_config_folder(e->config, err);
    if (r >= 0)
        r = get_ca(e, err);
    if (r >= 0)
        r = identity_request("unit", &e->key, &e->request, err);
    if (r >= 0)
        r = send_request(e, err);
    if (r >= 0)
        r = check_answer(e, err);
    if (r >= 0)
        r = write_identity(e, err);
    if (r < 0)
        return r;
    e->machine |= *text_of(e->answer, "unit") != '\0';
    if (*text_of(e->answer, "unit"))
        printf("this machine is %s now, below unit %s\n", text_of(e->answer, "name"),
               text_of(e->answer, "unit"));
    else
        printf("this machine is unit %s now\n", text_of(e->answer, "name"));
    return write_config(e, err);
}

static bool is_enrolled(const struct enrolment *e)
{
    char path[PATH_MAX];

    return (size_t)snprintf(path, sizeof(path), "%s/%s", e->state, names[CERT]) < sizeof(path) &&
           access(path, F_OK) == 0;
}

/* "@FILE", so that a token stands in no list of processes. */
static int take_token(struct enrolment *e, const char *word, char *text, size_t size)
{
    _cleanup_file_ FILE *file = word[0] == '@' ? fopen(word + 1, "re") : NULL;

    if (word[0] == '@' && !file) {
        error_print("bad-token", "tide-power: cannot read the token in %s: %s", word + 1,
                    strerror(errno));
        return -EINVAL;
    }
    snprintf(text, size, "%s", file ? "" : word);
    if (file && fgets(text, (int)size, file))
        text[strcspn(text, " \r\n")] = '\0';
    e->token_text = text;
    return enrol_token_read(text, &e->token);
}

static int complain(const char *what, const char *value, const char *wanted)
{
    error_print("usage", "tide-power: %s '%.100s': %s", what, value, wanted);
    return EXIT_USAGE;
}

int enrol_main(int argc, char **argv)
{
    struct enrolment e = {.state = STATE, .config = CONFIG, .tided = SOCKET};
    char token[ENROL_TOKEN_TEXT_MAX + 8];
    struct error err = {0};
    int option, r;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's') {
            e.state = optarg;
        } else if (option == 'c') {
            e.config = optarg;
        } else if (option == 'f') {
            e.force = true;
        } else if (option == 'k') {
            e.keep = true;
        } else if (option == 'm') {
            e.machine = true;
        } else if (option == 't') {
            e.tided = optarg;
        } else {
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : EXIT_USAGE;
        }
    }
    if (argc - optind != 2) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (take_url(&e, argv[optind]) < 0)
        return complain("hub", argv[optind], "use https://HOST or https://HOST:PORT");
    if (e.keep && is_enrolled(&e))
        return EXIT_SUCCESS;
    if (take_token(&e, argv[optind + 1], token, sizeof(token)) < 0)
        return complain("token", "…",
                        "this is no token of 'tide-hub token NAME', or not all of it");
    r = enrol(&e, &err);
    if (r < 0)
        error_print(error_why(&err), "tide-power: %s", err.text);
    if (e.key)
        explicit_bzero(e.key, strlen(e.key));
    free(e.key);
    free(e.request);
    free(e.ca);
    json_decref(e.answer);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
