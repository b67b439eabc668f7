/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/any.h"

#include "base/cleanup.h"
#include "cli/remote/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "system-refused"

/* ---- choosing ---- */

/* Whether @a is the better one for a further job. */
static bool is_less_loaded(const struct fleet_answer *a, const struct fleet_answer *b)
{
    double jobs = (double)fleet_jobs(a) / (double)fleet_cores(a);
    double others = (double)fleet_jobs(b) / (double)fleet_cores(b);

    if (jobs < others || jobs > others)
        return jobs < others;
    return fleet_load(a) / (double)fleet_cores(a) < fleet_load(b) / (double)fleet_cores(b);
}

const struct fleet_answer *any_least_loaded(const struct fleet *f, long request)
{
    const struct fleet_answer *best = NULL;

    for (size_t k = 0; k < f->n; k++) {
        const struct fleet_answer *a = &f->answer[k];

        /* A gateway starts no program. */
        if (!a->reached || a->machine->address.gateway || fleet_cores(a) < 1 ||
            fleet_cores(a) < request)
            continue;
        if (!best || is_less_loaded(a, best))
            best = a;
    }
    return best;
}

/* ---- the command line there ---- */

struct line {
    char text[ANY_COMMAND_MAX];
    size_t len;
    bool full;
};

static void put(struct line *l, const char *text)
{
    size_t n = strlen(text);

    if (l->full || l->len + n >= sizeof(l->text)) {
        l->full = true;
        return;
    }
    memcpy(l->text + l->len, text, n + 1);
    l->len += n;
}

/* In single quotes, in which every shell takes all but a quote as it is. */
static void put_word(struct line *l, const char *word)
{
    put(l, " '");
    for (; *word; word++) {
        const char one[2] = {*word, '\0'};

        put(l, *word == '\'' ? "'\\''" : one);
    }
    put(l, "'");
}

static int make_line(const struct any *a, const struct address *to, struct line *l)
{
    char folder[PATH_MAX];

    if (!getcwd(folder, sizeof(folder)))
        return cli_error(a->cmd, CLI_FAILED, NULL, "this directory has no path: %s",
                         strerror(errno));
    put(l, "cd");
    put_word(l, folder);
    put(l, " && exec ");
    put(l, *to->program ? to->program : "tide");
    put(l, " submit");
    for (char *const *word = a->word; *word; word++)
        put_word(l, *word);
    if (l->full)
        return cli_usage(a->cmd, "the command line is longer than %d bytes", ANY_COMMAND_MAX);
    return CLI_OK;
}

/* As for a job of this machine: ssh would read the list of a shell's loop to its end. */
static int take_no_input(void)
{
    int null = open("/dev/null", O_RDONLY);

    if (null < 0 || dup2(null, STDIN_FILENO) < 0)
        return -errno;
    if (null > STDIN_FILENO)
        close(null);
    return 0;
}

static int go(const struct any *a, const struct fleet_answer *to)
{
    static struct line line;
    struct dial_words words = {0};
    int r = make_line(a, &to->machine->address, &line);

    if (r != CLI_OK)
        return r;
    if (!a->quiet)
        cli_note(a->cmd, "%s takes it: %ld jobs on %ld cores", to->machine->name, fleet_jobs(to),
                 fleet_cores(to));
    if (take_no_input() < 0)
        return cli_error(a->cmd, CLI_FAILED, NULL, "cannot open /dev/null: %s", strerror(errno));
    dial_words(&to->machine->address, false, line.text, &words);
    execvp(words.word[0], (char *const *)words.word);
    return cli_error(a->cmd, CLI_FAILED, NULL, "cannot start ssh: %s", strerror(errno));
}

/* ---- all of it ---- */

static int nobody(const struct any *a, const struct fleet *f)
{
    size_t by_ssh = 0;

    for (size_t k = 0; k < f->n; k++)
        by_ssh += f->answer[k].reached && !f->answer[k].machine->address.gateway;
    if (f->reached && !by_ssh)
        return cli_error_as(a->cmd, CLI_USAGE, "no-machine",
                            "Log in there: 'ssh HOST tide submit ...'.",
                            "a gateway starts no job, and each of the %zu machines that were "
                            "reached is behind one",
                            f->reached);
    if (f->reached)
        return cli_error_as(a->cmd, CLI_USAGE, "no-machine", NULL,
                            "none of the %zu machines that were reached has %ld cores", by_ssh,
                            a->request);
    return cli_error_as(a->cmd, CLI_UNREACHABLE, "no-machine", "'tide fleet' shows all of them.",
                        "none of the %zu machines was reached; %s: %s", f->n,
                        f->answer[0].machine->name, f->answer[0].why.text);
}

int any_submit(const struct any *a)
{
    _cleanup_(inventory_done) struct inventory inventory = {0};
    _cleanup_(fleet_done) struct fleet fleet = {0};
    const struct fleet_answer *to;
    struct error err = {0};
    int r = inventory_read(a->inventory, &inventory, &err);

    if (r < 0)
        return cli_error_as(a->cmd, CLI_USAGE, err.word, "tide-fleet(1) says what an inventory is.",
                            "%s", err.text);
    if (inventory.n == 0)
        return cli_error_as(a->cmd, CLI_USAGE, "no-inventory", NULL, "%.180s has no machine",
                            inventory.from);
    if (fleet_ask(&inventory, ANY_DEADLINE_MS, &fleet) < 0)
        return cli_no_memory(a->cmd);
    to = any_least_loaded(&fleet, a->request);
    return to ? go(a, to) : nobody(a, &fleet);
}
