/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to a broker, against a real mosquitto on loopback: messages, expiry of
 * connections, last wills, a broker that dies and comes back, certificates and rights, a peer that
 * says nothing; and the uplink, whose parent begins late. Exits 77 where mosquitto or openssl is
 * missing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "edge/mqtt.h"
#include "edge/topic.h"
#include "edge/uplink.h"

#define GUARD_NS (30 * NS_PER_S)

static char dir[] = "/tmp/tide-mqtt-XXXXXX";
static sd_event *event;
static pid_t broker;
static uint16_t plain_port, tls_port;

/* A client and what it saw. */
struct seen {
    struct mqtt *mqtt;
    unsigned ups, problems, messages, stored, unheard;
    char problem[256], topic[128], text[128];
    bool retained;
};

static void up(void *arg, const char *problem)
{
    struct seen *s = arg;

    if (!problem) {
        s->ups++;
        return;
    }
    s->problems++;
    snprintf(s->problem, sizeof(s->problem), "%s", problem);
}

static void got(void *arg, const struct mqtt_message *m)
{
    struct seen *s = arg;

    s->messages++;
    s->retained = m->retained;
    snprintf(s->topic, sizeof(s->topic), "%s", m->topic);
    snprintf(s->text, sizeof(s->text), "%.*s", (int)m->len, (const char *)m->bytes);
}

static void stored(void *arg, int id, bool heard)
{
    struct seen *s = arg;

    s->stored++;
    s->unheard += !heard;
}

/* Runs the loop until the condition holds; fails after the guard's time. */
#define UNTIL(condition)                                                                           \
    for (uint64_t _end = clock_now_ns() + GUARD_NS; !(condition);) {                               \
        if (clock_now_ns() > _end)                                                                 \
            fail_msg("not in 30 s: %s", #condition);                                               \
        sd_event_run(event, 100000);                                                               \
    }

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&a, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        abort();
    close(fd);
    return ntohs(a.sin_port);
}

static void start_broker(void)
{
    char conf[128];

    snprintf(conf, sizeof(conf), "%s/mosquitto.conf", dir);
    broker = fork();
    if (broker == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        dup2(null, 1);
        dup2(null, 2);
        execlp("mosquitto", "mosquitto", "-c", conf, NULL);
        _exit(127);
    }
}

static void stop_broker(void)
{
    kill(broker, SIGKILL);
    waitpid(broker, NULL, 0);
}

static struct mqtt_options plain(struct seen *s, const char *name)
{
    return (struct mqtt_options){.host = "127.0.0.1",
                                 .port = plain_port,
                                 .name = name,
                                 .up = up,
                                 .got = got,
                                 .stored = stored,
                                 .arg = s};
}

static void connect_as(struct seen *s, const struct mqtt_options *o)
{
    struct error err = {0};

    if (mqtt_new(event, o, &s->mqtt, &err) < 0)
        fail_msg("%s", err.text);
}

/* ---- plain ----------------------------------------------------------------------------------- */

static void messages_arrive_and_are_acknowledged(void **state)
{
    struct seen a = {0}, b = {0};
    struct mqtt_options oa = plain(&a, "a"), ob = plain(&b, "b");
    int id;

    connect_as(&a, &oa);
    connect_as(&b, &ob);
    assert_int_equal(mqtt_publish(a.mqtt, "t/x", "1", 1, 1, false, 0, &id), -ENOTCONN);
    assert_int_equal(mqtt_subscribe(b.mqtt, "t/#", 1), 0);
    assert_int_equal(mqtt_subscribe(b.mqtt, "t/#/x", 1), -EINVAL);
    UNTIL(a.ups == 1 && b.ups == 1);
    assert_int_equal(mqtt_subscribe(b.mqtt, "late/#", 1), 0);
    assert_int_equal(mqtt_publish(a.mqtt, "t/+", "1", 1, 1, false, 0, &id), -EINVAL);
    while (b.messages == 0) { /* the subscription may be under way */
        unsigned before = a.stored;

        assert_int_equal(mqtt_publish(a.mqtt, "t/x", "hello", 5, 1, false, 60, &id), 0);
        UNTIL(a.stored > before);
        sd_event_run(event, 50000);
    }
    assert_string_equal(b.topic, "t/x");
    assert_string_equal(b.text, "hello");
    b.messages = a.stored = a.unheard = 0;
    assert_int_equal(mqtt_publish(a.mqtt, "t/x", "heard", 5, 1, false, 0, &id), 0);
    UNTIL(a.stored);
    assert_int_equal(a.unheard, 0);
    assert_int_equal(mqtt_publish(a.mqtt, "late/y", "", 0, 0, false, 0, &id), 0);
    UNTIL(strcmp(b.topic, "late/y") == 0);
    mqtt_free(a.mqtt);
    mqtt_free(b.mqtt);
}

