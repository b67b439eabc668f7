/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/view/record.h"

#include <stddef.h>

static const struct move {
    enum record_event event;
    enum record_state from, to;
} moves[] = {
    {ON_RUN, LIFE_WAITS, LIFE_RUNS},
    {ON_RUN, LIFE_DRAINS, LIFE_RUNS},
    {ON_DRAIN, LIFE_WAITS, LIFE_DRAINS},
    {ON_DRAIN, LIFE_RUNS, LIFE_DRAINS},
    {ON_REST, LIFE_RUNS, LIFE_WAITS},
    {ON_REST, LIFE_DRAINS, LIFE_WAITS},

    {ON_LACK_WORKERS, WORKERS_ENOUGH, WORKERS_DUE},
    {ON_HAVE_WORKERS, WORKERS_DUE, WORKERS_ENOUGH},
    {ON_CHANGE, WORKERS_DUE, WORKERS_ENOUGH},

    {ON_LACK_SERVERS, SERVERS_ENOUGH, SERVERS_DUE},
    {ON_DROP_SERVERS, SERVERS_DUE, SERVERS_ENOUGH},
    {ON_ORDER_SERVERS, SERVERS_DUE, SERVERS_ORDERED},
    {ON_HAVE_SERVERS, SERVERS_ORDERED, SERVERS_ENOUGH},

    {ON_NEW_SIZE, SAMPLE_FIRST, SAMPLE_COLD},
    {ON_NEW_SIZE, SAMPLE_WARM, SAMPLE_COLD},
    {ON_NEW_SIZE, SAMPLE_OPEN, SAMPLE_COLD},
    {ON_BEGIN_SAMPLE, SAMPLE_COLD, SAMPLE_FIRST},
    {ON_BEGIN_SAMPLE, SAMPLE_FIRST, SAMPLE_FIRST},
    {ON_BEGIN_SAMPLE, SAMPLE_WARM, SAMPLE_OPEN},
    {ON_BEGIN_SAMPLE, SAMPLE_OPEN, SAMPLE_OPEN},
    {ON_END_SAMPLE, SAMPLE_FIRST, SAMPLE_OPEN},
    {ON_END_SAMPLE, SAMPLE_OPEN, SAMPLE_OPEN},
    {ON_VOID_SAMPLE, SAMPLE_FIRST, SAMPLE_COLD},
    {ON_VOID_SAMPLE, SAMPLE_OPEN, SAMPLE_WARM},
    {ON_CHANGE, SAMPLE_FIRST, SAMPLE_COLD},
    {ON_CHANGE, SAMPLE_OPEN, SAMPLE_WARM},

    {ON_AWAIT_THREADS, THREADS_FOLLOW, THREADS_AWAITED},
    {ON_THREADS_PARKED, THREADS_AWAITED, THREADS_FOLLOW},
};

void record_init(struct record *record)
{
    *record = (struct record){.stage = {{.state = LIFE_WAITS},
                                        {.state = WORKERS_ENOUGH},
                                        {.state = SERVERS_ENOUGH},
                                        {.state = SAMPLE_COLD},
                                        {.state = THREADS_FOLLOW}}};
}

/* A state belongs to one region, so its name alone says which stage moves. */
static void move(struct stage *stage, enum record_event event, int64_t at_ns)
{
    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
        if (moves[i].event == event && moves[i].from == stage->state) {
            *stage = (struct stage){.state = moves[i].to, .since_ns = at_ns};
            return;
        }
}

void record_move(struct record *record, enum record_event event, int64_t at_ns)
{
    for (int region = 0; region < RECORD_REGIONS; region++)
        move(&record->stage[region], event, at_ns);
}

int64_t record_since(const struct record *record, enum record_state state)
{
    for (int region = 0; region < RECORD_REGIONS; region++)
        if (record->stage[region].state == state)
            return record->stage[region].since_ns;
    return 0;
}
