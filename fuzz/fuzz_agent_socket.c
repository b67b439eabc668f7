/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several clients on agent.sock send one message after the other. The input is a program in
 * letters: a step is a capital letter and its operands, each a character ('0' is 0); other
 * characters are skipped. After each step the daemon's own loop runs until it sleeps. Then:
 *
 *   - no core has two exclusive owners, and no other job is on it that has a core left elsewhere;
 *   - processes run where their jobs say, others everywhere: nobody else changes an affinity here;
 *   - nobody but its user, an administrator or root has changed a job;
 *   - jobs, processes and connections are as many as they should be, and point to each other;
 *   - what is sent to a client is a message for its kind of client.
 *
 * At the end everybody leaves, and nothing may be left: neither jobs, connections, descriptors nor
 * notes of the guardian; libFuzzer looks for memory.
 *
 * Sockets are real; processes.h simulates the kernel's answers about processes, and its clock.
 */
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/link/agent_socket.h"
#include "daemon/peers/agent.h"
#include "daemon/peers/control.h"
#include "daemon/plan/users.h"
#include "processes.h"
#include "proto/proto.h"

#include <poll.h>
#include <sys/un.h>

#define CLIENTS   6
#define STEPS_MAX 160
#define BATCH_MAX 16 /* messages in one turn of the loop: fewer than one client may send */
#define TURN_NS   101000000ull /* a turn's time: longer than the daemon looks back at floods */
#define FD_MAX    256

/* ---- clients ---- */

static struct client {
    int fd; /* -1: not connected */
    unsigned process;
    bool deaf;                  /* reads nothing */
    bool agent, controller;     /* by its first message */
    uint64_t epoch, generation; /* of the last target that the daemon sent it */
} clients[CLIENTS];

static unsigned n_spoke;
static uid_t
    spoke[BATCH_MAX + CLIENTS]; /* users whose messages the next turn of the loop may read */

static void speaks(uid_t uid)
{
    for (unsigned i = 0; i < n_spoke; i++)
        if (spoke[i] == uid)
            return;
    if (n_spoke < sizeof(spoke) / sizeof(spoke[0]))
        spoke[n_spoke++] = uid;
}

static void hang_up(struct client *c)
{
    if (c->fd < 0)
        return;
    speaks(processes[c->process].uid);
    close(c->fd);
    c->fd = -1;
}

static void connect_client(unsigned k, unsigned process)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct client *c = &clients[k];

    hang_up(c);
    if (!processes[process].alive || n_callers == CALLERS_MAX)
        return;
    *c = (struct client){.process = process};
    c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" RUNDIR_AGENT_SOCKET, directory);
    CHECK(c->fd >= 0 && connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    caller_of_next[n_callers++] = process;
    speaks(processes[c->process].uid);
}

static void hear(struct client *c)
{
    union proto_message m;
    struct error err;
    ssize_t len;

    while (c->fd >= 0 && !c->deaf && (len = recv(c->fd, &m, sizeof(m), 0)) > 0) {
        CHECK(proto_check(&m, (size_t)len, &err) == 0);
        CHECK(m.h.type == PROTO_RESULT || c->agent == (m.h.type != PROTO_JOB));
        CHECK(m.h.type != PROTO_RESULT || memchr(m.result.text, 0, sizeof(m.result.text)));
        if (m.h.type == PROTO_TARGET) {
            c->epoch = m.target.epoch;
            c->generation = m.target.generation;
        }
    }
}

/* Returns true when the daemon has closed the client's connection. */
static bool is_hung_up(const struct client *c)
{
    struct pollfd poll_fd = {.fd = c->fd, .events = POLLIN | POLLRDHUP};

    return c->fd < 0 || (poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLHUP | POLLRDHUP)));
}

/* ---- the state that other users may not change ---- */

struct said { /* an agent's report about its process */
    pid_t pid;
    uint64_t start, tasks, progress_done;
    struct threads local;
    unsigned n_backends;
    uint32_t target, active, signal, hello_max, later;
    uint64_t acked_generation;
    const struct connection *connection;
};

static struct known { /* a job's state before the step */
    uint32_t number;
    uid_t uid;
    char name[PROTO_NAME_MAX], token[PROTO_TOKEN_MAX];
    struct attributes asked;
    struct threads pinned;
    enum proto_source pinned_by;
    bool granted, kept, held, frozen;
    unsigned n;
    struct cpuset cores; /* other jobs influence these, too */
    struct said process[PROCESSES];
} before[PROCESSES + 1];

static unsigned n_before;

