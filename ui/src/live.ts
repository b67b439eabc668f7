/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present state of the machine: asked once a second, at once when an event says that something changed, and seldom
 * while nobody looks. One look is under way at a time, so a slow connection has fewer looks and not a queue of them.
 */
import { AT, far, get, Job, Machine, Problem, Session } from "./api";
import type { Link } from "./frame";

/** null: nothing was told then. */
export interface Sample { time: number; active: number | null; allowed: number | null; cores: number | null }

const LOOK_MS = 1000;
const HIDDEN_MS = 15000;
const SLOW_MS = 2500; // a look that takes longer says so
const AGAIN_MS = [1000, 2000, 4000, 8000];
const SAMPLES = 600;
const EVENTS_AGAIN_MS = 5000;
const SOON_MS = 150;
const REST = 5; // where events come all the time, looks take one part of the time in so many
const GAP_S = 60; // nobody looked for so long: the machine slept, or the connection was lost

export class Live {
  machine: Machine | null = null;
  jobs: Job[] = [];
  samples: Sample[] = [];
  link: Link = "connecting";
  problem: Problem | null = null;
  looked = 0; // when the last answer came, in ms; 0: never
  private readonly listeners = new Set<() => void>();
  private timer = 0;
  private due = 0; // when the next look begins
  private failures = 0;
  private busy = false;
  private again = false;
  private events: EventSource | null = null;

  constructor(readonly session: Session) {}

  start(): void {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return this.events?.close(); // a browser has few connections to a server for all its tabs
      this.listen();
      return this.lookSoon();
    });
    window.addEventListener("online", () => this.lookSoon());
    this.listen();
    void this.look();
  }

  onChange(listener: () => void): void {
    this.listeners.add(listener);
  }

  /** After a change by this page, and at an event. Never later than planned, however many events come. */
  lookSoon(): void {
    if (this.busy) {
      this.again = true;
      return;
    }
    if (performance.now() + SOON_MS < this.due) this.plan(SOON_MS);
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }

  private plan(ms: number): void {
    clearTimeout(this.timer);
    this.due = performance.now() + ms;
    if (AT && document.hidden) return; // each look would be a login; the next one comes when somebody looks
    this.timer = window.setTimeout(() => void this.look(), ms);
  }

  private async look(): Promise<void> {
    if (this.link === "ended") return;
    this.busy = true;
    this.again = false;
    const slow = window.setTimeout(() => this.setLink(this.link === "live" ? "slow" : this.link), SLOW_MS);
    const begun = performance.now();
    try {
      const [machine, jobs] = await Promise.all([get<Machine>("/v1/machine"), get<Job[]>("/v1/jobs")]);
      this.take(machine, jobs);
      this.failures = 0;
      this.problem = null;
      this.link = performance.now() - begun > SLOW_MS ? "slow" : "live";
    } catch (error) {
      this.problem = error instanceof Problem ? error : new Problem(0, String(error));
      this.failures++;
      this.link = this.problem.status === 403 ? "ended" : "lost";
    }
    clearTimeout(slow);
    const soon = Math.min(LOOK_MS, Math.max(SOON_MS, REST * (performance.now() - begun)));
    this.busy = false;
    this.tell();
    if (this.failures) this.plan(AGAIN_MS[Math.min(this.failures, AGAIN_MS.length) - 1]!);
    else this.plan(this.again ? soon : document.hidden ? HIDDEN_MS : LOOK_MS);
  }

  private setLink(link: Link): void {
    if (link === this.link) return;
    this.link = link;
    this.tell();
  }

  private take(machine: Machine, jobs: Job[]): void {
    const begun = jobs.filter((job) => job.cores !== "" || job.active > 0);
    this.machine = machine;
    this.jobs = jobs;
    this.looked = Date.now();
    const time = this.looked / 1000, before = this.samples[this.samples.length - 1]?.time ?? time;
    if (time - before > GAP_S) this.samples.push({ time: before + 1, active: null, allowed: null, cores: null });
    this.samples.push({
      time,
      active: begun.reduce((sum, job) => sum + job.active, 0),
      allowed: begun.reduce((sum, job) => sum + job.target, 0),
      cores: machine.cpus,
    });
    if (this.samples.length > SAMPLES) this.samples.splice(0, this.samples.length - SAMPLES);
  }

  /** A browser tries again by itself when a stream breaks, but not when it was refused. */
  private listen(): void {
    if (document.hidden || this.link === "ended") return;
    this.events?.close();
    const events = new EventSource(far("/v1/events"));
    for (const type of ["job-added", "job-changed", "job-ended", "policy-changed", "missed", "cap"])
      events.addEventListener(type, () => this.lookSoon());
    events.onerror = () => {
      if (events.readyState !== EventSource.CLOSED) return;
      if (events === this.events) setTimeout(() => this.listen(), EVENTS_AGAIN_MS);
    };
    this.events = events;
  }

  /** Whether this page's user may change everybody's jobs, the policy and power caps, as tided says. */
  get governs(): boolean {
    const { session, machine } = this;
    return machine !== null && (machine.governs ?? (session.uid === 0 || machine.uid === session.uid));
  }

  /** Whether this page's user may change the job; tided decides. It names an owner whom /etc/passwd does not have by number. */
  mayChange(job: { owner: string }): boolean {
    const { session } = this;
    if (session.at && session.user === null) return true; // whom ssh logs in as is known there alone
    return this.governs || session.user === job.owner || String(session.uid) === job.owner;
  }

  close(): void {
    this.events?.close();
    clearTimeout(this.timer);
    this.link = "ended";
  }
}
