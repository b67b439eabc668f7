/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets, acknowledgements, leases and epochs between two jobs' agents, a daemon, its guardian and
 * the daemon after it, with SIGKILL of daemon and guardian at any step. For SPIN.
 *
 * Mirrors these functions, as they were when somebody last compared the model with them
 * (scripts/check-model.py):
 *   src/daemon/plan/settle.c settle() fc9cb46a832b
 *   src/daemon/plan/settle.c lower_targets() 1eb44539576c
 *   src/daemon/plan/settle.c move_cores() 7114fe691786
 *   src/daemon/plan/settle.c raise_targets() 3b6727d64231
 *   src/daemon/peers/agent.c on_ack() aaf02fc5f07d
 *   src/daemon/confine/actuate.c fence_process() 71429862dfd5
 *   src/daemon/confine/guardian.c guardian_note() 8e78197791ba
 *   src/daemon/confine/guardian.c restore() e1e157fa3a0c
 *   src/daemon/confine/guardian.c restore_left() f9185d7c84ed
 *   src/daemon/confine/guardian.c guard() 8c45b251b6ba
 *   src/daemon/confine/guardian.c lock_guardian() e18e7e90c839
 *   src/daemon/confine/guardian.c guardian_new() a19ccb898b35
 *   src/agent/control/core.c core_set_daemon() 6756df4e2bed
 *   src/agent/control/core.c core_daemon_gone() 6a3fec549423
 *   src/agent/control/core.c core_daemon_lost() da0acc8c9bbb
 *   src/agent/control/control.c on_target() 8656adbd2228
 *   src/agent/control/control.c acknowledge_if_settled() 22599dfff705
 * An acknowledgement that only says "waiting for a safe point" is none: the order stays owed. Jobs
 * without cores of their own then share the old cores by weight, which this model has not.
 * The model leaves out time (grace and lease may end at any moment, or never), texts of messages,
 * control groups and containers.
 *
 * The machine has two cores (bits 1 and 2). Job 0 has both; job 1 comes, and each has one; job 1
 * leaves, and job 0 has both again. Job 1 has cores, but no agent. Two daemons do this, one after
 * the other. Each daemon and its guardian may be killed at any step, or end by themselves. An agent
 * may read messages of the first daemon after those of the second.
 *
 * Shown:
 *   FENCE   no core is in the sets of two jobs
 *   PARKED  job 1 has no core before job 0 has parked under this very order, or its grace is over
 *   OBEY    no agent obeys an order after one of a newer epoch, or of a newer generation in it
 *   LEASE   once no daemon is left, no order is in force and each job follows its own limit
 *   OWN     affinities are the processes' own again, unless the last guardian was killed as well
 * Mutations are the macros MUTATE_…; run.py says which property each must break.
 */
#define JOBS 2
#define ALL  3
#define NONE 0
#define OWN_THREADS(set) (((set) & 1) + (((set) >> 1) & 1))

byte affinity[JOBS] = ALL; /* the kernel's */
byte noted[JOBS];          /* guardian.table: 0, or the affinity to restore */
byte cores[JOBS];          /* as the running daemon believes */
bool killed[3];            /* by epoch; SIGKILL takes effect before the next step */
bool daemon_ended[3];
bool guardian_killed[3];
bool guardian_ended[3];
byte threads[JOBS] = 2;    /* active */
byte epoch[JOBS], generation[JOBS], order[JOBS]; /* the agent's newest; order 0: none in force */
bool owed[JOBS];           /* an acknowledgement */
bool expired;

chan target[6] = [2] of { byte, byte };    /* of epoch e to job j: generation, threads */
chan ack[3] = [4] of { byte, byte };       /* to epoch e: job, generation */

#define TO(e, j) target[2 * (e) + (j)]

inline note(j)
{
    if
    :: noted[j] == 0 -> noted[j] = affinity[j]
    :: else
    fi
}

inline fence(j, set)
{
#ifdef MUTATE_FENCE_BEFORE_NOTE
    affinity[j] = set;
    noted[j] = ALL;
#else
    note(j);
    affinity[j] = set;
#endif
    cores[j] = set;
    assert((cores[0] & cores[1]) == 0) /* FENCE */
}

inline restore(j)
{
    if
    :: noted[j] != 0 -> affinity[j] = noted[j]; noted[j] = 0
    :: else
    fi
}

