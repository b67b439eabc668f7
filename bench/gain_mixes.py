# SPDX-License-Identifier: Apache-2.0
"""The ten mixes of `make bench-gain`, how their jobs are drawn, and the oracle: the best fixed thread counts and order.

    mix and round -> draw() -> jobs -> gain_runs.py runs them
                               jobs + measured curves -> oracle() -> fixed counts and an order, run as well

Nothing here is random but by a seed, and a seed is the SHA-256 of the mix's name, the cores and the round: nobody
chooses it. Mixes, programs and this rule were committed before any default was chosen by them. Work is counted in
seconds of one core; STEPS_PER_S turns them into steps, and stays as it was measured once, so that a mix is the same
work on every machine.
"""

import dataclasses
import hashlib
import itertools
import math
import random

# Steps in a second on one otherwise idle core of the machine of docs/benchmarks.md, rounded. tf-*: bench/models.py, the
# others: bench/runtime_work.py.
STEPS_PER_S = {"tf-cnn": 10, "tf-mlp": 52, "tf-attention": 10, "tf-lstm": 34, "cnn": 25, "mlp": 450, "transformer": 60,
               "lstm": 90, "xgboost": 880, "forest": 25}
TENSORFLOW = ("tf-cnn", "tf-mlp", "tf-attention", "tf-lstm")
TORCH = ("cnn", "mlp", "transformer", "lstm")
OTHERS = ("xgboost", "forest")
ALL = TENSORFLOW + TORCH + OTHERS


@dataclasses.dataclass(frozen=True)
class Mix:
    """@jobs for each two cores. @load: seconds of work that arrive per second and core, 0: all come at once.
    @work: the range of a job's seconds on one core; of the @long share of jobs four times that."""
    what: str
    programs: tuple
    jobs: int
    load: float = 0
    work: tuple = (12, 24)
    long: float = 0
    stranger: bool = False     # a program that nobody schedules computes on one core meanwhile
    interactive: bool = False  # the last job comes first, computes for a second at a time and rests for two
    users: int = 1             # as root: the last job is another user's


MIXES = {
    "tensorflow": Mix("TensorFlow trainings, all at once", TENSORFLOW, 4),
    "torch": Mix("PyTorch trainings, all at once", TORCH, 4),
    "servers": Mix("every kind of program, all at once", ALL, 4),
    "long-short": Mix("few long and many short ones, all at once", ALL, 5, work=(6, 12), long=0.25),
    "backlog": Mix("more work comes than the machine can do", ALL, 5, load=1.5),
    "light": Mix("half of the machine is asked for", TENSORFLOW + TORCH, 4, load=0.5),
    "quiet": Mix("a fifth of the machine is asked for: jobs seldom meet", ALL, 3, load=0.2, work=(8, 14)),
    "stranger": Mix("a program that nobody schedules takes a core", TENSORFLOW + TORCH, 3, stranger=True),
    "interactive": Mix("somebody works interactively beside trainings", TENSORFLOW + TORCH, 4, interactive=True),
    "two-users": Mix("one user has all jobs but one", TENSORFLOW + TORCH, 4, users=2),
}
BACKLOG = ("tensorflow", "torch", "servers", "long-short", "backlog")


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    program: str
    arrival: float         # seconds since the first job's
    steps: int
    rest: tuple = ()       # steps after which it rests, and for how many seconds
    user: int = 0

    @property
    def work(self):
        """Seconds on one core, without rests."""
        return self.steps / STEPS_PER_S[self.program]


def seed(mix, cores, number):
    return int.from_bytes(hashlib.sha256(f"threadtide gain: {mix} {cores} {number}".encode()).digest()[:8], "big")


