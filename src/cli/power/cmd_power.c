/* SPDX-License-Identifier: Apache-2.0 */
/* `tide power`: the machine's power and its cap; sets and lifts a cap. */
#include "cli/api.h"
#include "cli/power/calibrate.h"
#include "cli/power/power_view.h"

#include "base/clock.h"
#include "base/moment.h"
#include "power/measure/amount.h"
#include "power/measure/range.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPTION_SOURCES 256
#define PAUSE_US       100000 /* between two looks whether a cap is kept */
#define TRIES          30

static double watts(const json_t *object, const char *key)
{
    return member_number(object, key) / 1e6;
}

static void print_machine(const json_t *answer)
{
    const json_t *power = json_object_get(answer, "power");

    if (json_is_integer(json_object_get(power, "uw")))
        printf("power  %.1f W (%.1f to %.1f, %s)\n", watts(power, "uw"), watts(power, "low_uw"),
               watts(power, "high_uw"), member_text(power, "basis"));
    else
        printf("power  unknown\n");
}

static void print_until(const json_t *cap)
{
    time_t until = (time_t)member_number(cap, "until");
    struct tm tm;
    char text[32];

    if (until > 0 && localtime_r(&until, &tm) &&
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm) > 0)
        printf(", until %s", text);
}

/* "cap  120.0 W (person, until …): kept, 5 cores" and the others that stand. */
static void print_cap(const json_t *cap)
{
    const char *state = member_text(cap, "state");
    const json_t *other;
    size_t i;

    if (strcmp(state, "none") == 0) {
        printf("cap    none\n");
        return;
    }
    printf("cap    %.1f W (%s", watts(cap, "uw"), member_text(cap, "source"));
    print_until(cap);
    printf("): %s", strcmp(state, "not-yet") == 0 ? "not yet kept" : state);
    if (json_is_integer(json_object_get(cap, "cores")))
        printf(", %ld cores for jobs", member_long(cap, "cores"));
    printf("\n");
    if (*member_text(cap, "why"))
        printf("       %s\n", member_text(cap, "why"));
    json_array_foreach (json_object_get(cap, "caps"), i, other) {
        if (strcmp(member_text(other, "source"), member_text(cap, "source")) == 0)
            continue;
        printf("       also %.1f W (%s", watts(other, "uw"), member_text(other, "source"));
        print_until(other);
        printf(")\n");
    }
}

static void print_model(const json_t *cap)
{
    const json_t *model = json_object_get(cap, "model");

    if (json_is_object(model))
        printf("model  %s (%s, 90 %% of readings within %ld %%)\n", member_text(model, "source"),
               member_text(model, "basis"), (member_long(model, "error_permille") + 9) / 10);
}

static int show(const struct command *cmd, bool json)
{
    _cleanup_json_ json_t *machine = NULL, *cap = NULL;
    int r = api_request(cmd, "GET", "/v1/power", NULL, API_TIMEOUT_MS, &machine);

    if (r == CLI_OK)
        r = api_request(cmd, "GET", "/v1/power/cap", NULL, API_TIMEOUT_MS, &cap);
    if (r != CLI_OK)
        return r;
    if (json) {
        json_object_set(machine, "cap", cap);
        return api_print(machine);
    }
    print_machine(machine);
    power_print_energy(machine);
    print_cap(cap);
    print_model(cap);
    return CLI_OK;
}

/* Waits a moment for jobs to shrink. Takes over *cap. */
static int settled(const struct command *cmd, json_t **cap, bool json)
{
    const char *state = member_text(*cap, "state");

    for (int i = 0; i < TRIES && strcmp(state, "not-yet") == 0; i++) {
        int r;

        usleep(PAUSE_US);
        json_decref(*cap);
        *cap = NULL;
        r = api_request(cmd, "GET", "/v1/power/cap", NULL, API_TIMEOUT_MS, cap);
        if (r != CLI_OK)
            return r;
        state = member_text(*cap, "state");
    }
    if (json)
        api_print(*cap);
    else
        print_cap(*cap);
    return strcmp(state, "over") == 0 || strcmp(state, "not-yet") == 0 ? CLI_PARTIAL : CLI_OK;
}

static int set_cap(const struct command *cmd, const char *text, const char *until, bool json)
{
    _cleanup_json_ json_t *body = NULL, *cap = NULL;
    enum amount_kind kind;
    uint64_t uw, until_ms = 0;
    int r;

    if (amount_parse(text, &uw, &kind) < 0 || kind == AMOUNT_ENERGY || uw == 0 || uw > POWER_UW_MAX)
        return cli_usage_as(cmd, "bad-cap", "'%s' is no power cap: use watts like 120W or 1.2kW",
                            text);
    if (until && moment_parse(until, clock_real_ms(), &until_ms) < 0)
        return cli_usage_as(cmd, "bad-time", "--until: '%s' is no future time (90s, 2h, 18:30)",
                            until);
    body = json_pack("{s:I}", "uw", (json_int_t)uw);
    if (until)
        json_object_set_new(body, "until", json_integer((json_int_t)((until_ms + 999) / 1000)));
    r = api_request(cmd, "PUT", "/v1/power/cap", body, API_TIMEOUT_MS, &cap);
    return r == CLI_OK ? settled(cmd, &cap, json) : r;
}

