/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/wallclock.h"
#include "base/wholefile.h"
#include "hub/command.h"
#include "hub/compile/amount.h"
#include "hub/compile/explain.h"
#include "hub/compile/policy.h"
#include "hub/compile/when.h"
#include "hub/compile/yaml.h"
#include "hub/people/terminal.h"
#include "hub/tree/doubts.h"
#include "hub/tree/in_force.h"
#include "hub/tree/tree.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "policy-not-applied"

#define POLICY_FILE "/etc/tide/policy.yaml"

static const char usage[] =
    "Usage: tide-hub policy check [FILE]\n"
    "       tide-hub policy diff [OLD] NEW\n"
    "       tide-hub policy explain AREA [--file FILE] [--at TIME] [CONDITION…]\n"
    "       tide-hub policy apply [FILE] [--state DIR]\n"
    "       tide-hub policy show [--state DIR]\n"
    "\n"
    "Reads the organization's power policy, see tide-policy-file(5); FILE and OLD are\n"
    "/etc/tide/policy.yaml unless named. Only 'apply' changes anything.\n"
    "\n"
    "  check     says what is wrong, with line and column, also contradictions of the coming\n"
    "            year; warns of rules about areas where 'areas' names no unit\n"
    "  diff      what NEW says otherwise: '+' new, '-' gone, '~' another amount; exit status 1\n"
    "  explain   what is in force for an area at a time, and which line says so\n"
    "  apply     puts FILE in force: the running hub, or the next one, sends it to all units\n"
    "  show      prints the text that is in force at the hub\n"
    "\n"
    "  --state DIR      the hub's directory; default /var/lib/tide-hub\n"
    "  --file FILE      instead of /etc/tide/policy.yaml\n"
    "  --at TIME        '18:30' (the next one), '2026-11-23 18:30' on the policy's clock\n"
    "                   ('zone:'), with a Z behind it in UTC; default: now\n"
    "  --carbon G       g/kWh at that time, for rules on it; default: unknown\n"
    "  --absent TIME    how long nobody has been there, as 20min; default: somebody is\n"
    "  --unsynchronised what a unit does whose clock is not synchronised\n"
    "\n"
    "Exit status: 0, 1 (diff: they differ), 2 (wrong usage), 3 (not readable, or wrong).\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'},  {"file", required_argument, NULL, 'f'},
    {"at", required_argument, NULL, 'a'},     {"carbon", required_argument, NULL, 'c'},
    {"absent", required_argument, NULL, 'b'}, {"unsynchronised", no_argument, NULL, 'u'},
    {"help", no_argument, NULL, 'h'},         {0}};

struct command_line {
    const char *file, *at, *state;
    struct rule_now now;
};

static int complain(const char *what, const char *value, const char *wanted)
{
    error_print("usage", "tide-hub: %s '%s': use %s", what, value, wanted);
    return HUB_EXIT_USAGE;
}

static int load(const char *path, struct power_policy *ret)
{
    _cleanup_free_ char *text = NULL;
    struct error err = {0};
    size_t len;
    struct stat st;
    int r = wholefile_read(path, YAML_BYTES_MAX, &text, &len, &st);

    if (r < 0) {
        error_print("bad-policy-file", "tide-hub: %s: %s", path,
                    r == -EFBIG ? "more than a MiB: this is no policy" : strerror(-r));
        return HUB_EXIT_FAILED;
    }
    r = policy_compile(text, len, NULL, (int64_t)(wallclock_ms() / 1000), ret, &err);
    if (r < 0)
        error_print(error_why(&err), "%s:%s", path, err.text);
    return r < 0 ? HUB_EXIT_FAILED : 0;
}

static void warn(void *arg, uint32_t line, uint32_t column, const char *text)
{
    fprintf(stderr, "%s:%u:%u: warning: %s\n", (const char *)arg, (unsigned)line, (unsigned)column,
            text);
}

static int check(int argc, char **argv, const struct command_line *line)
{
    const char *path = argc ? argv[0] : line->file;
    char text[RULE_TEXT_MAX];
    struct power_policy p;
    int r;

    if (argc > 1)
        return complain("too many arguments:", argv[1], "tide-hub policy check [FILE]");
    r = load(path, &p);
    if (r)
        return r;
    printf("%s: %u rules for %s, no contradiction in the coming year\n", path, p.set.count, p.org);
    for (uint32_t i = 0; i < p.set.count; i++)
        if (p.set.rule[i].alone) {
            explain_rule(&p, i, text);
            printf("  line %-4u %s\n", (unsigned)p.set.rule[i].line, text);
        }
    r = doubts_of(&p, NULL, warn, (void *)path);
    policy_done(&p);
    if (r < 0)
        error_print("system-refused", "tide-hub: %s", strerror(-r));
    return r < 0 ? HUB_EXIT_FAILED : 0;
}

static int diff(int argc, char **argv, const struct command_line *line)
{
    struct power_policy before, after;
    int r;

    if (argc < 1 || argc > 2)
        return complain("diff", argc ? argv[2] : "", "tide-hub policy diff [OLD] NEW");
    r = load(argc == 2 ? argv[0] : line->file, &before);
    if (r)
        return r;
    r = load(argv[argc - 1], &after);
    if (r == 0) {
        r = explain_diff(&before, &after, stdout) ? HUB_EXIT_DIFFERS : 0;
        policy_done(&after);
    }
    policy_done(&before);
    return r;
}

/* The clock of times: the policy's, else that of the first window. */
static const struct zone *clock_of(const struct power_policy *p)
{
    return p->zones.count ? p->zones.zone[0] : NULL;
}

