/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server in small for tests of promises: requests that come by chance, share the cores in place,
 * and have a serial and a parallel part. The stage looks at it as the daemon would.
 */
#pragma once

#include "policy/core/promise.h"

#include "test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

#define THREADS 16    /* requests that it serves at a time; more wait in line */
#define LINE    4096  /* a power of two; requests beyond are lost */
#define LONGEST 16384 /* ms; longer ones count as this */
#define LAG_MS  20    /* from the answer to cores in place */

/* Parts of a run. Times in ms, work in microseconds of a core. */
struct load {
    uint32_t promise_ms, serial_us, parallel_us, width; /* the parallel part runs on up to width */
    uint32_t low, high;                                 /* requests a second, … */
    uint32_t period_ms;                                 /* … by turns; 0: high alone */
    uint32_t waits_ms; /* each waits so long for others, without a core */
    uint32_t least, most;
};

struct request {
    uint32_t begun_ms, serial_us, parallel_us;
};

struct server {
    struct load load;
    struct request line[LINE];
    uint32_t head, tail; /* in flight are those between, of which the first THREADS run */
    struct request runs[THREADS];
    uint32_t running;
    uint32_t cores, asked, asked_ms; /* in place; the last answer and when it came */
    uint32_t told;                   /* in flight, to the daemon */
    uint32_t most_in_flight, now_ms;
    uint32_t ended[2][LONGEST]; /* by duration: the present second, and the one before */
    uint32_t count[2], top[2];  /* how many, and the longest */
    struct promise_state stage;
    bool fixed;              /* without the stage */
    uint32_t taken_permille; /* part of its cores that strangers take */
    /* Results, of each second. */
    uint32_t seconds;
    bool kept[1024];
    uint8_t held[1024]; /* most cores in place */
    uint32_t changes;   /* of the answer, … */
    uint32_t raises;    /* … those upwards */
    uint64_t core_ms, given_up_ms;
};

static uint32_t in_flight(const struct server *m)
{
    return m->running + m->tail - m->head;
}

/* The 99th percentile, rounded up as by the agent's histogram of eight buckets an octave. */
static uint64_t p99_ns(const struct server *m, uint32_t seconds, bool rounded)
{
    uint64_t count = m->count[0] + (seconds > 1 ? m->count[1] : 0), above = 0, ms, step = 1;

    if (count == 0)
        return 0;
    ms = 1 + (m->top[0] > m->top[1] ? m->top[0] : m->top[1]);
    do {
        ms--;
        above += m->ended[0][ms] + (seconds > 1 ? m->ended[1][ms] : 0);
    } while (above * 100 <= count && ms > 0);
    if (!rounded)
        return ms * MS;
    while (step * 16 <= ms)
        step *= 2;
    return (ms + step - 1) / step * step * MS;
}

static void end(struct server *m, uint32_t i)
{
    uint32_t ms = m->now_ms - m->runs[i].begun_ms;

    ms = ms < LONGEST ? ms : LONGEST - 1;
    m->ended[0][ms]++;
    m->count[0]++;
    m->top[0] = ms > m->top[0] ? ms : m->top[0];
    m->runs[i] = m->runs[--m->running];
}

static uint32_t less(uint32_t *left, uint32_t by)
{
    uint32_t done = *left < by ? *left : by;

    *left -= done;
    return done;
}

/* A millisecond: cores are shared among those that run, the rest among their parallel parts. */
static void work(struct server *m)
{
    uint32_t room = m->cores * (1000 - m->taken_permille), each, wide = 0;

    while (m->running < THREADS && m->head != m->tail)
        m->runs[m->running++] = m->line[m->head++ % LINE];
    if (m->running == 0)
        return;
    each = room / m->running < 1000 ? room / m->running : 1000;
    for (uint32_t i = 0; i < m->running; i++) {
        uint32_t done = less(&m->runs[i].serial_us, each);

        room -= done + less(&m->runs[i].parallel_us, each - done);
        wide += m->runs[i].serial_us == 0 && m->runs[i].parallel_us > 0;
    }
    for (uint32_t i = m->running; i-- > 0;) {
        struct request *r = &m->runs[i];

        if (wide && r->serial_us == 0 && r->parallel_us) {
            uint32_t more = room / wide, most = (m->load.width - 1) * 1000;

            less(&r->parallel_us, more < most ? more : most);
        }
        if (r->serial_us == 0 && r->parallel_us == 0 && m->now_ms - r->begun_ms >= m->load.waits_ms)
            end(m, i);
    }
}

