/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of the power policy: what is in force, whether a text is good, a new one. */
#include "hub/serve/call.h"

#include "base/wallclock.h"
#include "hub/compile/explain.h"
#include "hub/tree/doubts.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_WORD "policy-not-applied"

void route_policy(struct call *c)
{
    const struct in_force *p = tree_policy(c->hub->tree);

    call_answer(c, HTTP_OK,
                p ? json_pack("{s:I,s:I,s:s,s:I,s:I}", "number", (json_int_t)p->number, "edition",
                              (json_int_t)p->edition, "text", p->text, "made_ms",
                              (json_int_t)p->made_ms, "valid_until_ms",
                              (json_int_t)p->valid_until_ms)
                  : json_pack("{s:i,s:i,s:s,s:n,s:n}", "number", 0, "edition", 0, "text", "",
                              "made_ms", "valid_until_ms"));
}

/* "12:3: what is wrong" */
static json_t *view_fault(const struct error *err)
{
    unsigned line = 0, column = 0;
    int end = 0;

    if (sscanf(err->text, "%u:%u: %n", &line, &column, &end) != 2)
        end = 0;
    return json_pack("[{s:o,s:o,s:s}]", "line", line ? json_integer(line) : json_null(), "column",
                     column ? json_integer(column) : json_null(), "text", err->text + end);
}

/* The lines of explain_diff(). */
static json_t *view_diff(const struct power_policy *before, const struct power_policy *after)
{
    json_t *list = json_array();
    char *text = NULL, *line, *rest;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return list;
    explain_diff(before, after, f);
    fclose(f);
    for (line = text; line && *line; line = rest) {
        rest = line + strcspn(line, "\n");
        if (*rest)
            *rest++ = '\0';
        json_array_append_new(list, json_string(line));
    }
    free(text);
    return list;
}

static void add_warning(void *arg, uint32_t line, uint32_t column, const char *text)
{
    json_array_append_new(arg, json_pack("{s:I,s:I,s:s}", "line", (json_int_t)line, "column",
                                         (json_int_t)column, "text", text));
}

static json_t *view_warnings(const struct call *c, const struct power_policy *rules)
{
    json_t *list = json_array();

    if (doubts_of(rules, tree_units(c->hub->tree), add_warning, list) < 0) {
        json_decref(list);
        return NULL;
    }
    return list;
}

void route_check_policy(struct call *c)
{
    const struct in_force *p = tree_policy(c->hub->tree);
    struct power_policy *rules = calloc(2, sizeof(*rules)); /* the second says nothing */
    const char *text = NULL;
    struct error err = {0};
    int r;

    if (!rules || !call_take_text(c, "text", true, &text)) {
        if (!rules)
            call_fail(c, HTTP_FAILED, "", "out of memory");
        free(rules);
        return;
    }
    r = policy_compile(text, strlen(text), NULL, (int64_t)(wallclock_ms() / 1000), rules, &err);
    if (r < 0) {
        call_answer(c, HTTP_OK,
                    json_pack("{s:o,s:[],s:[]}", "faults", view_fault(&err), "warnings", "diff"));
    } else {
        call_answer(c, HTTP_OK,
                    json_pack("{s:[],s:o,s:o}", "faults", "warnings", view_warnings(c, rules),
                              "diff", view_diff(p ? &p->rules : &rules[1], rules)));
        policy_done(rules);
    }
    free(rules);
}

/*
 * The number that the editor saw may be that of the text's last change or any since: the number
 * grows each day without it.
 */
static uint64_t edition_of(const struct in_force *p, int64_t number)
{
    uint64_t seen = (uint64_t)number;

    return p && seen >= p->edition && seen <= p->number ? p->edition : seen;
}

void route_put_policy(struct call *c)
{
    const struct in_force *p = tree_policy(c->hub->tree);
    const char *text = NULL;
    struct error err = {0};
    char target[48];
    int64_t number = 0;

    if (!call_take_text(c, "text", true, &text) ||
        !call_take_whole(c, "number", true, 0, INT64_MAX, &number))
        return;
    if ((number == 0) != !p) {
        error_set(&err, -ESTALE, "the policy has another number by now: read it again");
    } else {
        tree_policy_put(c->hub->tree, text, strlen(text), p ? edition_of(p, number) : 0, &err);
        p = tree_policy(c->hub->tree);
    }
    snprintf(target, sizeof(target), "number %" PRIu64,
             err.code || !p ? (uint64_t)number : p->number);
    call_audit(c, "policy.put", target, &err);
    if (err.code) {
        call_fail_of(c, &err);
        return;
    }
    route_policy(c);
}
