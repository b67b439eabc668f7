/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/broker.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/wholefile.h"
#include "edge/topic.h"
#include "host/trust/identity.h"

#define ERROR_WORD "broker-not-started"

#define PEM_MAX 65536

/* Messages that wait for tide-power alone are bounded: machines send a message a second at most. */
static const char fixed[] = "persistence false\n"
                            "max_queued_messages 1000\n"
                            "max_queued_bytes 16777216\n"
                            "memory_limit 67108864\n"
                            "message_size_limit 262144\n"
                            "log_dest stderr\n"
                            "log_type error\n"
                            "log_type warning\n"
                            "log_type notice\n"
                            "connection_messages true\n";

/* ---- files ---- */

static int place(const char *state_dir, const char *name, char ret[PATH_MAX], struct error *err)
{
    return (size_t)snprintf(ret, PATH_MAX, "%s/broker%s%s", state_dir, *name ? "/" : "", name) <
                   PATH_MAX
               ? 0
               : error_set(err, -ENAMETOOLONG, "%.100s…: too long", state_dir);
}

/*
 * The owner of the state's folder may be another user than root, who calls this at an enrolment:
 * no link that lies there is followed.
 */
static int make_folder(const char *path, const struct stat *above)
{
    struct stat there;

    if (mkdir(path, 0700) == 0)
        return geteuid() == 0 && lchown(path, above->st_uid, above->st_gid) < 0 ? -errno : 0;
    if (errno != EEXIST || lstat(path, &there) < 0)
        return -errno;
    return S_ISDIR(there.st_mode) && there.st_uid == above->st_uid ? 0 : -ENOTDIR;
}

int broker_put(const char *state_dir, const char *name, const char *text, struct error *err)
{
    struct stat status = {.st_mode = 0600}, folder;
    char path[PATH_MAX];
    int r = place(state_dir, "", path, err);

    if (r < 0)
        return r;
    if (stat(state_dir, &folder) < 0)
        return error_set(err, -errno, "%.160s: %s", state_dir, strerror(errno));
    r = make_folder(path, &folder);
    if (r < 0)
        return error_set(err, r, "cannot make %.160s: %s", path, strerror(-r));
    status.st_uid = folder.st_uid;
    status.st_gid = folder.st_gid;
    place(state_dir, name, path, err);
    r = text ? wholefile_replace(path, text, strlen(text), &status) : -ENOMEM;
    return r < 0 ? error_set(err, r, "cannot write %.160s: %s", path, strerror(-r)) : 0;
}

static int get(const char *state_dir, const char *name, char **ret)
{
    char path[PATH_MAX];
    struct stat status;
    size_t len;
    int r = place(state_dir, name, path, NULL);

    return r < 0 ? r : wholefile_read(path, BROKER_LIST_MAX, ret, &len, &status);
}

bool broker_is_there(const char *state_dir)
{
    char path[PATH_MAX];

    return place(state_dir, "revoked.crl", path, NULL) == 0 && access(path, F_OK) == 0;
}

/* ---- what mosquitto reads ---- */

/*
 * A machine writes the topics that are below its own name, no others, and reads what comes down to
 * it. A revoked one is denied by name, too: its connection outlives the list of certificates.
 */