static void no_more_is_in_flight_than_allowed(void **state)
{
    struct seen a = {0};
    struct mqtt_options o = plain(&a, "a");
    int id, sent = 0, r;

    connect_as(&a, &o);
    UNTIL(a.ups == 1);
    while ((r = mqtt_publish(a.mqtt, "t/x", "1", 1, 1, false, 0, &id)) == 0)
        sent++;
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(sent, MQTT_FLIGHT_MAX);
    UNTIL(a.stored == MQTT_FLIGHT_MAX);
    assert_int_equal(a.unheard, MQTT_FLIGHT_MAX);
    assert_int_equal(mqtt_publish(a.mqtt, "t/x", "1", 1, 1, false, 0, &id), 0);
    mqtt_free(a.mqtt);
}

static void a_retained_message_and_a_last_will_are_seen_later(void **state)
{
    struct seen a = {0};
    struct mqtt_options o = plain(&a, "watcher");
    pid_t child = fork();

    if (child == 0) { /* connects, says so, and is killed */
        struct seen c = {0};
        struct mqtt_options lost = plain(&c, "lost");
        int id;

        lost.will_topic = "state/lost";
        lost.will = "gone";
        sd_event_new(&event);
        if (mqtt_new(event, &lost, &c.mqtt, NULL) < 0)
            _exit(1);
        while (c.ups == 0)
            sd_event_run(event, 100000);
        mqtt_publish(c.mqtt, "state/lost", "here", 4, 1, true, 0, &id);
        while (c.stored == 0)
            sd_event_run(event, 100000);
        kill(getpid(), SIGSTOP);
        _exit(1);
    }
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    connect_as(&a, &o);
    mqtt_subscribe(a.mqtt, "state/#", 1);
    UNTIL(strcmp(a.text, "here") == 0);
    assert_true(a.retained);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    UNTIL(strcmp(a.text, "gone") == 0);
    mqtt_free(a.mqtt);
}

static void a_broker_that_comes_back_is_found_again(void **state)
{
    struct seen a = {0}, b = {0};
    struct mqtt_options oa = plain(&a, "a"), ob = plain(&b, "b");
    int id;

    connect_as(&a, &oa);
    connect_as(&b, &ob);
    mqtt_subscribe(b.mqtt, "t/#", 1);
    UNTIL(a.ups == 1 && b.ups == 1);
    stop_broker();
    UNTIL(a.problems && b.problems);
    assert_false(mqtt_connected(a.mqtt));
    assert_non_null(strstr(a.problem, "127.0.0.1:"));
    assert_int_equal(mqtt_publish(a.mqtt, "t/x", "1", 1, 1, false, 0, &id), -ENOTCONN);
    start_broker();
    UNTIL(a.ups == 2 && b.ups == 2);
    b.messages = 0;
    while (b.messages == 0) { /* b's subscription is renewed without us */
        mqtt_publish(a.mqtt, "t/x", "again", 5, 1, false, 0, &id);
        sd_event_run(event, 100000);
        sd_event_run(event, 100000);
    }
    assert_string_equal(b.text, "again");
    mqtt_free(a.mqtt);
    mqtt_free(b.mqtt);
}

/* ---- a parent that begins after its child ---------------------------------------------------- */

static void say_nothing(void *arg, const char *text)
{
}

static void no_state(void *arg, struct payload_state *ret)
{
}

