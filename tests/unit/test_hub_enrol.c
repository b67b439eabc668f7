/* SPDX-License-Identifier: Apache-2.0 */
/* One-time tokens, and certificates for them. */
#include "base/cleanup.h"
#include "hub/trust/enrol.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static struct error err;
static unsigned char address[16];
static char *request;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int set_up(void **state)
{
    char *key = NULL;

    strcpy(dir, "/tmp/tide-enrol-XXXXXX");
    assert_non_null(mkdtemp(dir));
    address[15]++; /* each test is somebody else */
    assert_int_equal(identity_request("whatever", &key, &request, &err), 0);
    free(key);
    return 0;
}

static int tear_down(void **state)
{
    free(request);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void with_authority(int (*change)(struct authority *a))
{
    struct state s;

    if (state_open(dir, &s, &err) < 0)
        fail_msg("%s", err.text);
    if (change)
        assert_int_equal(change(s.authority), 0);
    state_close(&s);
}

static void make(const char *name, int64_t ago_s, char ret[TOKENS_TEXT_MAX])
{
    with_authority(NULL);
    if (tokens_make(dir, name, "unlp/lab3", 3600, time(NULL) - ago_s, ret, &err) < 0)
        fail_msg("%s", err.text);
}

static int take(const char *token)
{
    struct enrol_answer a = {0};
    int r = enrol_take(dir, token, request, address, &a, &err);

    enrol_answer_done(&a);
    return r;
}

static void a_token_is_good_for_one_certificate(void **state)
{
    char token[TOKENS_TEXT_MAX], path[96];
    struct enrol_answer a;
    char text[4096] = "";
    FILE *f;

    make("lab3", 0, token);
    snprintf(path, sizeof(path), "%s/tokens", dir);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    token[10] = '\0'; /* what is kept says nothing of the secret */
    assert_null(strstr(text, token + 5));
    make("lab4", 0, token);
    assert_int_equal(enrol_take(dir, token, request, address, &a, &err), 0);
    assert_string_equal(a.name, "lab4");
    assert_string_equal(a.area, "unlp/lab3");
    assert_true(identity_expires_s(a.certificate) > time(NULL) + 89 * 86400);
    assert_non_null(strstr(a.ca, "BEGIN CERTIFICATE"));
    assert_non_null(strstr(a.seal, "BEGIN PUBLIC KEY"));
    enrol_answer_done(&a);
    assert_int_equal(take(token), -EACCES);
    assert_non_null(strstr(err.text, "the token is unknown, was used, or has ended"));
}

static void an_ended_token_is_none(void **state)
{
    char token[TOKENS_TEXT_MAX];

    make("lab3", 3601, token);
    assert_int_equal(take(token), -EACCES);
}

static void a_wrong_request_does_not_use_the_token_up(void **state)
{
    char token[TOKENS_TEXT_MAX], *good = request;

    make("lab3", 0, token);
    request = strdup("no request");
    assert_int_equal(take(token), -EINVAL);
    free(request);
    request = good;
    assert_int_equal(take(token), 0);
}

static int revoke_lab3(struct authority *a)
{
    return authority_revoke(a, "lab3", time(NULL), &err);
}

static void a_revoked_name_gets_nothing(void **state)
{
    char token[TOKENS_TEXT_MAX], second[TOKENS_TEXT_MAX];

    make("lab3", 0, token);
    make("lab3", 0, second);
    assert_int_equal(take(token), 0);
    with_authority(revoke_lab3);
    assert_int_equal(take(second), -EKEYREVOKED);
}

static void who_guesses_has_to_wait(void **state)
{
    char token[TOKENS_TEXT_MAX], wrong[TOKENS_TEXT_MAX];

    make("lab3", 0, token);
    strcpy(wrong, token);
    wrong[8] = wrong[8] == '0' ? '1' : '0';
    for (int i = 0; i < ENROL_WRONG_MAX; i++)
        assert_int_equal(take(wrong), -EACCES);
    assert_int_equal(take(wrong), -EAGAIN);
    address[0]++; /* somebody else does not */
    assert_int_equal(take(wrong), -EACCES);
    address[0]--;
}

static void wrong_tokens_of_strangers_keep_nobody_from_enrolling(void **state)
{
    char token[TOKENS_TEXT_MAX], wrong[TOKENS_TEXT_MAX];
    int r = -EACCES;

    make("lab3", 0, token);
    strcpy(wrong, token);
    wrong[8] = wrong[8] == '0' ? '1' : '0';
    for (int i = 0; i < 2 * ENROL_WRONG_ALL && r == -EACCES; i++) {
        address[1] = (unsigned char)i;
        address[2] = (unsigned char)(i >> 8);
        r = take(wrong);
    }
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(take(token), 0);
    assert_int_equal(take(token), -EAGAIN); /* used up */
    address[1] = address[2] = 0;
}

static void what_is_no_token_is_none(void **state)
{
    static const char *const bad[] = {"", "tide-", "tide-abc-def", "0123456789"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(take(bad[i]), -EACCES);
}

static void wrong_names_areas_and_times_are_refused(void **state)
{
    char token[TOKENS_TEXT_MAX];

    with_authority(NULL);
    assert_int_equal(tokens_make(dir, "Lab 3", NULL, 60, 1, token, &err), -EINVAL);
    assert_int_equal(tokens_make(dir, "tide-hub", NULL, 60, 1, token, &err), -EINVAL);
    assert_int_equal(tokens_make(dir, "lab3", "unlp//x", 60, 1, token, &err), -EINVAL);
    assert_int_equal(tokens_make(dir, "lab3", "unlp/x y", 60, 1, token, &err), -EINVAL);
    assert_int_equal(tokens_make(dir, "lab3", NULL, 0, 1, token, &err), -EINVAL);
    assert_int_equal(tokens_make(dir, "lab3", NULL, TOKENS_FOR_MAX + 1, 1, token, &err), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_token_is_good_for_one_certificate),
        TEST(an_ended_token_is_none),
        TEST(a_wrong_request_does_not_use_the_token_up),
        TEST(a_revoked_name_gets_nothing),
        TEST(who_guesses_has_to_wait),
        TEST(what_is_no_token_is_none),
        TEST(wrong_names_areas_and_times_are_refused),
        TEST(wrong_tokens_of_strangers_keep_nobody_from_enrolling), /* the last: it uses up all
                                                                       tries */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