static int explain(int argc, char **argv, struct command_line *line)
{
    struct power_policy p;
    int r = 0;

    if (argc != 1)
        return complain("explain", argc ? argv[1] : "", "tide-hub policy explain AREA [--at TIME]");
    if (!area_valid(argv[0]) || strlen(argv[0]) >= AREA_PATH_MAX)
        return complain("area", argv[0], "a path as unlp/lab3");
    if (load(line->file, &p))
        return HUB_EXIT_FAILED;
    if (line->at && zones_time(clock_of(&p), line->at, line->now.utc_s, &line->now.utc_s) < 0)
        r = complain("--at", line->at, "a time as 18:30, '2026-11-23 18:30' or 2026-11-23T18:30Z");
    else if (!area_below(argv[0], p.org)) {
        error_print("hub-has-none", "tide-hub: %s does not lie in the organization %s", argv[0],
                    p.org);
        r = HUB_EXIT_FAILED;
    } else {
        explain_area(&p, argv[0], clock_of(&p), &line->now, stdout);
    }
    policy_done(&p);
    return r;
}

/* ---- apply ---- */

/* Waits until the hub has given the text its number. */
static int wait_for_number(const char *dir, struct error *err)
{
    for (int tenths = 0; tenths < 100; tenths++) {
        uint64_t number;
        bool current;
        int r = in_force_peek(dir, &number, &current, err);

        if (r < 0)
            return r;
        if (current) {
            printf("in force as number %" PRIu64 "; units get it now\n", number);
            return 0;
        }
        usleep(100000);
    }
    return error_set(err, -ETIMEDOUT, "the running hub has not taken it yet: see its log");
}

static int put_in_force(const char *dir, const char *text, size_t len, struct error *err)
{
    pid_t pid;
    struct state state;
    int r = state_open(dir, &state, err);

    if (r < 0)
        return r;
    r = in_force_leave(dir, text, len, err);
    state_close(&state);
    if (r < 0)
        return r;
    pid = state_pid(dir, TREE_PID, "tide-hub");
    if (!pid) {
        puts("written; no hub runs here: the next one puts it in force");
        return 0;
    }
    if (kill(pid, SIGHUP) < 0)
        return error_set(err, -errno,
                         "the policy is written, but the hub (pid %d) cannot be told to read it: "
                         "%s",
                         (int)pid, strerror(errno));
    return wait_for_number(dir, err);
}

static int apply(int argc, char **argv, const struct command_line *line)
{
    const char *path = argc ? argv[0] : line->file;
    _cleanup_free_ char *text = NULL;
    struct power_policy p;
    struct error err = {0};
    struct stat st;
    size_t len;
    int r;

    if (argc > 1)
        return complain("too many arguments:", argv[1], "tide-hub policy apply [FILE]");
    r = load(path, &p);
    if (r)
        return r;
    policy_done(&p);
    r = wholefile_read(path, YAML_BYTES_MAX, &text, &len, &st);
    if (r < 0)
        error_set(&err, r, "%s: %s", path, strerror(-r));
    else
        r = put_in_force(line->state, text, len, &err);
    terminal_audit_in(line->state, "policy.apply", path, &err);
    return command_end(r, &err);
}

static int show(int argc, char **argv, const struct command_line *line)
{
    _cleanup_free_ char *text = NULL;
    struct error err = {0};
    int r;

    if (argc)
        return complain("too many arguments:", argv[0], "tide-hub policy show");
    r = in_force_text(line->state, &text, &err);
    if (r == -ENOENT)
        error_set(&err, r, "no policy is in force: tide-hub policy apply FILE");
    if (r == 0)
        fputs(text, stdout);
    return command_end(r, &err);
}

static int take(void *arg, int option)
{
    struct command_line *line = arg;
    char with_unit[32];
    struct when_context none = {0};
    struct power_rule rule = {0};

    switch (option) {
    case 's':
        line->state = optarg;
        return 0;
    case 'f':
        line->file = optarg;
        return 0;
    case 'a':
        line->at = optarg;
        return 0;
    case 'c':
        snprintf(with_unit, sizeof(with_unit), "%.20s g/kWh", optarg);
        return amount_carbon(with_unit, &line->now.carbon) < 0
                   ? complain("--carbon", optarg, "a number of g/kWh, as 350")
                   : 0;
    case 'b':
        snprintf(with_unit, sizeof(with_unit), "absent %.20s", optarg);
        if (when_parse(with_unit, &none, &rule, NULL) < 0)
            return complain("--absent", optarg, "a time as 20min");
        line->now.absent_s = rule.absent_s;
        return 0;
    default:
        line->now.synchronised = false;
        return 0;
    }
}

int cmd_policy(int argc, char **argv)
{
    struct command_line line = {
        .file = POLICY_FILE,
        .state = STATE_DIR,
        .now = {(int64_t)(wallclock_ms() / 1000), true, RULE_UNKNOWN, RULE_UNKNOWN, 0}};
    const char *verb;
    int r = command_options(argc, argv, usage, options, take, &line);

    if (r)
        return r < 0 ? 0 : r;
    verb = optind < argc ? argv[optind++] : "";
    argc -= optind;
    argv += optind;
    if (strcmp(verb, "check") == 0)
        return check(argc, argv, &line);
    if (strcmp(verb, "diff") == 0)
        return diff(argc, argv, &line);
    if (strcmp(verb, "apply") == 0)
        return apply(argc, argv, &line);
    if (strcmp(verb, "show") == 0)
        return show(argc, argv, &line);
    if (strcmp(verb, "explain") == 0)
        return explain(argc, argv, &line);
    return command_wrong(usage);
}