def draw(name, cores, number):
    """The jobs of a mix for a machine of @cores, in the order in which they arrive. @number: of the round."""
    mix, rng = MIXES[name], random.Random(seed(name, cores, number))
    count = max(2, mix.jobs * cores // 2)
    # Each program as often as the others, but for the remainder.
    programs = [p for _ in range(count // len(mix.programs)) for p in mix.programs]
    programs += rng.sample(mix.programs, count - len(programs))
    rng.shuffle(programs)
    work = [rng.uniform(*mix.work) for _ in programs]
    for i in rng.sample(range(count), round(count * mix.long)):
        work[i] *= 4
    jobs, now = [], 0.0
    for i, (program, seconds) in enumerate(zip(programs, work)):
        jobs.append(Job(f"{i}-{program}", program, round(now, 2), max(1, round(seconds * STEPS_PER_S[program]))))
        if mix.load:
            now += rng.expovariate(mix.load * cores / (sum(work) / count))
    if mix.interactive:
        last = jobs.pop()
        jobs.insert(0, dataclasses.replace(last, arrival=0.0, rest=(max(1, STEPS_PER_S[last.program]), 2.0)))
    if mix.users > 1:
        jobs[-1] = dataclasses.replace(jobs[-1], user=1)
    return jobs


# ---- what fixed numbers of threads would reach ----

class Curves:
    """Steps in a second of a program, by threads on as many cores: {program: {threads: rate}}; linear in between, constant
    beyond what was measured."""

    def __init__(self, rates):
        self.rates = {program: {int(n): rate for n, rate in of.items()} for program, of in rates.items()}

    def rate(self, program, threads):
        of = self.rates[program]
        below, above = max(n for n in of if n <= threads), min((n for n in of if n >= threads), default=None)
        if above is None or above == below:
            return of[below]
        return of[below] + (of[above] - of[below]) * (threads - below) / (above - below)

    def alone(self, job, cores):
        """Seconds that the job takes with the machine for itself, at its best number of threads."""
        computing = job.steps / max(self.rate(job.program, n) for n in range(1, cores + 1))
        return computing + (job.steps - 1) // job.rest[0] * job.rest[1] if job.rest else computing


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Each job has @threads[i] from its start to its end. It starts when it is the first of @order that waits, and
    the threads of those that run leave it room; with @crowded at once, and threads share the cores evenly."""
    threads: tuple
    order: tuple
    crowded: bool = False


def outcome(jobs, schedule, curves, cores):
    """(makespan, mean turnaround) of fixed numbers of threads, in seconds: what the curves say, threads beyond the cores
    cost nothing and starting costs nothing, so a real machine is seldom better. Who rests keeps its room."""
    left = [job.steps for job in jobs]
    burst = [job.rest[0] if job.rest else job.steps for job in jobs]  # steps until it rests or ends
    wakes = {}  # who rests, until when
    waiting, running, ends, now = list(schedule.order), [], {}, 0.0
    while len(ends) < len(jobs):
        while waiting:
            i = next((i for i in waiting if jobs[i].arrival <= now), None)
            if i is None or not schedule.crowded and sum(schedule.threads[k] for k in running) + schedule.threads[i] > cores:
                break
            waiting.remove(i)
            running.append(i)
        computing = [i for i in running if i not in wakes]
        share = min(1.0, cores / max(1, sum(schedule.threads[i] for i in computing)))
        speed = {i: share * curves.rate(jobs[i].program, schedule.threads[i]) for i in computing}
        then = min([now + burst[i] / speed[i] for i in computing] + list(wakes.values()) +
                   [jobs[i].arrival for i in waiting if jobs[i].arrival > now])
        for i in computing:
            done = burst[i] if now + burst[i] / speed[i] <= then else (then - now) * speed[i]
            left[i], burst[i] = left[i] - done, burst[i] - done
            if left[i] < 1e-6:
                running.remove(i)
                ends[i] = then
            elif burst[i] <= 0:
                wakes[i], burst[i] = then + jobs[i].rest[1], min(left[i], jobs[i].rest[0])
        now = then
        wakes = {i: end for i, end in wakes.items() if end > now}
    turnarounds = [ends[i] - jobs[i].arrival for i in range(len(jobs))]
    return max(ends.values()) - min(job.arrival for job in jobs), sum(turnarounds) / len(jobs)


EXHAUSTIVE = 200_000   # schedules: four jobs on eight cores, five on two
STARTS, TRIES = 20, 400


def neighbour(schedule, cores, rng):
    threads, order = list(schedule.threads), list(schedule.order)
    kind = rng.randrange(4)
    if kind == 0:
        return dataclasses.replace(schedule, crowded=not schedule.crowded)
    if kind == 1:
        threads[rng.randrange(len(threads))] = rng.randint(1, cores)
    else:
        a, b = rng.sample(range(len(order)), 2)
        order[a], order[b] = order[b], order[a]
    return Schedule(tuple(threads), tuple(order), schedule.crowded)


def oracle(jobs, curves, cores, measure):
    """The schedule with the smallest makespan (@measure 0) or mean turnaround (1): of all, if these are EXHAUSTIVE or
    fewer; else the best of STARTS descents by single changes, which TRIES in vain end: it may miss the best by a little."""
    def cost(schedule):
        return outcome(jobs, schedule, curves, cores)[measure]
    n = len(jobs)
    if 2 * cores ** n * math.factorial(n) <= EXHAUSTIVE:
        return min((Schedule(threads, order, crowded) for threads in itertools.product(range(1, cores + 1), repeat=n)
                    for order in itertools.permutations(range(n)) for crowded in (False, True)), key=cost)
    rng, found = random.Random(n), []
    for start in range(STARTS):
        order = sorted(range(n), key=lambda i: (jobs[i].work if start % 2 else -jobs[i].work, i))
        if start > 1:
            rng.shuffle(order)
        best = Schedule((1 + start % cores,) * n, tuple(order), start % 3 == 2)
        at, vain = cost(best), 0
        while vain < TRIES:
            other = neighbour(best, cores, rng)
            now = cost(other)
            best, at, vain = (other, now, 0) if now < at else (best, at, vain + 1)
        found.append((at, start, best))
    return min(found)[2]
