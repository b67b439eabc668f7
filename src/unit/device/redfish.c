/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A management controller that speaks Redfish over HTTPS. It is asked for its chassis until one
 * tells its power; then for that resource alone. It is given the password with each request, or,
 * if it refuses that, in a session. Its figure may be a minute old.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "host/net/transfer.h"
#include "unit/device/device.h"
#include "unit/device/redfish_json.h"

#define POLL_S     30
#define TIMEOUT_MS 10000
#define US_PER_S   UINT64_C(1000000)
#define PEM_MAX    65536
#define SECRET_MAX 128
#define HEADER_MAX 512
#define CHASSIS    "/redfish/v1/Chassis"
#define SESSIONS   "/redfish/v1/SessionService/Sessions"
#define TOKEN      "X-Auth-Token:"
#define ANSWER_MAX (1u << 20) /* of a sane controller */

enum step { READ, LIST, LOOK, LOGIN };

struct redfish {
    struct device *device;
    sd_event_source *io, *timer;
    struct transfer_server server;
    struct transfers *transfers;
    int64_t ticket; /* 0: nothing is under way */
    enum step step;
    char ca[PEM_MAX], secret[SECRET_MAX];
    char header[HEADER_MAX]; /* how requests are allowed */
    bool refused;            /* the password was, with a request: a session is asked for */
    struct redfish_members chassis;
    struct redfish_chassis power; /* of the chassis that is looked at */
    size_t at_chassis, at_power;
    char path[REDFISH_PATH_MAX]; /* that tells the power; "": not found yet */
};

static void got(void *arg, const struct transfer_answer *answer);

static void ask(struct redfish *r, enum step step, const char *path, const char *body)
{
    struct transfer_request request = {.method = body ? "POST" : "GET",
                                       .path = path,
                                       .body = body,
                                       .header = r->header[0] && !body ? r->header : NULL,
                                       .done = got,
                                       .arg = r,
                                       .timeout_ms = TIMEOUT_MS};

    r->step = step;
    r->ticket = transfer_send(r->transfers, &request);
    if (r->ticket < 0) {
        device_lost(r->device, "cannot ask: %s", strerror((int)-r->ticket));
        r->ticket = 0;
    }
}

/* ---- finding it ------------------------------------------------------------------------------ */

/* The next place that may tell the power. */
static void look_on(struct redfish *r)
{
    if (r->at_power < r->power.n)
        ask(r, READ, r->power.path[r->at_power++], NULL);
    else if (r->at_chassis < r->chassis.n)
        ask(r, LOOK, r->chassis.path[r->at_chassis++], NULL);
    else
        device_lost(r->device, "none of its chassis tells its power");
}

static void begin_search(struct redfish *r)
{
    r->path[0] = '\0';
    r->chassis.n = r->at_chassis = r->power.n = r->at_power = 0;
    ask(r, LIST, CHASSIS, NULL);
}

static void poll(struct redfish *r)
{
    if (r->path[0])
        ask(r, READ, r->path, NULL);
    else
        begin_search(r);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void took(struct redfish *r, const struct transfer_answer *answer)
{
    struct redfish_reading reading;
    uint64_t now = clock_now_ns();

    if (redfish_reading(answer->body, answer->body_len, &reading) < 0) {
        if (r->path[0])
            device_lost(r->device, "it tells no power any more");
        else
            look_on(r);
        r->path[0] = '\0';
        return;
    }
    if (!r->path[0])
        memcpy(r->path, r->power.path[r->at_power - 1], sizeof(r->path));
    if (reading.has_uj)
        device_energy(r->device, now, reading.uj);
    if (reading.has_uw)
        device_watts(r->device, now, reading.uw);
}

/* The token of a session, from the answer's head. */
static bool take_token(struct redfish *r, const char *head)
{
    for (const char *line = head; *line; line += strcspn(line, "\n") + 1) {
        size_t n = strcspn(line, "\r\n");

        if (strncasecmp(line, TOKEN, strlen(TOKEN)) == 0 && n < sizeof(r->header)) {
            snprintf(r->header, sizeof(r->header), "%.*s", (int)n, line);
            return true;
        }
        if (line[strcspn(line, "\n")] == '\0')
            break;
    }
    return false;
}

static void login(struct redfish *r)
{
    json_t *j = json_pack("{s:s, s:s}", "UserName", r->device->config->user, "Password", r->secret);
    _cleanup_free_ char *body = j ? json_dumps(j, JSON_COMPACT) : NULL;

    json_decref(j);
    if (body)
        ask(r, LOGIN, SESSIONS, body);
}

static void on_refusal(struct redfish *r)
{
    if (r->refused || !r->device->config->user[0]) {
        device_lost(r->device, "it refuses user and password");
        return;
    }
    r->refused = true; /* until a request is answered: one new session at a time */
    login(r);
}

static void got(void *arg, const struct transfer_answer *answer)
{
    struct redfish *r = arg;
    bool good = answer->code == 0 && answer->status >= 200 && answer->status < 300 &&
                answer->body_len <= ANSWER_MAX;

    r->ticket = 0;
    if (answer->code < 0) {
        device_lost(r->device, "%.80s", answer->reason);
    } else if (answer->status == 401 && r->step != LOGIN) {
        on_refusal(r);
    } else if (r->step == LOGIN) {
        if (good && take_token(r, answer->head))
            poll(r);
        else
            device_lost(r->device, "it opens no session (HTTP %d)", answer->status);
    } else if (r->step == READ && (good || !r->path[0])) {
        r->refused &= !good;
        if (good)
            took(r, answer);
        else
            look_on(r);
    } else if (!good) {
        device_lost(r->device, "it answers HTTP %d", answer->status);
        r->path[0] = '\0';
    } else if (r->step == LIST) {
        r->refused = false;
        redfish_members(answer->body, answer->body_len, &r->chassis);
        look_on(r);
    } else {
        r->at_power = 0;
        if (redfish_chassis(answer->body, answer->body_len, &r->power) < 0)
            r->power.n = 0;
        look_on(r);
    }
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct redfish *r = arg;

    transfers_dispatch(r->transfers);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
    struct redfish *r = arg;
    uint32_t pause = r->device->config->period_s ? r->device->config->period_s : POLL_S;

    sd_event_source_set_time(source, usec + pause * US_PER_S);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (r->ticket == 0) {
        r->refused = false;
        poll(r);
    }
    return 0;
}

static int read_file(const char *path, char *ret, size_t size)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

    if (n < 0)
        return -errno;
    ret[n] = '\0';
    return 0;
}

