/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/moment.h"
#include "hub/command.h"
#include "hub/conf.h"
#include "hub/people/audit.h"
#include "hub/people/password.h"
#include "hub/people/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ERROR_WORD "hub-state"

static const char usage[] =
    "Usage: tide-hub user add NAME --role ROLE [--state DIR]\n"
    "       tide-hub user passwd NAME [--keep-tokens]\n"
    "       tide-hub user role NAME --role ROLE [--keep-tokens]\n"
    "       tide-hub user remove NAME\n"
    "       tide-hub user token NAME [--for TIME]\n"
    "       tide-hub user token NAME --revoke\n"
    "       tide-hub user list\n"
    "\n"
    "Users of the hub's page and its REST interface. Works beside a running hub, and counts at\n"
    "once. There is no user at first, and no default password.\n"
    "\n"
    "  add, passwd    asks for the password on the terminal, or reads one line of standard input\n"
    "  role           another role\n"
    "  remove         the last administrator stays\n"
    "                 passwd, role and remove end all of the user's sessions and tokens\n"
    "  token          prints a token for scripts ('Authorization: Bearer TOKEN'), which has the\n"
    "                 user's role and is shown only this once\n"
    "  list           name, role, last login, sessions and tokens\n"
    "\n"
    "  --role ROLE    viewer (sees everything but others' energy), operator (switches, too), or\n"
    "                 administrator (policy, users and units, too)\n"
    "  --for TIME     how long the token is good, as 90d; default: until it is revoked\n"
    "  --revoke       ends all tokens of the user\n"
    "  --keep-tokens  only sessions end with the old password or role\n"
    "  --state DIR    the hub's directory; default /var/lib/tide-hub\n"
    "  --config FILE  that names it; default /etc/tide/tide-hub.conf\n";

static const struct option more[] = {{"role", required_argument, NULL, 'r'},
                                     {"for", required_argument, NULL, 'f'},
                                     {"revoke", no_argument, NULL, 'x'},
                                     {"keep-tokens", no_argument, NULL, 'k'},
                                     {0}};

struct asked {
    const char *verb, *name;
    bool has_role, revoke, keep_tokens;
    enum role role;
    uint64_t for_ms;
};

static int take(void *arg, int option)
{
    struct asked *a = arg;

    switch (option) {
    case 'r':
        if (role_parse(optarg, &a->role) < 0) {
            error_print("usage", "tide-hub: --role '%s': use viewer, operator or administrator",
                        optarg);
            return HUB_EXIT_USAGE;
        }
        a->has_role = true;
        return 0;
    case 'f':
        if (moment_duration(optarg, &a->for_ms) < 0) {
            error_print("usage", "tide-hub: --for '%s': use a time as 90d", optarg);
            return HUB_EXIT_USAGE;
        }
        return 0;
    case 'k':
        a->keep_tokens = true;
        return 0;
    default:
        a->revoke = true;
        return 0;
    }
}

/* ---- passwords ---- */

/* One line without its end. -E2BIG: it is longer. */
static int read_line(FILE *from, char *ret, size_t size)
{
    if (!fgets(ret, (int)size, from))
        return -ENODATA;
    if (!strchr(ret, '\n') && !feof(from))
        return -E2BIG;
    ret[strcspn(ret, "\n")] = '\0';
    return 0;
}

/* From the terminal, unseen, whatever standard input is not. */
static int ask(FILE *terminal, const char *question, char *ret, size_t size)
{
    struct termios before, unseen;
    sigset_t stops, old;
    int r;

    if (tcgetattr(fileno(terminal), &before) < 0)
        return -errno;
    /* Ctrl-C while nothing is shown would leave the terminal so. */
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTSTP);
    sigprocmask(SIG_BLOCK, &stops, &old);
    unseen = before;
    unseen.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(fileno(terminal), TCSAFLUSH, &unseen);
    fputs(question, terminal);
    fflush(terminal);
    r = read_line(terminal, ret, size);
    tcsetattr(fileno(terminal), TCSAFLUSH, &before);
    sigprocmask(SIG_SETMASK, &old, NULL);
    fputs("\n", terminal);
    return r;
}

static int get_password(char ret[PASSWORD_MAX + 2], struct error *err)
{
    _cleanup_file_ FILE *terminal = isatty(STDIN_FILENO) ? fopen("/dev/tty", "r+e") : NULL;
    char again[PASSWORD_MAX + 2];
    int r;

    if (!terminal) {
        r = read_line(stdin, ret, PASSWORD_MAX + 2);
    } else {
        r = ask(terminal, "Password: ", ret, PASSWORD_MAX + 2);
        if (r == 0)
            r = ask(terminal, "Once more: ", again, sizeof(again));
        if (r == 0 && strcmp(ret, again) != 0)
            return error_word(
                err, error_set(err, -EINVAL, "the two passwords differ: nothing was changed"),
                "bad-password");
    }
    if (r == -ENODATA)
        return error_word(
            err, error_set(err, r, "no password: type one, or give it as a line of standard input"),
            "bad-password");
    return r < 0
               ? error_word(err, error_set(err, r, "the password cannot be read: %s", strerror(-r)),
                            "bad-password")
               : 0;
}

