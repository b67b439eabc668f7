/* SPDX-License-Identifier: Apache-2.0 */
/* `tide policy`: lists the policies, shows their parameters, and chooses one. */
#include "cli/api.h"
#include "cli/launch/launch.h"

#include "policy/core/policy.h"

#include <string.h>

/* ---- the policies built into tide, in the form of the daemon's answer ---- */

static json_t *value_text(const struct policy_param *param, int64_t value)
{
    char buf[POLICY_TEXT_MAX];

    policy_param_text(param, value, buf, sizeof(buf));
    return json_string(buf);
}

static json_t *known_params(const struct policy *policy)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < policy->param_count; i++) {
        const struct policy_param *param = &policy->params[i];
        json_t *names = param->names ? json_array() : json_null();

        for (int64_t v = param->min; param->names && v <= param->max; v++)
            json_array_append_new(names, json_string(param->names[v - param->min]));
        json_array_append_new(
            list,
            json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o}", "name", param->name, "text", param->text,
                      "unit", param->unit ? param->unit : "", "value",
                      value_text(param, param->def), "default", value_text(param, param->def),
                      "min", value_text(param, param->min), "max",
                      param->open ? json_null() : value_text(param, param->max), "values", names));
    }
    return list;
}

/* Without a daemon no policy is in force. */
static json_t *known_policies(void)
{
    json_t *list = json_array();
    const struct policy *p;

    for (size_t i = 0; (p = policy_at(i)); i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "name", p->name, "brief", p->brief,
                                              "params", known_params(p)));
    return json_pack("{s:n,s:n,s:o}", "name", "policy", "policies", list);
}

/* ---- output ---- */

static const char *mark(const json_t *answer, const char *name)
{
    return strcmp(member_text(answer, "name"), name) == 0 ? "*" : " ";
}

/* How the program fares that decides under the policy `external`. */
static void print_external(const json_t *answer)
{
    if (*member_text(answer, "external"))
        printf("external: %s\n", member_text(answer, "external"));
}

static void print_policies(const json_t *answer)
{
    const json_t *policy;
    size_t i;

    json_array_foreach (json_object_get(answer, "policies"), i, policy) {
        const char *name = member_text(policy, "name");

        printf("%s %-14s %s\n", mark(answer, name), name, member_text(policy, "brief"));
    }
    if (*member_text(answer, "policy"))
        printf("\nIn force: %s\n", member_text(answer, "policy"));
    else
        printf("\nNo daemon runs, so no policy is in force.\n");
    print_external(answer);
}

/* "strict, always-attend, max-prop", or "0 … 24h", or "0 or more" */
static void print_range(const json_t *param)
{
    const json_t *values = json_object_get(param, "values");
    const json_t *value;
    size_t i;

    json_array_foreach (values, i, value)
        printf("%s%s", i > 0 ? ", " : "", json_string_value(value));
    if (json_array_size(values) > 0)
        return;
    if (*member_text(param, "max"))
        printf("%s %s %s", member_text(param, "min"), cli_glyph(CLI_DOTS),
               member_text(param, "max"));
    else
        printf("%s or more", member_text(param, "min"));
}

static void print_param(const json_t *param)
{
    printf("\n  %s = %s\n    %s\n    ", member_text(param, "name"), member_text(param, "value"),
           member_text(param, "text"));
    print_range(param);
    printf(" (default %s)\n", member_text(param, "default"));
}

static void print_policy(const json_t *answer, const json_t *policy)
{
    const json_t *params = json_object_get(policy, "params");
    const char *name = member_text(policy, "name");
    const json_t *param;
    size_t i;

    printf("%s: %s\n", name, member_text(policy, "brief"));
    if (*mark(answer, name) == '*')
        printf("In force as %s\n", member_text(answer, "policy"));
    if (*mark(answer, name) == '*')
        print_external(answer);
    if (json_array_size(params) == 0)
        printf("\nThis policy has no parameters.\n");
    json_array_foreach (params, i, param)
        print_param(param);
}

static int show(const json_t *answer, const char *name, bool json)
{
    const json_t *policy;
    size_t i;

    if (!name)
        name = member_text(answer, "name");
    json_array_foreach (json_object_get(answer, "policies"), i, policy) {
        if (strcmp(member_text(policy, "name"), name) != 0)
            continue;
        if (json)
            return api_print(policy);
        print_policy(answer, policy);
        return CLI_OK;
    }
    return cli_error_as(&command_policy, CLI_USAGE, "no-such-policy",
                        "'tide policy list' explains them.", "there is no policy '%s'", name);
}