/* "Authorization: Basic …" */
static void basic(struct redfish *r)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char plain[SECRET_MAX + CONFIG_NAME_MAX + 1];
    size_t n = (size_t)snprintf(plain, sizeof(plain), "%s:%s", r->device->config->user, r->secret);
    size_t len = (size_t)snprintf(r->header, sizeof(r->header), "Authorization: Basic ");

    for (size_t i = 0; i < n; i += 3) {
        unsigned char b[3] = {(unsigned char)plain[i]};

        b[1] = i + 1 < n ? (unsigned char)plain[i + 1] : 0;
        b[2] = i + 2 < n ? (unsigned char)plain[i + 2] : 0;
        r->header[len++] = digits[b[0] >> 2];
        r->header[len++] = digits[(b[0] & 3) << 4 | b[1] >> 4];
        r->header[len++] = i + 1 < n ? digits[(b[1] & 15) << 2 | b[2] >> 6] : '=';
        r->header[len++] = i + 2 < n ? digits[b[2] & 63] : '=';
    }
    r->header[len] = '\0';
}

static int prepare(struct redfish *r)
{
    const struct meter_config *c = r->device->config;
    const char *file = c->ca;
    int e = *file ? read_file(file, r->ca, sizeof(r->ca)) : 0;

    if (e == 0 && *(file = c->password_file))
        e = read_file(file, r->secret, sizeof(r->secret));
    if (e < 0)
        device_lost(r->device, "cannot read %.60s: %s", file, strerror(-e));
    r->secret[strcspn(r->secret, "\r\n")] = '\0';
    if (c->user[0])
        basic(r);
    r->server = (struct transfer_server){.url = c->url, .ca = c->ca[0] ? r->ca : NULL};
    return e;
}

static void close_redfish(void *own)
{
    struct redfish *r = own;

    if (!r)
        return;
    sd_event_source_disable_unref(r->io);
    sd_event_source_disable_unref(r->timer);
    transfers_free(r->transfers);
    explicit_bzero(r, sizeof(*r));
    free(r);
}

static int open_redfish(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    struct redfish *r = calloc(1, sizeof(*r));
    int e;

    if (!r)
        return -ENOMEM;
    r->device = d;
    e = prepare(r);
    if (e == 0)
        e = transfers_new(&r->server, &r->transfers);
    if (e == 0)
        e = sd_event_add_io(event, &r->io, transfers_fd(r->transfers), EPOLLIN, on_io, r);
    if (e >= 0)
        e = sd_event_add_time_relative(event, &r->timer, CLOCK_MONOTONIC, 0, 10000, on_timer, r);
    if (e < 0) {
        close_redfish(r);
        return e;
    }
    *ret_own = r;
    return 0;
}

static const char *lacks(const struct meter_config *c)
{
    if (strncmp(c->url, "https://", 8) != 0)
        return "url=https://HOST";
    return !c->user[0] == !c->password_file[0] ? NULL : "both user= and password-file=, or none";
}

const struct device_ops device_redfish = {.kind = "redfish",
                                          .poll_s = POLL_S,
                                          .slow = true,
                                          .lacks = lacks,
                                          .open = open_redfish,
                                          .close = close_redfish};
