/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/link/target.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/link/agent_socket.h"

#include <errno.h>

void target_send(struct process *p)
{
    struct daemon *d = p->job->daemon;
    union proto_message m;
    int r;

    proto_init(&m, PROTO_TARGET, (uint32_t)d->generation);
    m.target.epoch = d->epoch;
    m.target.generation = d->generation;
    m.target.intra = p->want.intra;
    m.target.inter = p->want.inter;
    m.target.sent_ns = clock_now_ns();
    r = connection_send(p->connection, &m);
    p->unsent = r == -EAGAIN;
    if (p->sent_generation == 0)
        p->held = process_max(p);
    if (p->want.intra < p->held && p->shrink_since_ns == 0)
        p->shrink_since_ns = m.target.sent_ns;
    if (p->want.intra > p->held)
        p->held = p->want.intra;
    p->sent = p->want;
    p->waits = false;
    p->sent_ns = m.target.sent_ns;
    p->sent_generation = d->generation;
    p->job->placed.commanded = true;
}