/* Starts a daemon if none runs: it writes the choice down, which then outlives it. */
static int put(json_t *body, json_t **ret)
{
    _cleanup_answer_ struct api_answer machine = {0};
    struct error err = {0};

    if (api_try("GET", "/v1/machine", NULL, API_TIMEOUT_MS, &machine, &err) == -ENOENT &&
        launch_start_daemon(NULL, &err) < 0)
        return api_unreachable(&command_policy, -ENOENT, &err);
    return api_request(&command_policy, "PUT", "/v1/policy", body, API_TIMEOUT_MS, ret);
}

/* Returns the daemon's policies, or those built into tide when no daemon runs. */
static int get(bool needs_daemon, json_t **ret)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err = {0};
    int r = api_try("GET", "/v1/policy", NULL, API_TIMEOUT_MS, &answer, &err);

    if (r == -ENOENT && !needs_daemon) {
        *ret = known_policies();
        return CLI_OK;
    }
    if (r < 0)
        return api_unreachable(&command_policy, r, &err);
    if (answer.status >= 400)
        return api_refused(&command_policy, &answer);
    *ret = TAKE_PTR(answer.body);
    return CLI_OK;
}

static int choose(const char *spec, bool json)
{
    const struct command *cmd = &command_policy;
    _cleanup_json_ json_t *body = json_pack("{s:s}", "policy", spec);
    _cleanup_json_ json_t *answer = NULL;
    int r;

    if (!body)
        return cli_usage(cmd, "the name of the policy is not UTF-8");
    r = put(body, &answer);
    if (r != CLI_OK)
        return r;
    if (json)
        return api_print(answer);
    printf("In force: %s\n", member_text(answer, "policy"));
    if (*member_text(answer, "note"))
        cli_note(cmd, "%s", member_text(answer, "note"));
    return CLI_OK;
}

static int policy_run(int argc, char **argv)
{
    const struct command *cmd = &command_policy;
    _cleanup_json_ json_t *answer = NULL;
    const char *verb, *operand;
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    bool json = false;
    int r;

    while (option_next(cmd, argc, argv, options, false) != -1)
        json = true;
    option_operands(cmd, argc, argv, 0, 2);
    verb = optind < argc ? argv[optind] : "list";
    operand = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (strcmp(verb, "set") == 0)
        return operand ? choose(operand, json)
                       : cli_usage(cmd, "the name of a policy is missing: tide policy set SPEC");
    if (strcmp(verb, "show") != 0 && operand)
        return cli_usage(cmd, "'%s' is one argument too many", operand);
    if (strcmp(verb, "show") != 0 && strcmp(verb, "list") != 0)
        return choose(verb, json);
    r = get(strcmp(verb, "show") == 0 && !operand, &answer);
    if (r != CLI_OK)
        return r;
    if (strcmp(verb, "show") == 0)
        return show(answer, operand, json);
    if (json)
        return api_print(answer);
    print_policies(answer);
    return CLI_OK;
}

const struct command command_policy = {
    .name = "policy",
    .usage = "[list | show [NAME] | set SPEC] [--json]",
    .brief = "show how the cores are shared out, or choose another policy",
    .help = "list         the policies; the one in force has a star. Needs no daemon\n"
            "show [NAME]  the parameters of a policy (of the one in force): value, meaning,\n"
            "             range and default\n"
            "set SPEC     share out by this one from now on, on all jobs, also after a\n"
            "             restart of the daemon. SPEC is NAME[/VALUE...], a value by its name\n"
            "             or as PARAMETER=VALUE; what is left out has its default. A daemon\n"
            "             is started if none runs\n"
            "\n"
            "Alone it lists, and 'tide policy SPEC' sets. Jobs held by 'tide set JOB\n"
            "--threads K' stay where they are.\n"
            "\n"
            "Options:\n"
            "  -j, --json  print the daemon's answer\n"
            "\n"
            "Examples:\n"
            "  tide policy list\n"
            "  tide policy show priority\n"
            "  tide policy set fcfs/max-prop\n"
            "  tide policy set priority/ageing=60s\n",
    .far = FAR_GOES,
    .run = policy_run,
};