static char *acl_text(const char *unit, const char *revoked)
{
    _cleanup_free_ char *names = strdup(revoked);
    char *text = NULL, *next = names, topic[TOPIC_MAX];
    size_t len;
    FILE *f = names ? open_memstream(&text, &len) : NULL;

    if (!f)
        return NULL;
    fprintf(f, "# Written by tide-power: changes are lost.\nuser %s\ntopic readwrite #\n", unit);
    for (const char *name; (name = strsep(&next, " \n"));)
        if (edge_name_valid(name))
            fprintf(f, "user %s\ntopic deny #\n", name);
    for (enum topic_leaf leaf = 0; leaf < TOPIC_LEASE; leaf++)
        fprintf(f, "pattern write %s\n", topic_make("%u", leaf, topic));
    fprintf(f, "pattern read tide/1/%%u/down/#\n");
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static char *config_text(const struct unit_config *c, const struct broker_listens *l)
{
    const char *dir = c->state_dir;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    fprintf(f, "# Written by tide-power: changes are lost.\nper_listener_settings true\n");
    if (l->user)
        fprintf(f, "user %s\n", l->user);
    fprintf(f, "%s", fixed);
    fprintf(f, "listener %u%s%s\n", l->port, l->address ? " " : "", l->address ? l->address : "");
    fprintf(f, "cafile %s\ncertfile %s\nkeyfile %s\ncrlfile %s/broker/revoked.crl\n", c->uplink.ca,
            c->uplink.cert, c->uplink.key, dir);
    fprintf(f,
            "acl_file %s/broker/acl\ntls_version tlsv1.3\nrequire_certificate true\n"
            "use_identity_as_username true\nuse_username_as_clientid true\n"
            "allow_anonymous false\n",
            dir);
    if (l->plug_address)
        fprintf(f,
                "listener %u %s\nmax_connections 256\nallow_anonymous true\nacl_file "
                "%s/broker/plugs.acl\n",
                l->plug_port, l->plug_address, dir);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static int put_acl(const struct unit_config *c, struct error *err)
{
    _cleanup_free_ char *revoked = NULL, *acl = NULL;

    if (get(c->state_dir, "revoked", &revoked) < 0)
        revoked = strdup("");
    acl = revoked ? acl_text(c->name, revoked) : NULL;
    return broker_put(c->state_dir, "acl", acl, err);
}

int broker_write(const struct unit_config *config, const struct broker_listens *listens,
                 struct error *err)
{
    _cleanup_free_ char *text = config_text(config, listens);
    int r;

    if (!config->uplink.cert[0] || !broker_is_there(config->state_dir))
        return error_set(err, -EINVAL,
                         "%s is enrolled without a broker: on the hub, 'tide-hub token %s --broker "
                         "HOST', then 'tide-power enrol … --force' here",
                         config->name, config->name);
    r = put_acl(config, err);
    if (r >= 0)
        r = broker_put(config->state_dir, "plugs.acl",
                       "# Written by tide-power: changes are lost.\n"
                       "topic deny tide/#\ntopic readwrite #\n",
                       err);
    return r < 0 ? r : broker_put(config->state_dir, "mosquitto.conf", text, err);
}

/* ---- news ---- */

/* The pid in STATE/broker/pid, if a mosquitto has it; 0: none. */
static pid_t find(const char *state_dir)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_file_ FILE *f = NULL;
    char path[64], comm[32] = "";
    long pid;

    if (get(state_dir, "pid", &text) < 0)
        return 0;
    pid = strtol(text, NULL, 10);
    if (pid < 1 || pid > INT_MAX)
        return 0;
    snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    f = fopen(path, "re");
    if (!f || !fgets(comm, sizeof(comm), f))
        return 0;
    return strcmp(comm, "mosquitto\n") == 0 ? (pid_t)pid : 0;
}

void broker_reload(const char *state_dir)
{
    pid_t pid = find(state_dir);

    if (pid)
        kill(pid, SIGHUP);
}

static bool is_the_same(const char *state_dir, const char *name, const char *text)
{
    _cleanup_free_ char *before = NULL;

    return get(state_dir, name, &before) == 0 && strcmp(before, text) == 0;
}

/* A list that mosquitto cannot use would shut everybody out: it is looked at before. */
int broker_take_list(const struct unit_config *config, const void *bytes, size_t len,
                     struct error *err)
{
    _cleanup_free_ char *text = len <= BROKER_LIST_MAX ? strndup(bytes, len) : NULL, *ca = NULL;
    char *list = text, *revoked = text ? strsep(&list, "\n") : NULL;
    struct stat status;
    size_t ca_len;
    int r;

    if (!revoked || !list)
        return error_set(err, -EBADMSG, "a list of revoked machines cannot be read");
    if (is_the_same(config->state_dir, "revoked", revoked) &&
        is_the_same(config->state_dir, "revoked.crl", list))
        return 0;
    r = wholefile_read(config->uplink.ca, PEM_MAX, &ca, &ca_len, &status);
    if (r < 0)
        return error_set(err, r, "cannot read %.160s: %s", config->uplink.ca, strerror(-r));
    r = identity_check_list(list, ca, err);
    if (r >= 0)
        r = broker_put(config->state_dir, "revoked", revoked, err);
    if (r >= 0)
        r = put_acl(config, err);
    if (r >= 0) /* last: until it is there the list counts as new */
        r = broker_put(config->state_dir, "revoked.crl", list, err);
    if (r < 0)
        return r;
    broker_reload(config->state_dir);
    return 1;
}
