/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a container against an engine and a person that act in any order: every
 * sequence of a few events, and long random ones. After each sequence the engine answers all
 * requests; then the wanted limits must be in place.
 */
#include "daemon/containers/container_step.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OWN     0   /* limits that the container began with; 1 and 2 are the policy's … */
#define PERSONS 100 /* … and from here on a person's */
#define NEWS    100
#define GHOSTS  4
#define LONG    60
#define WORLDS  400000
#define DEPTH   5

enum hand { NOBODY, OURS, PERSON };

struct request {
    enum container_action verb; /* CONTAINER_DO_NOTHING: none is outstanding */
    int limits;
    bool carried_out, refused;
    bool blind;                /* a person's hand came between it and its answer */
    enum container_event seen; /* by an inspection */
    bool seen_running;
    int seen_limits;
};

struct world {
    /* The engine. */
    bool up, running;
    int limits;
    enum hand paused;
    struct request request;
    struct request ghost[GHOSTS]; /* their answers were lost; carried out later, in order */
    unsigned n_ghosts;
    struct {
        enum container_event event;
        unsigned time;
    } news[NEWS]; /* not delivered yet */
    unsigned n_news, now;

    /* The state that container_limits.c has beside the machine. */
    struct container_state s;
    bool job, noting, on_disk;
    int own, want, placed, sent;
    unsigned answered; /* the last pause or unpause; UINT_MAX: not, and it may be late */

    /* For the checks. */
    int persons;         /* the last value that a person wrote */
    bool paused_blindly; /* an answer was lost, so the pause may be ours or another's */
    bool cancelled;
    const char *text;
    unsigned actions;
};

static struct world w;

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("after \"%s\": %s", w.text, #condition);                                      \
    } while (0)

static void happens(enum container_event e);

/* ---- the engine ---- */

static void tell(enum container_event e)
{
    check(w.n_news < NEWS);
    w.news[w.n_news].event = e;
    w.news[w.n_news++].time = ++w.now;
}

static void carry_out(struct request *r)
{
    if (r->carried_out)
        return;
    r->carried_out = true;
    switch (r->verb) {
    case CONTAINER_DO_INSPECT:
        r->seen = w.paused ? CONTAINER_FOUND_PAUSED : CONTAINER_FOUND_RUNNING;
        r->seen_running = w.running;
        r->seen_limits = w.limits;
        break;
    case CONTAINER_DO_UPDATE:
        w.limits = r->limits;
        break;
    case CONTAINER_DO_PAUSE:
        r->refused = w.paused || !w.running;
        w.paused = r->refused ? w.paused : OURS;
        break;
    case CONTAINER_DO_UNPAUSE:
        r->refused = !w.paused;
        w.paused = NOBODY;
        break;
    default:
        break;
    }
}

/* Carries out a request whose answer is lost: to the machine it looks like another's change. */
static void carry_out_ghost(void)
{
    struct request *r = &w.ghost[0];

    if (!w.n_ghosts)
        return;
    carry_out(r);
    if (!r->refused && r->verb != CONTAINER_DO_INSPECT)
        tell(r->verb == CONTAINER_DO_UNPAUSE ? CONTAINER_WENT_ON : CONTAINER_NEWS);
    memmove(w.ghost, w.ghost + 1, --w.n_ghosts * sizeof(w.ghost[0]));
}

static void execute(void)
{
    while (w.n_ghosts)
        carry_out_ghost();
    carry_out(&w.request);
}

/* ---- container_limits.c in small ---- */

static void found(const struct request *r)
{
    bool counts = container_counts(&w.s);

    if (counts && r->seen_limits == w.sent)
        w.placed = w.sent;
    if (!counts || (!r->seen_running && w.job)) {
        happens(CONTAINER_UNREAD);
        return;
    }
    if (r->seen_running) {
        if (!w.job && r->seen_limits != w.placed)
            w.own = r->seen_limits;
        if (!w.job)
            w.want = w.own;
        w.placed = r->seen_limits;
        w.job = true;
    }
    check(w.own == OWN || w.own >= PERSONS);
    happens(r->seen);
}