static void describe(const struct job *j, struct known *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->number = j->number;
    ret->uid = j->uid;
    memcpy(ret->name, j->name, sizeof(ret->name));
    memcpy(ret->token, j->token, sizeof(ret->token));
    ret->asked = j->asked.attributes;
    ret->pinned = j->asked.pinned;
    ret->pinned_by = j->asked.pinned_by;
    ret->granted = j->asked.granted;
    ret->kept = j->asked.kept;
    ret->held = j->admission.held;
    ret->frozen = j->observed.frozen;
    for (const struct process *p = j->processes; p; p = p->next) {
        struct said *s = &ret->process[ret->n++];

        CHECK(ret->n <= PROCESSES);
        s->pid = p->pid;
        s->start = p->start;
        s->tasks = p->tasks;
        s->progress_done = p->progress_done;
        s->local = p->local;
        s->n_backends = p->n_backends;
        s->target = p->target;
        s->active = p->active;
        s->signal = p->signal;
        s->hello_max = p->hello_max;
        s->later = p->later;
        s->acked_generation = p->acked_generation;
        s->connection = p->connection;
    }
}

static void remember(void)
{
    n_before = 0;
    for (const struct job *j = the_daemon.jobs->first; j; j = j->next) {
        CHECK(n_before < sizeof(before) / sizeof(before[0]));
        describe(j, &before[n_before]);
        before[n_before++].cores = j->placed.cores;
    }
}

/* Returns true when the user, root or an administrator has sent a message since. */
static bool may_have_changed(uid_t uid)
{
    for (unsigned i = 0; i < n_spoke; i++)
        if (spoke[i] == uid || spoke[i] == 0 || spoke[i] == ADMIN)
            return true;
    return false;
}

static void check_unchanged(void)
{
    for (unsigned i = 0; i < n_before; i++) {
        const struct job *j = job_of_number(&the_daemon, before[i].number);
        struct known now;

        if (may_have_changed(before[i].uid))
            continue;
        CHECK(j); /* nor may another user end the job */
        describe(j, &now);
        now.cores = before[i].cores;
        CHECK(memcmp(&now, &before[i], sizeof(now)) == 0);
    }
}

/* ---- the checks after each step ---- */

static bool overlap(const struct cpuset *a, const struct cpuset *b)
{
    struct cpuset both;

    cpuset_and(&both, a, b);
    return cpuset_count(&both) > 0;
}

/*
 * As decision.c has it. Others do not keep away from a job that waits, or that counts for nothing,
 * since no runtime has reported within its time of grace: its share is 0. Nor from what a job has
 * beyond its user's share.
 */
static bool is_exclusive(const struct job *j)
{
    return j->asked.attributes.placement == PLACEMENT_EXCLUSIVE && j->wanted.share > 0 &&
           !j->wanted.overlaps && !users_over(j);
}

/* Some core is no exclusive job's: those that are not exclusive have no business on others. */
static bool is_core_left(void)
{
    struct cpuset left = the_daemon.cpus;

    for (const struct job *j = the_daemon.jobs->first; j; j = j->next)
        for (unsigned w = 0; is_exclusive(j) && w < CPUSET_WORDS; w++)
            left.word[w] &= ~j->wanted.cores.word[w];
    return cpuset_count(&left) > 0;
}

/* Returns the cores that the job did not have before the step. */
static struct cpuset gained(const struct job *j)
{
    struct cpuset set = j->placed.cores;

    for (unsigned i = 0; i < n_before; i++)
        for (unsigned w = 0; before[i].number == j->number && w < CPUSET_WORDS; w++)
            set.word[w] &= ~before[i].cores.word[w];
    return set;
}

/*
 * Two that shared cores while one's user was over, or while one counted for nothing, may both be
 * exclusive again before the one has parked its threads: such a core was given to nobody.
 */
static void check_owners(const struct job *j)
{
    struct cpuset new = gained(j), theirs;

    for (const struct job *o = the_daemon.jobs->first; o && is_exclusive(j); o = o->next) {
        if (o == j || (!is_exclusive(o) && !is_core_left()))
            continue;
        theirs = gained(o);
        CHECK(!overlap(&j->wanted.cores, &o->wanted.cores));
        CHECK(!overlap(&new, &o->placed.cores) && !overlap(&theirs, &j->placed.cores));
    }
}