inline await_ack(e, g)
{
    expired = false;
    do
    :: ack[e] ? from, acked ->
        if
#ifdef MUTATE_ANY_ACKNOWLEDGEMENT
        :: from == 0 -> break
#else
        :: from == 0 && acked == g -> break
#endif
        :: else
        fi
    :: expired = true; break
#ifdef MUTATE_NO_WAIT
    :: break
#endif
    od
}

proctype daemon(byte e)
{
    byte from, acked;

    {
        /* the lock of the guardian before; guardian_new(): what is left in the table */
        (e == 1 || (daemon_ended[1] && guardian_ended[1]));
        restore(0);
        restore(1);
        cores[0] = ALL;
        cores[1] = NONE;
        TO(e, 0) ! 1, 2;
        /* job 1 comes */
        TO(e, 0) ! 2, 1;
        await_ack(e, 2);
        /* PARKED */
        assert(expired || (epoch[0] == e && generation[0] == 2 && threads[0] == 1));
#ifdef MUTATE_WIDEN_FIRST
        fence(1, 2);
        fence(0, 1);
#else
        fence(0, 1);
        fence(1, 2);
#endif
        /* job 1 leaves */
        restore(1);
        cores[1] = NONE;
        fence(0, ALL);
        TO(e, 0) ! 3, 2
    } unless {
        killed[e]
    };
    daemon_ended[e] = true;
    run guardian(e)
}

/* The guardian notices the daemon's end by its pipe. guard() and restore() are the rest. */
proctype guardian(byte e)
{
    if
#ifdef MUTATE_GUARDIAN_SLEEPS
    :: skip
#else
    :: restore(0);
        if
        :: restore(1)
        :: guardian_killed[e] = true
        fi
#endif
    :: guardian_killed[e] = true
    fi;
    atomic {
#ifdef MUTATE_TABLE_IN_MEMORY
        noted[0] = 0;
        noted[1] = 0;
#endif
        guardian_ended[e] = true
    }
}

inline obey(e, g, k)
{
    if
#ifdef MUTATE_ANY_EPOCH
    :: true ->
#else
    :: e > epoch[j] || (e == epoch[j] && g >= generation[j]) ->
#endif
        assert(e > epoch[j] || (e == epoch[j] && g >= generation[j])); /* OBEY */
        epoch[j] = e;
        generation[j] = g;
        order[j] = k;
        owed[j] = true
    :: else
    fi
}

active proctype agent()
{
    byte j = 0;
    byte g, k;

end:
    do
    :: atomic { TO(1, j) ? g, k -> obey(1, g, k) }
    :: atomic { TO(2, j) ? g, k -> obey(2, g, k) }
    /* workers park, or wake up */
    :: atomic { order[j] != 0 && threads[j] != order[j] -> threads[j] = order[j] }
    /* acknowledge_if_settled() */
#ifdef MUTATE_ACKNOWLEDGE_EARLY
    :: atomic { owed[j] ->
#else
    :: atomic { owed[j] && order[j] == threads[j] ->
#endif
            owed[j] = false;
            if
            :: j == 0 && !daemon_ended[epoch[j]] -> ack[epoch[j]] ! j, generation[j]
            :: else
            fi
        }
    /* core_daemon_gone(), core_daemon_lost() */
#ifndef MUTATE_NO_LEASE
    :: atomic { order[j] != 0 && daemon_ended[epoch[j]] -> order[j] = 0; owed[j] = false }
#endif
    :: atomic { order[j] == 0 && threads[j] != OWN_THREADS(affinity[j]) ->
            threads[j] = OWN_THREADS(affinity[j])
        }
    od
}

active proctype killer()
{
end:
    do
    :: !killed[1] && !daemon_ended[1] -> killed[1] = true
    :: guardian_ended[1] && !killed[2] && !daemon_ended[2] -> killed[2] = true
    :: daemon_ended[2] -> break
    od
}

init {
    run daemon(1);
    run daemon(2);
    guardian_ended[2];
    timeout;
    assert(order[0] == 0); /* LEASE */
    assert(guardian_killed[2] || (affinity[0] == ALL && affinity[1] == ALL)); /* OWN */
    assert(threads[0] == OWN_THREADS(affinity[0])) /* LEASE */
}