static struct request take_request(void)
{
    struct request r = w.request;

    w.request.verb = CONTAINER_DO_NOTHING;
    if (r.verb == CONTAINER_DO_PAUSE || r.verb == CONTAINER_DO_UNPAUSE)
        w.answered = ++w.now;
    return r;
}

static void answer(void)
{
    struct request r;

    execute();
    r = take_request();
    if (r.verb == CONTAINER_DO_NOTHING)
        return;
    if (r.verb == CONTAINER_DO_INSPECT) {
        found(&r);
        return;
    }
    w.paused_blindly |= r.blind;
    if (r.verb == CONTAINER_DO_UPDATE)
        w.placed = w.sent;
    happens(r.refused ? CONTAINER_REFUSED : CONTAINER_DONE);
}

static void lose_sight(enum container_action verb)
{
    if (verb != CONTAINER_DO_PAUSE && verb != CONTAINER_DO_UNPAUSE)
        return;
    w.paused_blindly = true;
    w.answered = UINT_MAX;
}

/* The engine refuses the limits; to other requests it answers that it is not well. */
static void refuse(void)
{
    struct request r;

    if (w.request.verb == CONTAINER_DO_NOTHING || w.request.carried_out)
        return;
    r = take_request();
    if (r.verb == CONTAINER_DO_UPDATE) {
        w.sent = w.placed;
        w.want = w.job ? w.placed : w.want;
    }
    lose_sight(r.verb);
    happens(r.verb == CONTAINER_DO_UPDATE && w.job ? CONTAINER_REFUSED : CONTAINER_LOST);
}

static void lose(bool later)
{
    struct request r = take_request();

    if (r.verb == CONTAINER_DO_NOTHING)
        return;
    if (later && !r.carried_out && w.n_ghosts < GHOSTS)
        w.ghost[w.n_ghosts++] = r;
    lose_sight(r.verb);
    happens(CONTAINER_LOST);
}

static void note(void)
{
    if (w.on_disk)
        happens(CONTAINER_NOTED);
    else
        w.noting = true;
}

static void flush(void)
{
    if (!w.noting)
        return;
    w.noting = false;
    w.on_disk = true;
    happens(CONTAINER_NOTED);
}

static void send(enum container_action verb)
{
    check(w.request.verb == CONTAINER_DO_NOTHING); /* one at a time */
    check(w.up);
    check(verb == CONTAINER_DO_INSPECT || verb == CONTAINER_DO_UNPAUSE || w.on_disk);
    check(verb != CONTAINER_DO_UNPAUSE || w.paused != PERSON || w.n_news || w.paused_blindly ||
          w.cancelled);
    w.request = (struct request){.verb = verb, .limits = w.want};
    if (verb == CONTAINER_DO_UPDATE)
        w.sent = w.want;
}

static void happens(enum container_event e)
{
    struct container_view v = {.engine = w.up, .differs = w.want != w.placed, .job = w.job};
    enum container_action action = container_step(&w.s, e, v);

    w.actions += action != CONTAINER_DO_NOTHING;
    if (action == CONTAINER_DO_NOTE)
        note();
    else if (action != CONTAINER_DO_NOTHING)
        send(action);
    if ((w.s.pause == PAUSE_NONE && !w.n_ghosts) ||
        (w.s.pause == PAUSE_OURS && w.paused == OURS && w.answered != UINT_MAX))
        w.paused_blindly = false;
    if (!w.job && container_sure(&w.s) && w.want == w.placed)
        w.on_disk = w.noting = false; /* the restore journal forgets it */
}

/* ---- what else happens ---- */

static void persons_pause(void)
{
    if (!w.running || w.paused)
        return;
    w.request.blind |= w.request.carried_out;
    w.paused = PERSON;
    w.cancelled = false;
    tell(CONTAINER_NEWS);
}