/* Checks the affinity of a process of no job, and of one that its job has not fenced. */
static void check_unfenced(void)
{
    for (unsigned i = 0; i < PROCESSES; i++) {
        const struct world_process *real = &processes[i];
        bool fenced = false;

        for (const struct job *j = the_daemon.jobs->first; j; j = j->next)
            for (const struct process *p = j->processes; p; p = p->next)
                fenced |= p->fenced && p->pid == real->pid && p->start == real->start;
        CHECK(!real->alive || fenced || cpuset_equal(&real->affinity, &the_daemon.cpus));
    }
}

static void check_cores(void)
{
    check_unfenced();
    for (const struct job *j = the_daemon.jobs->first; j; j = j->next) {
        check_owners(j);
        for (const struct process *p = j->processes; p; p = p->next) {
            const struct world_process *real = process_of(p->pid);

            if (real && real->start == p->start && p->fenced)
                CHECK(cpuset_equal(&real->affinity, &j->placed.cores));
            CHECK(cpuset_equal(&p->original, &the_daemon.cpus));
        }
    }
}

static void check_process(const struct job *j, const struct process *p)
{
    const struct connection *c = p->connection;

    CHECK(p->job == j && p->n_backends <= PROTO_BACKENDS_MAX);
    CHECK(p->sent.intra <= PROTO_THREADS_MAX && p->acked_generation <= p->sent_generation);
    if (c) /* no client may speak for another user's process */
        CHECK(c->process == p && c->who.pid == p->pid && c->who.uid == j->uid &&
              c->start == p->start);
    for (const struct job *o = j->next; o; o = o->next)
        for (const struct process *q = o->processes; q; q = q->next)
            CHECK(q->pid != p->pid || q->start != p->start);
}

static void check_counts(void)
{
    const struct daemon *d = &the_daemon;
    unsigned n_jobs = 0, n_connected = 0;

    for (const struct job *j = d->jobs->first; j; j = j->next, n_jobs++) {
        unsigned n = 0;

        for (const struct process *p = j->processes; p; p = p->next, n++)
            check_process(j, p);
        CHECK(n > 0 && n == j->n_processes);
        CHECK(strcmp(j->name, j->id) == 0 || job_name_valid(j->name));
        CHECK(j->asked.pinned.intra <= PROTO_THREADS_MAX || n > 1);
    }
    CHECK(n_jobs == d->jobs->n);
    for (unsigned k = 0; k < CLIENTS; k++)
        n_connected += !is_hung_up(&clients[k]);
    CHECK(n_connected == agent_socket_count(d->agent_socket));
}

/* Runs the loop until it would sleep, and once more: a closed socket may still hold messages. */
static void run_loop(void)
{
    for (unsigned idle = 0, turns = 0; idle < 2; turns++) {
        CHECK(turns < 10000); /* else the loop keeps itself awake */
        idle = sd_event_run(the_daemon.event, 0) > 0 ? 0 : idle + 1;
        for (unsigned k = 0; k < CLIENTS; k++)
            hear(&clients[k]);
    }
}

static void turn(void)
{
    run_loop();
    check_unchanged();
    check_counts();
    check_cores();
    remember();
    n_spoke = 0;
    now_ns += TURN_NS;
}

/* ---- steps ---- */

static const char *at, *end;
static unsigned n_batch; /* messages that wait for the loop */
static int next_type;    /* false type for the next message; -1: the right one */
static unsigned cut;     /* bytes by which the next message is too short */

static unsigned operand(void)
{
    while (at < end && (*at == ' ' || *at == '\n'))
        at++;
    return at < end && *at >= '0' ? (unsigned)(*at++ - '0') & 63 : 0;
}

/* Returns the job at a position of the table, or NULL. */
static const struct job *job_at(unsigned i)
{
    const struct job *j = the_daemon.jobs->first;

    while (j && i--)
        j = j->next;
    return j;
}

static void send_message(struct client *c, union proto_message *m)
{
    size_t size = m->h.size;

    if (next_type >= 0)
        m->h.type = (uint16_t)next_type;
    if (cut)
        size = size > cut ? size - cut : size / 2;
    next_type = -1;
    cut = 0;
    if (c->fd < 0)
        return;
    c->agent |= m->h.type == PROTO_HELLO && !c->controller;
    c->controller |= m->h.type == PROTO_CONTROL && !c->agent;
    n_batch++;
    speaks(processes[c->process].uid);
    send(c->fd, m, size, MSG_NOSIGNAL);
}

static void say_hello(struct client *c)
{
    const struct job *j = job_at(operand());
    unsigned what = operand();
    union proto_message m;

    proto_init(&m, PROTO_HELLO, 0);
    m.hello.pid = (uint32_t)processes[c->process].pid;
    m.hello.max = operand();
    if (j && (what & 1))
        memcpy(m.hello.token, j->token, sizeof(m.hello.token));
    if (j && (what & 2))
        memcpy(m.hello.job_id, j->id, sizeof(m.hello.job_id));
    if (what & 4)
        snprintf(m.hello.job_name, sizeof(m.hello.job_name), "job-%u", what >> 3);
    send_message(c, &m);
}