/* As a hub that starts slowly, or again: the broker passes on what comes meanwhile to nobody. */
static void records_that_nobody_heard_are_sent_again_soon(void **state)
{
    const struct uplink_place place = {.name = "child",
                                       .role = "unit",
                                       .host = "127.0.0.1",
                                       .port = plain_port,
                                       .ca = "",
                                       .cert = "",
                                       .key = ""};
    const struct uplink_hooks hooks = {.state = no_state, .say = say_nothing};
    struct outbox_record r = {.point = "area", .from_ms = 1000, .to_ms = 2000};
    struct seen parent = {0};
    struct mqtt_options o = plain(&parent, "parent");
    struct outbox *outbox;
    struct uplink *u;
    struct error err;
    char path[128], topic[TOPIC_MAX];
    uint64_t later;

    snprintf(path, sizeof(path), "%s/outbox.db", dir);
    assert_int_equal(outbox_open(path, 1 << 20, 7, &outbox, &err), 0);
    assert_int_equal(uplink_new(event, &place, outbox, &hooks, &u, &err), 0);
    UNTIL(uplink_connected(u));
    for (int i = 0; i < 10 * PAYLOAD_RECORDS_MAX; i++) /* more messages than may wait */
        outbox_put(outbox, &r);
    uplink_tick(u, NULL, clock_now_ns());
    connect_as(&parent, &o);
    UNTIL(parent.ups);
    while (sd_event_run(event, 300000) > 0) /* the broker's words on the record, too */
        ;
    mqtt_subscribe(parent.mqtt, topic_make("child", TOPIC_ENERGY, topic), 1);
    later = clock_now_ns() + 20 * NS_PER_S; /* without a receipt alone, it would be 30 s */
    for (uint64_t end = clock_now_ns() + GUARD_NS; parent.messages == 0 && clock_now_ns() < end;) {
        uplink_tick(u, NULL, later);
        sd_event_run(event, 100000);
    }
    assert_string_equal(parent.topic, topic);
    uplink_free(u);
    outbox_close(outbox);
    mqtt_free(parent.mqtt);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static char ca[64], other_ca[64], cert[2][64], key[2][64];

static struct mqtt_options secret(struct seen *s, int who)
{
    struct mqtt_options o = plain(s, who ? "two" : "one");

    o.port = tls_port;
    o.host = "localhost";
    o.ca = ca;
    o.cert = cert[who];
    o.key = key[who];
    return o;
}

/* Rights are two patterns: who is `two` may not write what `one` writes, nor read what `one` reads.
 */
static void a_certificate_gives_the_rights_of_its_name_alone(void **state)
{
    struct seen one = {0}, two = {0}, all = {0};
    struct mqtt_options o1 = secret(&one, 0), o2 = secret(&two, 1), o3 = plain(&all, "all");
    char topic[TOPIC_MAX];
    int id;

    connect_as(&one, &o1);
    connect_as(&two, &o2);
    connect_as(&all, &o3);
    mqtt_subscribe(all.mqtt, "tide/#", 1);
    mqtt_subscribe(two.mqtt, "tide/1/+/down/#", 1);
    UNTIL(one.ups && two.ups && all.ups);
    mqtt_publish(two.mqtt, topic_make("one", TOPIC_ASK, topic), "false", 5, 1, false, 0, &id);
    while (all.messages == 0) {
        mqtt_publish(two.mqtt, topic_make("two", TOPIC_ASK, topic), "mine", 4, 1, false, 0, &id);
        sd_event_run(event, 100000);
        sd_event_run(event, 100000);
        if (all.messages)
            assert_string_equal(all.text, "mine");
    }
    mqtt_publish(all.mqtt, topic_make("one", TOPIC_LEASE, topic), "for one", 7, 1, false, 0, &id);
    mqtt_publish(all.mqtt, topic_make("two", TOPIC_LEASE, topic), "for two", 7, 1, false, 0, &id);
    UNTIL(two.messages);
    assert_string_equal(two.text, "for two");
    mqtt_free(one.mqtt);
    mqtt_free(two.mqtt);
    mqtt_free(all.mqtt);
}

static void a_broker_of_another_authority_is_not_spoken_to(void **state)
{
    struct seen s = {0};
    struct mqtt_options o = secret(&s, 0);

    o.ca = other_ca;
    connect_as(&s, &o);
    UNTIL(s.problems);
    assert_int_equal(s.ups, 0);
    mqtt_free(s.mqtt);
}

static void who_has_no_certificate_is_refused(void **state)
{
    struct seen s = {0};
    struct mqtt_options o = secret(&s, 0);

    o.cert = o.key = NULL;
    connect_as(&s, &o);
    UNTIL(s.problems);
    assert_int_equal(s.ups, 0);
    mqtt_free(s.mqtt);
}

static void wrong_options_are_said_at_once(void **state)
{
    struct seen s = {0};
    struct mqtt_options o = plain(&s, "x");
    struct error err;

    o.host = "broker.example.org";
    assert_int_equal(mqtt_new(event, &o, &s.mqtt, &err), -EINVAL);
    assert_non_null(strstr(err.text, "TLS"));
    o.host = "127.example.org";
    assert_int_equal(mqtt_new(event, &o, &s.mqtt, &err), -EINVAL);
    o.ca = "/nonexistent/ca.pem";
    assert_int_equal(mqtt_new(event, &o, &s.mqtt, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/ca.pem"));
}

/* ---- a peer that accepts and says nothing ------------------------------------------------------
 */

static struct seen mute;
static int mute_fd;

static int begin_mute(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    struct mqtt_options o;

    mute_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(mute_fd, (struct sockaddr *)&a, len) < 0 || listen(mute_fd, 5) < 0 ||
        getsockname(mute_fd, (struct sockaddr *)&a, &len) < 0)
        return -1;
    o = plain(&mute, "mute");
    o.port = ntohs(a.sin_port);
    return mqtt_new(event, &o, &mute.mqtt, NULL);
}

static void a_peer_that_says_nothing_is_given_up(void **state)
{
    UNTIL(mute.problems);
    assert_non_null(strstr(mute.problem, "no answer"));
    mqtt_free(mute.mqtt);
    close(mute_fd);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int shell(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    return system(command);
}

static int make_certificates(void)
{
    const char *const names[] = {"one", "two"};
    int r = 0;

    snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
    snprintf(other_ca, sizeof(other_ca), "%s/other.pem", dir);
    for (int i = 0; i < 2; i++)
        r |= shell("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
                   "-subj /CN=authority%d -keyout %s/ca%d.key -out %s 2>/dev/null",
                   i, dir, i, i ? other_ca : ca);
    for (int i = 0; i < 3 && r == 0; i++) {
        const char *name = i < 2 ? names[i] : "localhost";

        r = shell(
            "cd %s && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=%s "
            "-keyout %s.key -out %s.csr 2>/dev/null && printf subjectAltName=DNS:localhost > "
            "%s.ext "
            "&& openssl x509 -req -in %s.csr -CA ca.pem -CAkey ca0.key -CAcreateserial -days 2 "
            "-extfile %s.ext -out %s.pem 2>/dev/null",
            dir, name, name, name, name, name, name, name);
        if (i < 2) {
            snprintf(cert[i], sizeof(cert[i]), "%s/%s.pem", dir, name);
            snprintf(key[i], sizeof(key[i]), "%s/%s.key", dir, name);
        }
    }
    return r;
}

static void write_conf(void)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/mosquitto.conf", dir);
    f = fopen(path, "w");
    fprintf(f,
            "per_listener_settings true\nuser root\nlistener %u 127.0.0.1\nallow_anonymous true\n"
            "listener %u 127.0.0.1\nallow_anonymous false\ncafile %s\ncertfile %s/localhost.pem\n"
            "keyfile %s/localhost.key\ntls_version tlsv1.3\nrequire_certificate true\n"
            "use_identity_as_username true\nacl_file %s/acl\n",
            plain_port, tls_port, ca, dir, dir, dir);
    fclose(f);
    snprintf(path, sizeof(path), "%s/acl", dir);
    f = fopen(path, "w");
    fputs("pattern write tide/1/%u/up/#\npattern read tide/1/%u/down/#\n", f);
    fclose(f);
    chmod(path, 0700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_and_are_acknowledged),
        cmocka_unit_test(no_more_is_in_flight_than_allowed),
        cmocka_unit_test(a_retained_message_and_a_last_will_are_seen_later),
        cmocka_unit_test(a_broker_that_comes_back_is_found_again),
        cmocka_unit_test(a_certificate_gives_the_rights_of_its_name_alone),
        cmocka_unit_test(a_broker_of_another_authority_is_not_spoken_to),
        cmocka_unit_test(who_has_no_certificate_is_refused),
        cmocka_unit_test(wrong_options_are_said_at_once),
        cmocka_unit_test(a_peer_that_says_nothing_is_given_up),
        /* Last, as its child's will stays at the broker. */
        cmocka_unit_test(records_that_nobody_heard_are_sent_again_soon),
    };
    int failed;

    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    if (shell("command -v mosquitto openssl >/dev/null") != 0) {
        fputs("SKIPPED: mosquitto or openssl is not installed (scripts/setup.sh check)\n", stderr);
        return 77;
    }
    if (!mkdtemp(dir) || make_certificates() != 0) {
        fputs("cannot make certificates\n", stderr);
        return 1;
    }
    plain_port = free_port();
    tls_port = free_port();
    write_conf();
    signal(SIGPIPE, SIG_IGN);
    start_broker();
    sd_event_new(&event);
    failed = cmocka_run_group_tests(tests, begin_mute, NULL);
    stop_broker();
    shell("rm -rf '%s'", dir);
    return failed;
}