static void persons_unpause(void)
{
    if (!w.paused)
        return;
    w.request.blind |= w.request.carried_out;
    w.paused = NOBODY;
    tell(CONTAINER_WENT_ON);
}

static void persons_limits(void)
{
    if (!w.running && (!container_sure(&w.s) || w.want != w.placed))
        return; /* what is being put back may come behind it */
    w.limits = ++w.persons;
    tell(CONTAINER_NEWS);
}

static void die(void)
{
    if (!w.running)
        return;
    w.running = false;
    w.paused = NOBODY;
    w.request.blind = true;
    w.job = false;
    w.want = w.own;
    w.noting = false;
    happens(CONTAINER_ENDED);
}

static void start(void)
{
    if (w.running)
        return;
    w.running = true;
    tell(CONTAINER_NEWS);
}

static void hear(void)
{
    enum container_event e = w.news[0].event;

    if (!w.n_news || !w.up)
        return;
    if (w.s.phase >= CONTAINER_PAUSING || w.news[0].time < w.answered)
        e = CONTAINER_NEWS; /* it may have happened before our own pause */
    memmove(w.news, w.news + 1, --w.n_news * sizeof(w.news[0]));
    happens(e);
}

static void cut(void)
{
    w.up = false;
    lose(true);
}

static void back(void)
{
    if (w.up)
        return;
    w.up = true;
    happens(CONTAINER_WANT);
}

static void want(int limits)
{
    if (!w.job)
        return;
    w.want = limits;
    happens(CONTAINER_WANT);
}

static void order(enum container_event e)
{
    if (!w.job)
        return;
    w.cancelled |= e == CONTAINER_CANCELLED;
    happens(e);
}

static void event(char c)
{
    switch (c) {
    case 'x':
        execute();
        break;
    case 'a':
        answer();
        break;
    case 'f':
        refuse();
        break;
    case 'l':
        lose(true);
        break;
    case 'g':
        carry_out_ghost();
        break;
    case 'p':
        persons_pause();
        break;
    case 'u':
        persons_unpause();
        break;
    case 'w':
        persons_limits();
        break;
    case 'n':
        hear();
        break;
    case 'j':
        flush();
        break;
    case 't':
        happens(CONTAINER_TICK);
        break;
    case 'P':
        order(CONTAINER_WANT_PAUSED);
        break;
    case 'R':
        order(CONTAINER_WANT_RUNNING);
        break;
    case 'c':
        order(CONTAINER_CANCELLED);
        break;
    case '1':
    case '2':
        want(c - '0');
        break;
    case 'd':
        die();
        break;
    case 's':
        start();
        break;
    case 'C':
        cut();
        break;
    case 'b':
        back();
        break;
    default:
        fail();
    }
}

static const char events[] = "xaflgpuwnjtPRc12dsCb";
#define N_EVENTS (sizeof(events) - 1)

static void begin(const char *text)
{
    w = (struct world){.up = true, .running = true, .job = true, .persons = PERSONS, .text = text};
    happens(CONTAINER_FOUND_RUNNING);
    check(container_sure(&w.s));
}

/* Nothing goes wrong any more. */
static void calm_down(void)
{
    unsigned rounds = 0;

    back();
    w.actions = 0;
    do {
        while (w.n_ghosts)
            carry_out_ghost();
        flush();
        answer();
        hear();
        happens(CONTAINER_TICK);
        check(++rounds < 200);
    } while (w.request.verb || w.noting || w.n_news || !container_sure(&w.s));
    check(w.actions < 200);
}

static void check_reached(void)
{
    check(w.job == w.running);
    if (w.job) {
        check(w.limits == w.want);
        check(w.paused == PERSON || (w.paused == OURS) == w.s.want_paused || w.paused_blindly);
        check(container_stands(&w.s) == (w.paused != NOBODY));
        check(w.paused != PERSON || w.s.pause == PAUSE_PERSON || w.paused_blindly || w.cancelled);
    } else {
        check(w.limits == OWN || w.limits >= PERSONS);
        check(!w.on_disk);
    }
}

