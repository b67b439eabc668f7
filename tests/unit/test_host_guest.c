/* SPDX-License-Identifier: Apache-2.0 */
/* src/host/net/guest.c: names, origins, cookies, and sockets of the kernel's tables. */
#include "base/cleanup.h"
#include "host/net/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

static void only_loopback_is_a_host(void **state)
{
    static const char *const good[] = {"127.0.0.1", "127.0.0.1:80", "LocalHost:8350", "[::1]:1"};
    static const char *const bad[] = {
        "",           "127.0.0.1.example", "127.0.0.1:", "127.0.0.1:8a",
        "localhost.", "localhostess",      "[::1",       "::1",
        "example",    "127.0.0.1:123456",  " localhost", "127.0.0.2"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(guest_host(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(guest_host(bad[i]));
    assert_false(guest_host(NULL));
}

static void an_origin_is_the_host_itself(void **state)
{
    assert_true(guest_origin("http://127.0.0.1:80", "127.0.0.1:80"));
    assert_true(guest_origin("http://LOCALHOST:80", "localhost:80"));
    assert_false(guest_origin("http://localhost:80", "127.0.0.1:80"));
    assert_false(guest_origin("http://127.0.0.1:81", "127.0.0.1:80"));
    assert_false(guest_origin("https://127.0.0.1:80", "127.0.0.1:80"));
    assert_false(guest_origin("null", "127.0.0.1:80"));
    assert_false(guest_origin(NULL, "127.0.0.1:80"));
    assert_false(guest_origin("http://127.0.0.1:80", NULL));
}

static void a_cookie_is_found_by_its_whole_name(void **state)
{
    char value[8] = "before";

    assert_true(guest_cookie("a=1; tide-80=xyz; b=2", "tide-80", value, sizeof(value)));
    assert_string_equal(value, "xyz");
    assert_true(guest_cookie("tide-80=", "tide-80", value, sizeof(value)));
    assert_string_equal(value, "");
    assert_false(guest_cookie("tide-8=x; xtide-80=y; tide-801=z", "tide-80", value, sizeof(value)));
    assert_false(guest_cookie("tide-80=12345678", "tide-80", value, sizeof(value))); /* no room */
    assert_true(guest_cookie("tide-80=1234567", "tide-80", value, sizeof(value)));
    assert_false(guest_cookie("", "tide-80", value, sizeof(value)));
    assert_false(guest_cookie(NULL, "tide-80", value, sizeof(value)));
    assert_false(guest_cookie(";;; tide-80", "tide-80", value, sizeof(value)));
}

static void secrets_differ_and_are_known_whole(void **state)
{
    char one[GUEST_SECRET_LEN + 1], two[GUEST_SECRET_LEN + 1], part[GUEST_SECRET_LEN + 1];

    assert_int_equal(guest_secret(one), 0);
    assert_int_equal(guest_secret(two), 0);
    assert_int_equal(strlen(one), GUEST_SECRET_LEN);
    assert_string_not_equal(one, two);
    assert_true(guest_knows(one, one));
    assert_false(guest_knows(two, one));
    assert_false(guest_knows(NULL, one));
    assert_false(guest_knows("", one));
    memcpy(part, one, sizeof(part));
    part[GUEST_SECRET_LEN - 1] ^= 1;
    assert_false(guest_knows(part, one));
    part[GUEST_SECRET_LEN - 1] = '\0';
    assert_false(guest_knows(part, one));
}

/* ---- the kernel's tables ---- */

struct pair {
    int server, client;
    unsigned server_port, client_port;
};

static unsigned port_of(int fd)
{
    struct sockaddr_in here;
    socklen_t len = sizeof(here);

    assert_int_equal(getsockname(fd, (struct sockaddr *)&here, &len), 0);
    return ntohs(here.sin_port);
}

static struct pair connected(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    _cleanup_fd_ int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair p;

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    p.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(p.client, (struct sockaddr *)&address, sizeof(address)), 0);
    p.server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(p.server >= 0);
    p.server_port = port_of(p.server);
    p.client_port = port_of(p.client);
    return p;
}

static void done(struct pair *p)
{
    close_fd(p->server);
    close_fd(p->client);
}

static void the_kernel_knows_whose_a_real_socket_is(void **state)
{
    _cleanup_fd_ int proc = open("/proc/self", O_PATH | O_CLOEXEC);
    _cleanup_(done) struct pair p = connected();
    uid_t uid = (uid_t)-1;

    assert_int_equal(guest_uid(proc, p.server, &uid), 0);
    assert_int_equal(uid, geteuid());
    p.client = close_fd(p.client); /* nobody's any more, whatever its row says */
    assert_int_equal(guest_uid(proc, p.server, &uid), -ENOENT);
}

/* Writes a table with @row in net/@name of a directory of its own; returns that. */
static int recorded(char *folder, const char *name, const char *row)
{
    char path[64];
    FILE *file;

    strcpy(folder, "/tmp/tide-guest-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/net", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/net/%s", folder, i ? "tcp6" : "tcp");
        file = fopen(path, "we");
        assert_non_null(file);
        fputs("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
              "timeout inode\n",
              file);
        if (strcmp(name, i ? "tcp6" : "tcp") == 0)
            fputs(row, file);
        fclose(file);
    }
    return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void removed(const char *folder)
{
    char path[64];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/net/%s", folder, i ? "tcp6" : "tcp");
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/net", folder);
    rmdir(path);
    rmdir(folder);
}

static int ask(const struct pair *p, const char *name, const char *local, const char *remote,
               unsigned state, unsigned inode, uid_t *ret)
{
    char row[256], folder[32];
    int r;

    snprintf(row, sizeof(row),
             "   0: %s:%04X %s:%04X %02X 00000000:00000000 00:00000000 00000000 61001        0 %u "
             "1 0000000000000000 20 4 30 10 -1\n",
             local, p->client_port, remote, p->server_port, state, inode);
    {
        _cleanup_fd_ int proc = recorded(folder, name, row);

        r = guest_uid(proc, p->server, ret);
    }
    removed(folder);
    return r;
}

static void a_row_counts_if_it_is_established_and_somebodys(void **state)
{
    static const char here[] = "0100007F", mapped[] = "0000000000000000FFFF00000100007F",
                      elsewhere[] = "0100000A";
    _cleanup_(done) struct pair p = connected();
    uid_t uid = 0;

    assert_int_equal(ask(&p, "tcp", here, here, 1, 5, &uid), 0);
    assert_int_equal(uid, 61001);
    uid = 0;
    assert_int_equal(ask(&p, "tcp6", mapped, mapped, 1, 5, &uid), 0);
    assert_int_equal(uid, 61001);
    assert_int_equal(ask(&p, "tcp", here, here, 6, 5, &uid), -ENOENT); /* TIME_WAIT */
    assert_int_equal(ask(&p, "tcp", here, here, 1, 0, &uid), -ENOENT); /* an orphan */
    assert_int_equal(ask(&p, "tcp", elsewhere, here, 1, 5, &uid), -ENOENT);
    assert_int_equal(ask(&p, "tcp", here, elsewhere, 1, 5, &uid), -ENOENT);
    p.client_port++;
    p.server_port--;
    assert_int_equal(ask(&p, "tcp", here, here, 1, 5, &uid), -ENOENT); /* other ports */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_loopback_is_a_host),
        cmocka_unit_test(an_origin_is_the_host_itself),
        cmocka_unit_test(a_cookie_is_found_by_its_whole_name),
        cmocka_unit_test(secrets_differ_and_are_known_whole),
        cmocka_unit_test(the_kernel_knows_whose_a_real_socket_is),
        cmocka_unit_test(a_row_counts_if_it_is_established_and_somebodys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
