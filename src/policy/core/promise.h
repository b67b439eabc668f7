/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage before the policy: how many cores a server needs to keep its promise of latency ("99 of a
 * hundred requests end within 50 ms"). The caller looks ten times a second while the server has
 * requests, and at once when many more are in flight; promise_need() answers with a number of
 * cores, which becomes the job's minimum in the policy's snapshot.
 *
 *     STEADY                 p99 below 0.6 of the promise: one core back, but not to a number that
 *                            broke it, until its hold-off is over; this doubles each time.
 *                            Between 0.6 and 0.9 the same, later and more rarely
 *     STEADY   ──▶ TRIAL     p99 above 0.9, or many more requests in flight than usual:
 *                            all that it may have, at once
 *     TRIAL    ──▶ STEADY    p99 is below 0.9
 *     TRIAL    ──▶ GIVEN_UP  p99 is as before, or is still too high after half a minute:
 *                            back to the cores before, and to fewer while that does no harm
 *     GIVEN_UP ──▶ TRIAL     after a pause, which doubles each time
 *     GIVEN_UP ──▶ STEADY    p99 is below 0.9
 *
 * Without requests for a second the server needs its least, whatever the stage; with the next one
 * at once what it needed before. It must be without them for longer where such gaps are short, or
 * where cores came back too late. Pure, integers only; the daemon and tests call it, on any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PROMISE_LOOK_NS     UINT64_C(100000000)  /* from look to look */
#define PROMISE_IDLE_NS     UINT64_C(1000000000) /* without a request: idle */
#define PROMISE_HOLD_NS     UINT64_C(8000000000) /* hold-off of cores that broke the promise, … */
#define PROMISE_HOLD_MAX_NS UINT64_C(64000000000) /* … doubled by each that broke it soon */
/* The same where its own cores broke it: shared ones cost those who yield only what it uses. */
#define PROMISE_SHARED_NS     UINT64_C(64000000000)
#define PROMISE_SHARED_MAX_NS UINT64_C(3600000000000)
#define PROMISE_PAUSE_NS      UINT64_C(4000000000)  /* until all cores are tried again, … */
#define PROMISE_PAUSE_MAX_NS  UINT64_C(64000000000) /* … doubled by each trial in vain */

/* Why a server needs as many cores as it does, for people. */
enum promise_why {
    PROMISE_NONE,       /* no promise, or no request yet */
    PROMISE_KEPT,       /* p99 between slack and danger, or the window does not tell yet */
    PROMISE_FEW,        /* too few requests to judge */
    PROMISE_IDLE,       /* no requests: least */
    PROMISE_NEAR,       /* p99 near the promise or above it: all cores */
    PROMISE_RISE,       /* many more requests in flight than usual: all cores */
    PROMISE_SLACK,      /* p99 clearly below the promise: one core was given back */
    PROMISE_HOLD,       /* slack, and fewer cores broke the promise a short time ago */
    PROMISE_NO_GAIN,    /* given up: p99 has nothing to do with cores */
    PROMISE_IMPOSSIBLE, /* given up: not even all cores keep the promise */
    PROMISE_WHY_MAX
};

enum promise_stage {
    PROMISE_STEADY,
    PROMISE_TRIAL,
    PROMISE_GIVEN_UP,
};

/* State of a job from look to look, kept by the caller; all zero at first. */
struct promise_state {
    enum promise_why why; /* of the last answer */
    enum promise_stage stage;
    enum promise_why stage_why;
    uint32_t cores; /* that it needs while it has requests; not yet bounded by least and most */
    uint32_t has;   /* at the last look */
    bool began;     /* had a request */
    bool idle;

    /* Seen so far. */
    uint64_t now_ns;     /* last look */
    uint64_t changed_ns; /* its cores in place changed, or were asked to */
    uint64_t busy_ns;    /* last request in flight, … */
    uint64_t idle_ns;    /* … begin of being idle, … */
    uint64_t wait_ns;    /* … and how long it must be without a request to be so */
    uint64_t woke_ns;    /* its end, until it shows whether cores were back in time; 0: shown */
    uint64_t slow_ns;    /* p99 is near the promise since then; 0: it is not */
    uint64_t kept_ns;    /* it is not since then; 0: it is */
    uint64_t seen;       /* thousandths of requests that ended since then with the same cores */
    uint64_t rate;       /* requests that end in 1000 s, smoothed */

    /* Requests in flight for each core, in 256ths. */
    uint64_t block_ns;          /* begin of a block of a window's length */
    uint64_t peak, peak_before; /* most in the present block, and in the one before */
    uint64_t usual;             /* at the top while the promise was kept */

    /* Giving back. */
    uint32_t broke;      /* number of cores that broke the promise, … */
    uint64_t broke_rate; /* … and the load then */
    uint64_t lower_ns;   /* the load is clearly lower since then; 0: it is not */
    uint64_t until_ns;   /* end of the hold-off of `broke` */
    uint64_t hold_ns;    /* its length */
    uint32_t good;       /* number of cores that kept it just before: back to it at once; 0: none */
    uint64_t lowered_ns; /* a core was given back last; 0: never */
    uint64_t lowered_rate;   /* the load then, … */
    uint64_t lowered_p99_ns; /* … and p99 */

    /* Trial and pause. */
    uint64_t stage_ns;  /* begin of the stage */
    uint32_t from;      /* cores in place before the trial */
    bool tried;         /* the trial followed upon a core that was given back */
    bool bottom;        /* given up: fewer cores are too few */
    uint64_t base_ns;   /* p99 before the trial, 0: not near; or given up: at the trial's end */
    uint64_t base_rate; /* given up: requests that ended then in 1000 s */
    uint64_t pause_ns;  /* length of the last one; 0: long ago */
};

/* The caller's view. Any values are allowed, and answered in bounds. */
struct promise_look {
    uint64_t now_ns;         /* monotonic */
    uint64_t promise_ns;     /* 0: none */
    uint64_t p99_ns;         /* of requests that ended in the window; 0: none did */
    uint64_t window_ns;      /* how long the window is, 1 to 2 s; 0: a second */
    uint32_t ended;          /* requests that ended in the window */
    uint32_t in_flight;      /* requests that began and did not end, now; … */
    uint32_t most_in_flight; /* … most since the last look */
    uint32_t has;            /* cores in place now */
    uint32_t least, most;    /* cores that it may have; where most < least, most holds */
    uint32_t own;            /* of most: the rest it shares with jobs that yield to it; 0: all */
};

/*
 * Cores that the job needs: between least and most. While more are in place than it needs (since
 * nobody else uses them), the answer falls no further: p99 tells nothing of fewer cores.
 */
uint32_t promise_need(struct promise_state *s, const struct promise_look *look);

/*
 * Whether a trial with all @most cores has shown by requests of its own that they are too few. If
 * more can be had then, promise_press() says so: the trial begins anew with these.
 */
bool promise_is_short(const struct promise_state *s, const struct promise_look *look);
void promise_press(struct promise_state *s, uint64_t now_ns);

/*
 * Whether the promise is given up for the time being. The answer is then a minimum like others, and
 * should be no maximum: the job shares with others as if it had no promise.
 */
static inline bool promise_is_given_up(enum promise_why why)
{
    return why == PROMISE_NO_GAIN || why == PROMISE_IMPOSSIBLE;
}

const char *promise_why_text(enum promise_why why); /* "p99 near the promise" */
