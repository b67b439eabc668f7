/* SPDX-License-Identifier: Apache-2.0 */
/* `tide adopt`: makes a job of a container that runs without the agent, and releases it again. */
#include "cli/terms.h"

#define ADOPT_TIMEOUT_MS                                                                           \
    25000 /* the daemon asks the container's engine twice, which may be slow                       \
           */

enum { OPT_UNDO = 256 };

struct adopt_options {
    json_t *terms; /* NULL: none */
    bool undo, json;
};

/* Returns CLI_OK, CLI_USAGE, or -1 after printing the help. */
static int parse(int argc, char **argv, struct adopt_options *o)
{
    static const struct option own[] = {
        {"undo", no_argument, NULL, OPT_UNDO},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    struct option options[TERMS_OPTIONS_MAX];
    bool term;
    int c;

    terms_options(&command_adopt, own, options);
    while ((c = option_next(&command_adopt, argc, argv, options, false)) != -1) {
        if (terms_take(&command_adopt, c, &o->terms, &term) != CLI_OK)
            return CLI_USAGE;
        o->undo |= c == OPT_UNDO;
        o->json |= c == 'j';
    }
    if (o->undo && o->terms)
        return cli_usage(&command_adopt, "--undo takes no other option");
    option_operands(&command_adopt, argc, argv, 1, 1);
    return terms_check(&command_adopt, o->terms);
}

static int adopt(const struct adopt_options *o, const char *container)
{
    _cleanup_json_ json_t *body = json_pack("{s:s}", "container", container);
    _cleanup_json_ json_t *answer = NULL;
    int r;

    if (!body)
        return cli_usage(&command_adopt, "'%s' is no name of a container", container);
    if (o->terms)
        json_object_update(body, o->terms);
    r = api_request(&command_adopt, "POST", "/v1/adoptions", body, ADOPT_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    if (o->json)
        return api_print(answer);
    printf("%s %s: adopted until it ends\n", member_text(answer, "id"),
           member_text(answer, "name"));
    if (*member_text(answer, "note"))
        printf("  %s\n", member_text(answer, "note"));
    return CLI_OK;
}

static int undo(const struct adopt_options *o, const char *job)
{
    _cleanup_json_ json_t *answer = NULL;
    char path[API_PATH_MAX];
    int r = api_job_path(&command_adopt, job, "/adoption", path);

    if (r == CLI_OK)
        r = api_request(&command_adopt, "DELETE", path, NULL, API_TIMEOUT_MS, &answer);
    if (r != CLI_OK)
        return r;
    if (o->json)
        return api_print(answer);
    printf("%s %s: no job any more; its own limits are put back\n", member_text(answer, "id"),
           member_text(answer, "name"));
    return CLI_OK;
}

static int adopt_run(int argc, char **argv)
{
    struct adopt_options o = {0};
    int r = parse(argc, argv, &o);

    if (r == CLI_OK)
        r = o.undo ? undo(&o, argv[optind]) : adopt(&o, argv[optind]);
    json_decref(o.terms);
    return r;
}

const struct command command_adopt = {
    .name = "adopt",
    .usage = "([--max K | --weight W | ...]... CONTAINER | --undo JOB)",
    .brief = "make a job of a running container, or release it again",
    .help = "CONTAINER is a name, an id, or the beginning of an id, as docker takes them.\n"
            "From now on the policy divides the cores between it and the other jobs until it\n"
            "ends; a restart of tided changes nothing. Its program has no agent of ours: its\n"
            "threads stay as they are, unless the program looks at its cores again.\n"
            "\n"
            "Options:\n" TERMS_HERE
            "      --undo         no job any more: back to the limits that it began with.\n"
            "                     JOB is the job's name or id, or the container's id\n"
            "  -j, --json         print the daemon's answer\n"
            "\n"
            "Examples:\n"
            "  tide adopt web\n"
            "  tide adopt --max 4 --placement exclusive 3f2a1c\n"
            "  tide adopt --undo web\n",
    .takes = ATTRIBUTES_OF_START,
    .far = FAR_GOES,
    .run = adopt_run,
};