/* ---- what is done ---- */

static void print_person(void *arg, const struct person *p)
{
    char when[32] = "-";
    time_t at = p->last_ms / 1000;
    struct tm tm;

    if (p->last_ms)
        strftime(when, sizeof(when), "%F %T", localtime_r(&at, &tm));
    printf("%-32s %-14s %-20s %8u %6u\n", p->name, role_name(p->role), when, p->sessions,
           p->tokens);
}

static int make_token(struct people *p, const struct asked *a, struct error *err)
{
    char token[PEOPLE_TOKEN_LEN + 1];
    int r = a->revoke ? people_revoke_tokens(p, a->name, err)
                      : people_token(p, a->name, a->for_ms, token, err);

    if (r >= 0 && !a->revoke)
        puts(token);
    return r < 0 ? r : 0;
}

static int carry_out(struct people *p, const struct asked *a, struct error *err)
{
    char password[PASSWORD_MAX + 2] = "";
    int r = 0;

    if (strcmp(a->verb, "add") == 0 || strcmp(a->verb, "passwd") == 0)
        r = get_password(password, err);
    if (r < 0)
        return r;
    if (strcmp(a->verb, "add") == 0)
        return people_add(p, a->name, a->role, password, err);
    if (strcmp(a->verb, "passwd") == 0)
        return people_password(p, a->name, password, a->keep_tokens, err);
    if (strcmp(a->verb, "role") == 0)
        return people_role(p, a->name, a->role, a->keep_tokens, err);
    if (strcmp(a->verb, "remove") == 0)
        return people_remove(p, a->name, err);
    return make_token(p, a, err);
}

static void audit(struct people *p, const struct asked *a, const struct error *what_failed)
{
    bool has_role = a->has_role && !a->revoke;
    char what[AUDIT_TEXT_MAX];

    snprintf(what, sizeof(what), "user.%s%s%s%s", a->verb,
             has_role    ? " as "
             : a->revoke ? " revoked"
                         : "",
             has_role ? role_name(a->role) : "", a->keep_tokens ? ", tokens kept" : "");
    terminal_audit(p, what, a->name, what_failed);
}

static int wrong_use(const struct asked *a, int operands)
{
    static const char *const verbs[] = {"add", "passwd", "role", "remove", "token", "list"};
    bool known = false, role = strcmp(a->verb, "add") == 0 || strcmp(a->verb, "role") == 0;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        known |= strcmp(a->verb, verbs[i]) == 0;
    if (known && role && operands == 2 && !a->has_role) {
        error_print("usage", "tide-hub: %s needs --role viewer, operator or administrator",
                    a->verb);
        return HUB_EXIT_USAGE;
    }
    if (known && operands == (strcmp(a->verb, "list") == 0 ? 1 : 2))
        return 0;
    return command_wrong(usage);
}

/* Files that another user makes here, the hub could not write any more. */
static int check_owner(const struct conf *conf, struct error *err)
{
    const struct passwd *owner;
    struct stat status;

    if (stat(conf->state, &status) < 0)
        return error_set(err, -errno, "%.160s: %s%s", conf->state, strerror(errno),
                         errno == ENOENT ? "; 'tide-hub broker' makes it" : "");
    if (status.st_uid == geteuid())
        return 0;
    owner = getpwuid(status.st_uid);
    return error_set(err, -EPERM, "%.120s belongs to another user: run it as sudo -u %s tide-hub …",
                     conf->state, owner ? owner->pw_name : "#UID");
}

static int run(const struct conf *conf, const struct asked *a)
{
    struct people *p = NULL;
    struct error err = {0};
    char path[PATH_MAX];
    int r = check_owner(conf, &err);

    if (r == 0)
        r = conf_path(conf, PEOPLE_FILE, path, sizeof(path), &err);
    if (r == 0)
        r = people_open(path, &(struct people_options){0}, &p, &err);
    if (r == 0 && strcmp(a->verb, "list") == 0) {
        printf("%-32s %-14s %-20s %8s %6s\n", "USER", "ROLE", "LAST LOGIN", "SESSIONS", "TOKENS");
        r = people_list(p, print_person, NULL, &err);
    } else if (r == 0) {
        r = carry_out(p, a, &err);
        audit(p, a, &err);
    }
    people_close(p);
    return command_end(r, &err);
}

int cmd_user(int argc, char **argv)
{
    static struct conf conf;
    struct asked asked = {.verb = ""};
    const struct conf_command command = {usage, more, take, &asked, 2, HUB_EXIT_USAGE};
    int r = conf_options(&conf, argc, argv, &command);

    if (r)
        return r < 0 ? 0 : r;
    if (optind < argc)
        asked.verb = argv[optind];
    if (optind + 1 < argc)
        asked.name = argv[optind + 1];
    r = wrong_use(&asked, argc - optind);
    if (r)
        return r;
    umask(077);
    return run(&conf, &asked);
}