static void run(const char *text)
{
    begin(text);
    for (const char *c = text; *c; c++)
        event(*c);
    calm_down();
    check_reached();
}

static void every_short_sequence_ends_with_what_is_wanted(void **state)
{
    size_t at[DEPTH] = {0};
    char text[DEPTH + 1];

    (void)state;
    for (;;) {
        size_t i = 0;

        for (size_t k = 0; k < DEPTH; k++)
            text[k] = events[at[k]];
        text[DEPTH] = '\0';
        run(text);
        while (i < DEPTH && ++at[i] == N_EVENTS)
            at[i++] = 0;
        if (i == DEPTH)
            break;
    }
}

static void random_sequences_end_with_what_is_wanted(void **state)
{
    char text[LONG + 1];

    (void)state;
    srand(1);
    for (unsigned i = 0; i < WORLDS; i++) {
        size_t n = 1 + (size_t)rand() % LONG;

        for (size_t k = 0; k < n; k++)
            text[k] = events[(size_t)rand() % N_EVENTS];
        text[n] = '\0';
        run(text);
    }
}

/* ---- some by name ---- */

static void a_pause_by_hand_while_ours_is_on_its_way_is_the_persons(void **state)
{
    (void)state;
    run("Pjp");
    assert_int_equal(w.s.pause, PAUSE_PERSON);
    run("PjpanaR");
    assert_int_equal(w.paused, PERSON);
}

static void a_pause_whose_answer_was_lost_is_ours(void **state)
{
    (void)state;
    run("PjxltaR");
    assert_int_equal(w.paused, NOBODY);
    run("Pjlta1jaRnat"); /* carried out before the update */
    assert_int_equal(w.paused, NOBODY);
    run("PjfRta1japna"); /* engines keep the order, so no answer to us can follow */
    assert_int_equal(w.s.pause, PAUSE_PERSON);
}

static void an_earlier_daemons_pause_may_still_come(void **state)
{
    (void)state;
    begin("an earlier daemon's");
    w.s.pause = PAUSE_INHERITED;
    happens(CONTAINER_NEWS);
    answer(); /* it runs */
    assert_int_equal(w.s.pause, PAUSE_LATE);
    w.paused = OURS;
    tell(CONTAINER_NEWS);
    calm_down();
    assert_int_equal(w.paused, NOBODY);
    persons_pause(); /* the one after that is a person's */
    calm_down();
    assert_int_equal(w.s.pause, PAUSE_PERSON);
}

static void a_cancelled_one_goes_on_whoever_has_paused_it(void **state)
{
    (void)state;
    run("pnac");
    assert_int_equal(w.paused, NOBODY);
}

static void an_inspection_that_news_has_overtaken_is_not_believed(void **state)
{
    (void)state;
    begin("overtaken");
    happens(CONTAINER_NEWS);
    execute();
    persons_pause();
    hear();
    assert_false(container_counts(&w.s));
    answer();
    assert_int_equal(w.request.verb, CONTAINER_DO_INSPECT);
    answer();
    assert_int_equal(w.s.pause, PAUSE_PERSON);
}

static void limits_of_an_update_under_way_do_not_outlive_the_container(void **state)
{
    (void)state;
    run("1jd");
    run("1jxld");
    run("1jxlds");
    run("1jldgs");
    assert_int_equal(w.own, OWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_by_hand_while_ours_is_on_its_way_is_the_persons),
        cmocka_unit_test(a_pause_whose_answer_was_lost_is_ours),
        cmocka_unit_test(an_earlier_daemons_pause_may_still_come),
        cmocka_unit_test(a_cancelled_one_goes_on_whoever_has_paused_it),
        cmocka_unit_test(an_inspection_that_news_has_overtaken_is_not_believed),
        cmocka_unit_test(limits_of_an_update_under_way_do_not_outlive_the_container),
        cmocka_unit_test(every_short_sequence_ends_with_what_is_wanted),
        cmocka_unit_test(random_sequences_end_with_what_is_wanted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