static void say_backend(struct client *c)
{
    union proto_message m;

    proto_init(&m, PROTO_BACKEND, 0);
    m.backend.index = operand();
    m.backend.malleable = operand();
    m.backend.max_intra = operand();
    m.backend.max_inter = m.backend.max_intra;
    strcpy(m.backend.name, "tensorflow");
    send_message(c, &m);
}

static void acknowledge(struct client *c)
{
    union proto_message m;

    proto_init(&m, PROTO_ACK, 0);
    m.ack.status = operand();
    m.ack.epoch = c->epoch;
    m.ack.generation = c->generation - operand();
    m.ack.active = operand();
    send_message(c, &m);
}

static void say_heartbeat(struct client *c)
{
    union proto_message m;

    proto_init(&m, PROTO_HEARTBEAT, 0);
    m.heartbeat.epoch = c->epoch;
    m.heartbeat.generation = c->generation;
    m.heartbeat.source = operand();
    m.heartbeat.target = operand();
    m.heartbeat.active = m.heartbeat.target;
    m.heartbeat.tasks = now_ns / NS_PER_MS;
    m.heartbeat.progress_done = operand();
    m.heartbeat.allowed_mcpu = 1000 * operand();
    send_message(c, &m);
}

static void say_requests(struct client *c)
{
    union proto_message m;

    proto_init(&m, PROTO_LATENCY, 0);
    m.latency.now_ns = now_ns;
    m.latency.ended = operand();
    m.latency.most_in_flight = operand();
    m.latency.begun = m.latency.ended + operand();
    m.latency.bucket[operand() % LATENCY_BUCKETS] = operand();
    send_message(c, &m);
}

static void set_local(struct client *c)
{
    union proto_message m;

    proto_init(&m, PROTO_LOCAL, 0);
    m.local.source = operand();
    m.local.intra = operand();
    m.local.inter = operand();
    send_message(c, &m);
}

static void give_order(struct client *c)
{
    const struct job *j;
    union proto_message m;

    proto_init(&m, PROTO_CONTROL, operand());
    m.control.verb = operand();
    j = job_at(operand());
    m.control.intra = operand();
    m.control.flags = operand();
    m.control.sent_ns = now_ns;
    if (j)
        snprintf(m.control.job, sizeof(m.control.job), "%s", j->id);
    send_message(c, &m);
}

/* Begins a job as POST /jobs does for `tide run`. */
static void run_job(void)
{
    unsigned i = operand() % PROCESSES, what = operand();
    struct job_request req = job_request_usual(&the_daemon);
    struct daemon *d = &the_daemon;
    struct error err = {0};
    struct process *p;
    struct job *j;

    req.asked.placement = what & 1 ? PLACEMENT_EXCLUSIVE : PLACEMENT_SHARED;
    req.submitted = what & 2;
    req.asked.slo_us = what & 4 ? 50000 : 0;
    req.asked.min = operand() % (CPUS + 1);
    if (!processes[i].alive || job_new(d, processes[i].uid, &req, &j, &err) < 0)
        return;
    speaks(processes[i].uid);
    if (process_join(j, processes[i].pid, 0, &p) < 0)
        job_free(j);
    daemon_changed(d);
}

/* A process ends, executes a setuid program, or a new process gets its pid. */
static void change_process(char step)
{
    static const uid_t users[] = {1000, 1001, ADMIN, 0};
    unsigned i = operand() % PROCESSES;
    struct world_process *p = &processes[i];

    if (p->alive && step != 'S')
        end_process(i);
    if (step == 'N')
        begin_process(i, users[operand() % 4]);
    if (step != 'S')
        speaks(0); /* the job that had the process may end by this */
    if (step != 'S' || !p->alive)
        return;
    p->effective = users[operand() % 4];
    show(p);
}

/* Advances the clock, then checks for drift and lost events as daemon.c does each second. */
static void let_time_pass(void)
{
    static const unsigned ms[] = {10, 100, 1000, 2000, 5000, 11000, 35000, 65000};
    struct daemon *d = &the_daemon;

    now_ns += ms[operand() % 8] * NS_PER_MS;
    for (struct job *j = d->jobs->first; j; j = j->next)
        j->confine->look_at_drift(j);
    agent_socket_tick(d->agent_socket);
    daemon_changed(d);
}

