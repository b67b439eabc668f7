/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/container_step.h"

bool container_counts(const struct container_state *s)
{
    return s->phase < CONTAINER_INSPECTING || (s->phase == CONTAINER_INSPECTING && !s->overtaken);
}

bool container_changing(const struct container_state *s)
{
    return s->phase >= CONTAINER_NOTING;
}

bool container_sure(const struct container_state *s)
{
    return s->phase == CONTAINER_KNOWN;
}

bool container_stands(const struct container_state *s)
{
    return s->pause >= PAUSE_INHERITED;
}

static bool outstanding(const struct container_state *s)
{
    return s->phase >= CONTAINER_INSPECTING;
}

static enum container_action begin(struct container_state *s, enum container_phase phase)
{
    static const enum container_action action[CONTAINER_PHASE_MAX] = {
        [CONTAINER_INSPECTING] = CONTAINER_DO_INSPECT, [CONTAINER_NOTING] = CONTAINER_DO_NOTE,
        [CONTAINER_UPDATING] = CONTAINER_DO_UPDATE,    [CONTAINER_PAUSING] = CONTAINER_DO_PAUSE,
        [CONTAINER_UNPAUSING] = CONTAINER_DO_UNPAUSE,
    };

    s->phase = phase;
    s->overtaken = false;
    return action[phase];
}

/* Inspects as soon as there is an engine to ask. */
static enum container_action inspect(struct container_state *s, struct container_view v)
{
    return begin(s, v.engine ? CONTAINER_INSPECTING : CONTAINER_DOUBTED);
}

/* The first wanted change that is not in place. A pause goes first: it frees cores for others. */
static enum container_action next(struct container_state *s, struct container_view v, bool noted)
{
    bool pause = s->want_paused && !container_stands(s);
    bool unpause = !s->want_paused && container_stands(s) && s->pause != PAUSE_PERSON;

    if (s->phase != CONTAINER_KNOWN || !v.engine)
        return CONTAINER_DO_NOTHING;
    if ((pause || v.differs) && !noted)
        return begin(s, CONTAINER_NOTING);
    if (pause)
        return begin(s, CONTAINER_PAUSING);
    if (v.differs)
        return begin(s, CONTAINER_UPDATING);
    return unpause ? begin(s, CONTAINER_UNPAUSING) : CONTAINER_DO_NOTHING;
}

/* The outstanding operation is over; its outcome is known unless news came meanwhile. */
static enum container_action settle(struct container_state *s, struct container_view v, bool noted)
{
    if (s->overtaken)
        return inspect(s, v);
    s->phase = CONTAINER_KNOWN;
    return next(s, v, noted);
}

static enum container_action doubt(struct container_state *s, struct container_view v)
{
    return s->overtaken ? inspect(s, v) : begin(s, CONTAINER_DOUBTED);
}

static enum container_action found(struct container_state *s, bool paused, struct container_view v)
{
    static const enum container_pause then[PAUSE_MAX][2] = {
        [PAUSE_NONE] = {PAUSE_NONE, PAUSE_PERSON},    [PAUSE_LATE] = {PAUSE_LATE, PAUSE_OURS},
        [PAUSE_INHERITED] = {PAUSE_LATE, PAUSE_OURS}, [PAUSE_OURS] = {PAUSE_NONE, PAUSE_OURS},
        [PAUSE_PERSON] = {PAUSE_NONE, PAUSE_PERSON},
    };

    if (container_counts(s)) {
        s->pause = then[s->pause][paused];
        s->overtaken = false;
    }
    return container_changing(s) ? CONTAINER_DO_NOTHING : settle(s, v, false);
}

/* An engine works in order: after an update no earlier pause of ours can still be carried out. */
static enum container_action done(struct container_state *s, struct container_view v)
{
    if (s->phase == CONTAINER_PAUSING)
        s->pause = PAUSE_OURS;
    else if (s->phase == CONTAINER_UNPAUSING || s->pause == PAUSE_LATE)
        s->pause = PAUSE_NONE;
    return settle(s, v, false);
}