static void arrive(struct server *m)
{
    const struct load *l = &m->load;
    bool low = l->period_ms && m->now_ms % l->period_ms >= l->period_ms / 2;

    for (uint64_t chance = random_next(); chance; chance >>= 16) { /* four times in a ms */
        uint32_t half;

        if ((chance & 0xffff) * 4000 >= (uint64_t)(low ? l->low : l->high) << 16)
            continue;
        half = 500 + random_below(1001); /* permille of the mean */
        if (m->tail - m->head < LINE)
            m->line[m->tail++ % LINE] =
                (struct request){.begun_ms = m->now_ms,
                                 .serial_us = l->serial_us * half / 1000,
                                 .parallel_us = l->parallel_us * half / 1000};
    }
}

static void look_at(struct server *m)
{
    struct promise_look look = {
        .now_ns = SECOND + m->now_ms * MS,
        .promise_ns = m->load.promise_ms * MS,
        .p99_ns = p99_ns(m, 2, true),
        .window_ns = (m->seconds ? SECOND : 0) + ((m->now_ms - 1) % 1000 + 1) * MS,
        .ended = m->count[0] + m->count[1],
        .in_flight = in_flight(m),
        .most_in_flight = m->most_in_flight,
        .has = m->cores,
        .least = m->load.least,
        .most = m->load.most,
    };
    uint32_t need = promise_need(&m->stage, &look);

    assert_in_range(need, m->load.least, m->load.most);
    m->told = m->most_in_flight = in_flight(m);
    if (need != m->asked) {
        m->raises += need > m->asked;
        m->asked = need;
        m->asked_ms = m->now_ms;
        m->changes++;
    }
}

static void end_second(struct server *m)
{
    uint32_t s = m->seconds++ % 1024, top = m->top[0] > m->top[1] ? m->top[0] : m->top[1];

    m->kept[s] = p99_ns(m, 1, false) <= m->load.promise_ms * MS;
    memcpy(m->ended[1], m->ended[0], (1 + (size_t)top) * sizeof(m->ended[0][0]));
    memset(m->ended[0], 0, (1 + (size_t)m->top[0]) * sizeof(m->ended[0][0]));
    m->count[1] = m->count[0];
    m->top[1] = m->top[0];
    m->count[0] = m->top[0] = 0;
    m->held[(s + 1) % 1024] = 0;
}

/* A millisecond with @given cores, which are in place after a while. */
static void tick(struct server *m, uint32_t given)
{
    uint32_t s = m->seconds % 1024;

    if (m->cores != given && m->now_ms >= m->asked_ms + LAG_MS)
        m->cores = given;
    if (m->cores > m->held[s])
        m->held[s] = (uint8_t)m->cores;
    arrive(m);
    work(m);
    m->now_ms++;
    if (in_flight(m) > m->most_in_flight)
        m->most_in_flight = in_flight(m);
    if (!m->fixed && (m->now_ms % 100 == 0 || in_flight(m) >= 2 * m->told + 2))
        look_at(m);
    m->core_ms += m->cores;
    m->given_up_ms += promise_is_given_up(m->stage.why);
    if (m->now_ms % 1000 == 0)
        end_second(m);
}

static void run(struct server *m, uint32_t seconds)
{
    for (uint32_t end_ms = m->now_ms + seconds * 1000; m->now_ms < end_ms;)
        tick(m, m->asked);
}

static void begin(struct server *m, const struct load *load, uint32_t cores, bool fixed)
{
    memset(m, 0, sizeof(*m));
    m->load = *load;
    m->cores = m->asked = cores;
    m->fixed = fixed;
    random_state = 7;
}
