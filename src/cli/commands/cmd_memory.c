/* SPDX-License-Identifier: Apache-2.0 */
/* `tide memory`: the memory limit of a container that runs. */
#include "base/size.h"
#include "cli/api.h"

#define LIMIT_TIMEOUT_MS 15000 /* the daemon asks the container's engine, which may be slow */

enum { OPT_UNDO = 256 };

struct memory_options {
    bool undo, json;
    uint64_t bytes; /* the new limit; 0: none is given */
};

static int parse(int argc, char **argv, struct memory_options *o)
{
    static const struct option options[] = {
        {"undo", no_argument, NULL, OPT_UNDO},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    int c;

    while ((c = option_next(&command_memory, argc, argv, options, false)) != -1) {
        o->undo |= c == OPT_UNDO;
        o->json |= c == 'j';
    }
    option_operands(&command_memory, argc, argv, 1, o->undo ? 1 : 2);
    if (argc - optind == 2 && (size_parse(argv[optind + 1], &o->bytes) < 0 || o->bytes == 0))
        return cli_usage(&command_memory, "'%s' is no size like 512M or 2G", argv[optind + 1]);
    return CLI_OK;
}

static void print(const json_t *job)
{
    double limit = member_number(job, "memory_limit"), high = member_number(job, "memory_high");
    double least = member_number(job, "memory_least"), used = member_number(job, "memory_used");
    char text[SIZE_TEXT_MAX];

    size_text((uint64_t)limit, text);
    printf("%s %s: limit %s", member_text(job, "id"), member_text(job, "name"),
           limit > 0 ? text : "none");
    size_text((uint64_t)(high > 0 ? high : used), text);
    if (high > 0)
        printf(", needed up to %s in the last ten minutes", text);
    else if (used > 0)
        printf(", uses %s", text);
    if (least > 0 && limit > 0 && least >= limit)
        printf("; it can go no lower");
    else if (least > 0)
        printf("; it can be %.0fM or more", least / (1 << 20));
    printf("\n");
}

static int memory_run(int argc, char **argv)
{
    _cleanup_json_ json_t *body = NULL, *answer = NULL;
    struct memory_options o = {0};
    bool changes;
    char path[API_PATH_MAX];
    int r = parse(argc, argv, &o);

    if (r != CLI_OK)
        return r;
    changes = o.undo || o.bytes;
    if (changes)
        body =
            json_pack("{s:o}", "bytes", o.undo ? json_null() : json_integer((json_int_t)o.bytes));
    r = api_job_path(&command_memory, argv[optind], changes ? "/memory-limit" : "", path);
    if (r == CLI_OK)
        r = api_request(&command_memory, changes ? "PUT" : "GET", path, body, LIMIT_TIMEOUT_MS,
                        &answer);
    if (r != CLI_OK)
        return r;
    if (o.json)
        return api_print(answer);
    print(answer);
    return CLI_OK;
}

const struct command command_memory = {
    .name = "memory",
    .usage = "(JOB [SIZE] | --undo JOB)",
    .brief = "show or change the memory limit of a container that runs",
    .help = "SIZE is like 512M or 2G. A limit is lowered to what the container needed in the\n"
            "last ten minutes and a reserve, and no further. What it gives up counts for jobs\n"
            "that wait for memory. The limit stays when the job ends, as one that 'docker\n"
            "update' has set. The kubelet sets that of pods.\n"
            "\n"
            "Options:\n"
            "      --undo         back to the limit that the container began with\n"
            "  -j, --json         print the job as the daemon tells it\n"
            "\n"
            "Examples:\n"
            "  tide memory web\n"
            "  tide memory web 1536M\n"
            "  tide memory --undo web\n",
    .far = FAR_GOES,
    .run = memory_run,
};
