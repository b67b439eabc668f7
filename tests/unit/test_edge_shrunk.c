/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of jobs shrunk for a cap, from tided to the hub: privacy, sums of children, repeats. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "edge/shrunk.h"

static const char answer[] =
    "{\"jobs\":[{\"id\":\"1\",\"name\":\"bert\",\"user\":\"ada\",\"cores\":3},"
    "{\"id\":\"2\",\"name\":\"cnn\",\"user\":\"eve\",\"cores\":2},"
    "{\"id\":\"3\",\"name\":\"odd\",\"user\":\"eve\",\"cores\":-2}]}";
static struct payload_shrunk told;
static struct shrunk_sum sum;

static void users_are_told_only_where_they_may_be(void **state)
{
    assert_int_equal(shrunk_read(answer, "pc1", false, &told), 0);
    assert_int_equal(told.nodes, 1);
    assert_string_equal(told.node[0].name, "pc1");
    assert_int_equal(told.node[0].jobs, 2);
    assert_int_equal(told.node[0].cores, 5);
    assert_int_equal(told.jobs, 0);
    assert_int_equal(shrunk_read(answer, "pc1", true, &told), 0);
    assert_int_equal(told.jobs, 2);
    assert_string_equal(told.job[1].user, "eve");
    assert_int_equal(shrunk_read("{\"jobs\":[]}", "pc1", true, &told), 0);
    assert_int_equal(told.nodes, 0);
    assert_int_equal(shrunk_read("{\"jobs\":5}", "pc1", true, &told), -EBADMSG);
    assert_int_equal(shrunk_read("no", "pc1", true, &told), -EBADMSG);
}

static void a_child_counts_once_by_its_own_name(void **state)
{
    memset(&sum, 0, sizeof(sum));
    shrunk_read(answer, "somebody-else", true, &told);
    shrunk_take(&sum, "pc1", &told, 1);
    shrunk_take(&sum, "pc2", &told, 1);
    shrunk_take(&sum, "pc1", &told, 2);
    assert_int_equal(sum.all.nodes, 2);
    assert_int_equal(sum.all.jobs, 4);
    for (uint32_t i = 0; i < sum.all.jobs; i++)
        assert_int_equal(strncmp(sum.all.job[i].node, "pc", 2), 0);
    told.nodes = told.jobs = 0;
    shrunk_take(&sum, "pc2", &told, 3);
    assert_int_equal(sum.all.nodes, 1);
    assert_int_equal(sum.all.jobs, 2);
    assert_string_equal(sum.all.node[0].name, "pc1");
    shrunk_age(&sum, 2 + PAYLOAD_SHRUNK_OLD_S * NS_PER_S - 1);
    assert_int_equal(sum.all.nodes, 1);
    shrunk_age(&sum, 2 + PAYLOAD_SHRUNK_OLD_S * NS_PER_S);
    assert_int_equal(sum.all.nodes + sum.all.jobs, 0);
}

static void a_full_sum_can_be_written_and_read(void **state)
{
    static struct payload_shrunk again;
    struct error err;
    char *text;

    memset(&sum, 0, sizeof(sum));
    for (int i = 0; i < PAYLOAD_NODES_MAX + 5; i++) {
        char name[EDGE_NAME_MAX];

        snprintf(name, sizeof(name), "%063d", i);
        shrunk_read(answer, name, true, &told);
        memset(told.job[0].name, '"', PAYLOAD_WORD_MAX - 1); /* twice as long in JSON */
        memset(told.job[0].user, '"', PAYLOAD_WORD_MAX - 1);
        told.jobs = 1;
        shrunk_take(&sum, name, &told, 1);
    }
    assert_int_equal(sum.all.nodes, PAYLOAD_NODES_MAX);
    assert_int_equal(sum.all.jobs, PAYLOAD_SHRUNK_JOBS);
    text = payload_shrunk_text(&sum.all);
    assert_non_null(text);
    assert_int_equal(payload_shrunk_read(text, strlen(text), &again, &err), 0);
    assert_int_equal(again.nodes, PAYLOAD_NODES_MAX);
    free(text);
}

static void a_sum_that_no_message_holds_stays_at_the_most(void **state)
{
    static struct payload_shrunk again;
    struct error err;
    char *text;

    memset(&sum, 0, sizeof(sum));
    memset(&told, 0, sizeof(told));
    for (told.nodes = 0; told.nodes < 3; told.nodes++)
        told.node[told.nodes] = (struct payload_shrunk_node){"pc", INT32_MAX, INT32_MAX};
    shrunk_take(&sum, "lab", &told, 1);
    assert_int_equal(sum.all.node[0].jobs, INT32_MAX);
    text = payload_shrunk_text(&sum.all);
    assert_int_equal(payload_shrunk_read(text, strlen(text), &again, &err), 0);
    assert_int_equal(again.node[0].cores, INT32_MAX);
    free(text);
}

static int sent, fails;

static int count_sent(void *arg, enum topic_leaf leaf, char *text)
{
    assert_int_equal(leaf, TOPIC_SHRUNK);
    free(text);
    sent += !fails;
    return fails ? -ENOTCONN : 0;
}

static void the_same_is_told_again_only_while_it_holds(void **state)
{
    static struct payload_shrunk none;
    struct shrunk_told t = {0};
    uint64_t now = 1000 * NS_PER_S, again = PAYLOAD_SHRUNK_AGAIN_S * NS_PER_S;

    shrunk_tell(&t, &none, now, count_sent, NULL);
    assert_int_equal(sent, 0); /* nobody is, and nobody ever was */
    shrunk_read(answer, "pc1", false, &told);
    fails = 1;
    shrunk_tell(&t, &told, now, count_sent, NULL);
    fails = 0;
    shrunk_tell(&t, &told, now, count_sent, NULL); /* the first one was lost */
    assert_int_equal(sent, 1);
    shrunk_tell(&t, &told, now + again - 1, count_sent, NULL);
    assert_int_equal(sent, 1);
    shrunk_tell(&t, &told, now + again, count_sent, NULL);
    assert_int_equal(sent, 2);
    shrunk_tell(&t, &none, now + again + 1, count_sent, NULL);
    assert_int_equal(sent, 3);
    shrunk_tell(&t, &none, now + 9 * again, count_sent, NULL);
    assert_int_equal(sent, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_are_told_only_where_they_may_be),
        cmocka_unit_test(a_child_counts_once_by_its_own_name),
        cmocka_unit_test(a_full_sum_can_be_written_and_read),
        cmocka_unit_test(a_sum_that_no_message_holds_stays_at_the_most),
        cmocka_unit_test(the_same_is_told_again_only_while_it_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