static int clear_cap(const struct command *cmd, bool json)
{
    _cleanup_json_ json_t *cap = NULL;
    int r = api_request(cmd, "DELETE", "/v1/power/cap", NULL, API_TIMEOUT_MS, &cap);

    if (r != CLI_OK)
        return r;
    if (json)
        return api_print(cap);
    print_cap(cap);
    return CLI_OK;
}

static int power_run(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"until", required_argument, NULL, 'u'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"force", no_argument, NULL, 'f'},
                                            {"sources", no_argument, NULL, OPTION_SOURCES},
                                            {0}};
    const struct command *cmd = &command_power;
    const char *until = NULL, *verb, *operand;
    bool json = false, force = false, sources = false;
    long seconds = 0;
    int o;

    while ((o = option_next(cmd, argc, argv, options, false)) != -1)
        if (o == 'j')
            json = true;
        else if (o == 'f')
            force = true;
        else if (o == 'u')
            until = optarg;
        else if (o == OPTION_SOURCES)
            sources = true;
        else if (option_number(cmd, optarg, "--seconds", CALIBRATE_SECONDS_MIN,
                               CALIBRATE_SECONDS_MAX, &seconds) != CLI_OK)
            return CLI_USAGE;
    option_operands(cmd, argc, argv, 0, 2);
    verb = optind < argc ? argv[optind] : "";
    operand = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (until && strcmp(verb, "set-cap") != 0)
        return cli_usage(cmd, "--until goes with set-cap alone");
    if (sources && *verb)
        return cli_usage(cmd, "--sources goes without %s", verb);
    if ((seconds || force) && strcmp(verb, "calibrate") != 0)
        return cli_usage(cmd, "--seconds and --force go with calibrate alone");
    if (strcmp(verb, "set-cap") == 0)
        return operand ? set_cap(cmd, operand, until, json)
                       : cli_usage(cmd, "the watts are missing: tide power set-cap 120W");
    if (operand)
        return cli_usage(cmd, "'%s' is one argument too many", operand);
    if (strcmp(verb, "clear-cap") == 0)
        return clear_cap(cmd, json);
    if (strcmp(verb, "calibrate") == 0 && api_host_name())
        return cli_error_as(cmd, CLI_USAGE, "not-with-host", "Call it there.",
                            "calibrating keeps the cores of the machine busy where it is called");
    if (strcmp(verb, "calibrate") == 0)
        return power_calibrate(cmd, seconds ? (unsigned)seconds : CALIBRATE_SECONDS, force, json);
    if (*verb)
        return cli_usage(cmd, "'%s' is none of set-cap, clear-cap, calibrate", verb);
    return sources ? power_sources(cmd, json) : show(cmd, json);
}

const struct command command_power = {
    .name = "power",
    .usage = "[set-cap WATTS [--until TIME] | clear-cap | calibrate | --sources]",
    .brief = "show how many watts the machine draws, or cap them",
    .help = "Alone: the machine's power, what it and its parts have used since tided counts,\n"
            "its cap, and the model behind it.\n"
            "\n"
            "set-cap WATTS  jobs get no more cores than the machine can keep busy below\n"
            "               this, until TIME or clear-cap, also after a restart of the\n"
            "               daemon or the machine. Refused where nothing tells the watts.\n"
            "               The smallest of the caps that stand counts: of the\n"
            "               configuration, set by hand, of the power lease\n"
            "clear-cap      lift the cap that was set by hand\n"
            "calibrate      learn the power over load from the source: keeps none, a\n"
            "               quarter, half, three quarters and all of the cores busy\n"
            "\n"
            "Options:\n"
            "  -u, --until TIME   the cap ends then: 90s, 2h, 18:30\n"
            "  -s, --seconds N    how long calibrating takes (60)\n"
            "  -f, --force        calibrate even if over a fifth of the machine is in use\n"
            "      --sources      the sensors that were found: what each sees, whether it is\n"
            "                     used, and why one tells nothing\n"
            "  -j, --json         print the daemon's answer\n"
            "\n"
            "set-cap ends with 6 if the machine still draws more than the new cap after a moment.\n"
            "\n"
            "Examples:\n"
            "  tide power set-cap 120W --until 18:00\n"
            "  tide power clear-cap\n"
            "  tide power --sources\n",
    .far = FAR_GOES,
    .run = power_run,
};
