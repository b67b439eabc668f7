/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/api.h"

#include <string.h>

static void print_policies(const json_t *answer)
{
    const char *name = member_text(answer, "name");
    const json_t *policy;
    size_t i;

    json_array_foreach (json_object_get(answer, "policies"), i, policy) {
        const char *other = member_text(policy, "name");

        printf("%c %-14s %s\n", strcmp(name, other) == 0 ? '*' : ' ', other,
               member_text(policy, "brief"));
    }
}

static int policy_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    const struct command *cmd = &command_policy;
    _cleanup_json_ json_t *answer = NULL;
    _cleanup_json_ json_t *body = NULL;
    bool json = false;
    int c;
    int r;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        if (c == 'h')
            return cli_help(cmd);
        if (c == '?')
            return CLI_USAGE;
        json = true;
    }
    if (option_operands(cmd, argc, argv, 0, 1) != CLI_OK)
        return CLI_USAGE;
    if (optind < argc)
        body = json_pack("{s:s}", "name", argv[optind]);
    if (optind < argc && !body)
        return cli_usage(cmd, "the name of the policy is not UTF-8");
    r = api_request(cmd, body ? "PUT" : "GET", "/v1/policy", body, API_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    if (json)
        return api_print(answer);
    print_policies(answer);
    return CLI_OK;
}

const struct command command_policy = {
    .name = "policy",
    .usage = "[NAME] [--json]",
    .brief = "show how the cores are shared out, or choose another policy",
    .help = "The policy in force has a star. Choosing one takes effect at once, on all jobs;\n"
            "jobs held by 'tide set JOB --threads K' stay where they are.\n"
            "\n"
            "Examples:\n"
            "  tide policy\n"
            "  tide policy equal\n",
    .run = policy_run,
};
