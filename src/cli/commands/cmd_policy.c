/* SPDX-License-Identifier: Apache-2.0 */
/* `tide policy`: which ones there are, what they can be told, and choosing one. */
#include "cli/api.h"

#include <string.h>

static const char *mark(const json_t *answer, const char *name)
{
    return strcmp(member_text(answer, "name"), name) == 0 ? "*" : " ";
}

static void print_policies(const json_t *answer)
{
    const json_t *policy;
    size_t i;

    json_array_foreach (json_object_get(answer, "policies"), i, policy) {
        const char *name = member_text(policy, "name");

        printf("%s %-14s %s\n", mark(answer, name), name, member_text(policy, "brief"));
    }
    printf("\nIn force: %s\n", member_text(answer, "policy"));
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
    if (json_array_size(params) == 0)
        printf("\nIt has no parameters.\n");
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
    return cli_error(&command_policy, CLI_USAGE, "'tide policy list' explains them.",
                     "there is no policy '%s'", name);
}

/* Returns CLI_OK or CLI_USAGE, or -1: help was printed. */
static int parse(int argc, char **argv, bool *ret_json)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    int c;

    while ((c = option_next(&command_policy, argc, argv, options, false)) != -1) {
        if (c == '?')
            return CLI_USAGE;
        if (c == 'h') {
            cli_help(&command_policy);
            return -1;
        }
        *ret_json = true;
    }
    return option_operands(&command_policy, argc, argv, 0, 2);
}

static int choose(const char *spec, bool json)
{
    const struct command *cmd = &command_policy;
    _cleanup_json_ json_t *body = json_pack("{s:s}", "policy", spec);
    _cleanup_json_ json_t *answer = NULL;
    int r;

    if (!body)
        return cli_usage(cmd, "the name of the policy is not UTF-8");
    r = api_request(cmd, "PUT", "/v1/policy", body, API_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    if (json)
        return api_print(answer);
    printf("In force: %s\n", member_text(answer, "policy"));
    return CLI_OK;
}

static int policy_run(int argc, char **argv)
{
    const struct command *cmd = &command_policy;
    _cleanup_json_ json_t *answer = NULL;
    const char *verb, *operand;
    bool json = false;
    int r = parse(argc, argv, &json);

    if (r != CLI_OK)
        return r == -1 ? CLI_OK : r;
    verb = optind < argc ? argv[optind] : "list";
    operand = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (strcmp(verb, "set") == 0)
        return operand ? choose(operand, json) : cli_usage(cmd, "set which policy?");
    if (strcmp(verb, "show") != 0 && operand)
        return cli_usage(cmd, "'%s' is one argument too many", operand);
    if (strcmp(verb, "show") != 0 && strcmp(verb, "list") != 0)
        return choose(verb, json);
    r = api_request(cmd, "GET", "/v1/policy", NULL, API_TIMEOUT_MS, &answer);
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
    .help = "list         the policies; the one in force has a star\n"
            "show [NAME]  the parameters of a policy (of the one in force): value, meaning,\n"
            "             range and default\n"
            "set SPEC     share out by this one from now on, on all jobs, also after a\n"
            "             restart of the daemon. SPEC is NAME[/VALUE...], a value by its name\n"
            "             or as PARAMETER=VALUE; what is left out has its default\n"
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
    .run = policy_run,
};