/* "Already paused" is a person's pause, unless it can be a late one of ours. */
static enum container_action refused(struct container_state *s, struct container_view v)
{
    if (s->phase == CONTAINER_PAUSING && v.job) /* else it refused as it ended */
        s->pause = s->pause == PAUSE_NONE ? PAUSE_PERSON : PAUSE_OURS;
    else if (s->phase == CONTAINER_UNPAUSING)
        s->pause = PAUSE_NONE;
    return s->phase == CONTAINER_UPDATING ? settle(s, v, false) : doubt(s, v);
}

static enum container_action lost(struct container_state *s, struct container_view v)
{
    if (s->phase == CONTAINER_PAUSING)
        s->pause = PAUSE_LATE;
    return doubt(s, v);
}

static enum container_action unsent(struct container_state *s)
{
    s->phase =
        s->phase == CONTAINER_INSPECTING || s->overtaken ? CONTAINER_DOUBTED : CONTAINER_KNOWN;
    s->overtaken = false;
    return CONTAINER_DO_NOTHING;
}

static enum container_action news(struct container_state *s, struct container_view v)
{
    if (s->phase == CONTAINER_NEW)
        return CONTAINER_DO_NOTHING;
    if (!outstanding(s))
        return inspect(s, v);
    s->overtaken = true;
    return CONTAINER_DO_NOTHING;
}

/* An outstanding update still counts: it changes how the container starts again. */
static enum container_action ended(struct container_state *s, struct container_view v)
{
    s->pause = s->pause == PAUSE_LATE || s->pause == PAUSE_INHERITED ? PAUSE_LATE : PAUSE_NONE;
    s->want_paused = false;
    s->overtaken |= s->phase == CONTAINER_INSPECTING; /* may describe the run before */
    return s->phase == CONTAINER_NOTING ? settle(s, v, false) : next(s, v, false);
}

/* The order is newer than a person's pause, and overrides it. */
static enum container_action cancelled(struct container_state *s, struct container_view v)
{
    s->want_paused = false;
    if (s->pause == PAUSE_PERSON)
        s->pause = PAUSE_OURS;
    return next(s, v, false);
}

/* Events that answer the outstanding operation. */
static enum container_action answer(struct container_state *s, enum container_event e,
                                    struct container_view v)
{
    bool asked = s->phase == CONTAINER_INSPECTING, noting = s->phase == CONTAINER_NOTING;

    switch (e) {
    case CONTAINER_NOTED:
        return noting ? settle(s, v, true) : CONTAINER_DO_NOTHING;
    case CONTAINER_UNREAD:
        if (asked && s->overtaken)
            return inspect(s, v);
        if (asked)
            s->phase = CONTAINER_KNOWN;
        return CONTAINER_DO_NOTHING;
    case CONTAINER_DONE:
        return asked || noting ? CONTAINER_DO_NOTHING : done(s, v);
    case CONTAINER_REFUSED:
        return asked || noting ? CONTAINER_DO_NOTHING : refused(s, v);
    case CONTAINER_LOST:
        return noting ? CONTAINER_DO_NOTHING : lost(s, v);
    case CONTAINER_UNSENT:
        return unsent(s);
    default:
        return CONTAINER_DO_NOTHING;
    }
}

enum container_action container_step(struct container_state *s, enum container_event e,
                                     struct container_view v)
{
    switch (e) {
    case CONTAINER_WANT_PAUSED:
    case CONTAINER_WANT_RUNNING:
        s->want_paused = e == CONTAINER_WANT_PAUSED;
        return next(s, v, false);
    case CONTAINER_CANCELLED:
        return cancelled(s, v);
    case CONTAINER_WANT:
        return next(s, v, false);
    case CONTAINER_WENT_ON:
        if (s->pause == PAUSE_OURS || s->pause == PAUSE_PERSON)
            s->pause = PAUSE_NONE;
        return news(s, v);
    case CONTAINER_NEWS:
        return news(s, v);
    case CONTAINER_TICK:
        return s->phase == CONTAINER_DOUBTED && v.engine ? inspect(s, v) : next(s, v, false);
    case CONTAINER_FOUND_RUNNING:
    case CONTAINER_FOUND_PAUSED:
        return found(s, e == CONTAINER_FOUND_PAUSED, v);
    case CONTAINER_ENDED:
        return ended(s, v);
    default:
        return outstanding(s) ? answer(s, e, v) : CONTAINER_DO_NOTHING;
    }
}