/* Returns false when the loop must not run yet. */
static bool take_step(char step)
{
    static void (*const messages[])(struct client * c) = {
        ['H'] = say_hello, ['B'] = say_backend, ['A'] = acknowledge, ['T'] = say_heartbeat,
        ['L'] = set_local, ['V'] = give_order,  ['Q'] = say_requests};
    unsigned k = strchr("HBATLVQCDR", step) ? operand() % CLIENTS : 0;

    switch (step) {
    case 'C':
        connect_client(k, operand() % PROCESSES);
        break;
    case 'D':
        hang_up(&clients[k]);
        break;
    case 'R': /* the daemon reads on from a client that takes its answers again */
        clients[k].deaf = !clients[k].deaf;
        if (clients[k].fd >= 0)
            speaks(processes[clients[k].process].uid);
        break;
    case 'J':
        run_job();
        break;
    case 'E':
    case 'N':
    case 'S':
        change_process(step);
        break;
    case 'W':
        let_time_pass();
        break;
    case 'P':
        plan_make(&the_daemon);
        break;
    case 'X':
        next_type = (int)operand() % (PROTO_TYPE_MAX + 1);
        return false;
    case 'Y':
        cut = 1 + operand();
        return false;
    case '+': /* the next step comes in the same turn */
        return false;
    default:
        messages[(unsigned)step](&clients[k]);
        break;
    }
    return n_batch >= BATCH_MAX || at == end || *at != '+';
}

static void run_program(void)
{
    for (unsigned steps = 0; at < end && steps < STEPS_MAX;) {
        char step = *at++;

        if (!step || !strchr("CDRHBATLVQJENSWPXY+", step))
            continue;
        steps++;
        if (!take_step(step))
            continue;
        turn();
        n_batch = 0;
    }
}

/* ---- beginning and end ---- */

static void store(struct daemon *d)
{
    plan_finish(d);
    chronicle_look(d);
    store_save(d);
}

static void begin(void)
{
    static const struct wake_handlers handlers = {plan_make, store, store_save};
    static const struct job_observer *const observers[] = {
        &chronicle_observer, &store_observer, &agent_socket_observer,
        &actuate_observer,   &wait_observer,  NULL};

    make_directory();
    make_daemon(0, &handlers, observers);
    the_daemon.admin_gid = ADMINS;
    CHECK(agent_socket_new(&the_daemon, &agent_role, &control_role, &the_daemon.agent_socket,
                           NULL) == 0);
    for (unsigned k = 0; k < CLIENTS; k++)
        clients[k].fd = -1;
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < FD_MAX; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* In the table as the next daemon finds it: notes are written from its beginning. */
static bool has_notes(void)
{
    int fd = openat(the_daemon.dir_fd, GUARDIAN_TABLE, O_RDONLY | O_CLOEXEC);
    uint32_t used = 0; /* what an entry begins with */
    struct stat st;
    off_t entry;

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    entry = (st.st_size - GUARDIAN_KNOBS_BYTES) / GUARDIAN_ENTRIES_MAX;
    for (off_t i = 0; i < PROCESSES && !used; i++)
        CHECK(pread(fd, &used, sizeof(used), i * entry) == sizeof(used));
    close(fd);
    return used;
}

static void everybody_leaves(void)
{
    for (unsigned k = 0; k < CLIENTS; k++)
        hang_up(&clients[k]);
    for (unsigned i = 0; i < PROCESSES; i++)
        if (processes[i].alive)
            end_process(i);
    speaks(0);
    turn();
    now_ns += 70 * NS_PER_S; /* every wait has ended */
    turn();
    CHECK(the_daemon.jobs->n == 0 && agent_socket_count(the_daemon.agent_socket) == 0);
    CHECK(!has_notes());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uid_t users[PROCESSES] = {1000, 1000, 1001, 1001, ADMIN, 0};
    unsigned descriptors;

    if (!the_daemon.event)
        begin();
    descriptors = open_descriptors();
    for (unsigned i = 0; i < PROCESSES; i++) {
        processes[i].pid = (pid_t)(PID_BASE + 1 + i);
        processes[i].parent = i == 1 || i == 3 ? PID_BASE + 1 : 1;
        begin_process(i, users[i]);
    }
    the_daemon.jobs->last_number = 0;
    at = (const char *)data;
    end = at + size;
    next_type = -1;
    cut = n_batch = n_spoke = n_before = 0;
    run_program();
    everybody_leaves();
    CHECK(open_descriptors() == descriptors);
    return 0;
}
