/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present state of the machine: asked once a second, at once when an event says that something changed, and seldom
 * while nobody looks. One look is under way at a time, so a slow connection has fewer looks and not a queue of them.
 */
import { get, Job, Machine, Problem, Session } from "./api";
import type { Link } from "./frame";

export interface Sample { time: number; active: number; allowed: number; cores: number; ofJob: Map<string, number> }

const LOOK_MS = 1000;
const HIDDEN_MS = 15000;
const SLOW_MS = 2500; // a look that takes longer says so
const AGAIN_MS = [1000, 2000, 4000, 8000];
const SAMPLES = 600;
const EVENTS_AGAIN_MS = 5000;
const SOON_MS = 150;

export class Live {
  machine: Machine | null = null;
  jobs: Job[] = [];
  samples: Sample[] = [];
  link: Link = "connecting";
  problem: Problem | null = null;
  looked = 0; // when the last answer came, in ms; 0: never
  private readonly listeners = new Set<() => void>();
  private timer = 0;
  private failures = 0;
  private busy = false;
  private again = false;
  private events: EventSource | null = null;

  constructor(readonly session: Session) {}

  start(): void {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.lookSoon();
    });
    window.addEventListener("online", () => this.lookSoon());
    this.listen();
    void this.look();
  }

  onChange(listener: () => void): void {
    this.listeners.add(listener);
  }

  /** After a change by this page, and at an event. */
  lookSoon(): void {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.plan(SOON_MS);
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }

  private plan(ms: number): void {
    clearTimeout(this.timer);
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
    this.busy = false;
    this.tell();
    if (this.failures) this.plan(AGAIN_MS[Math.min(this.failures, AGAIN_MS.length) - 1]!);
    else this.plan(this.again ? SOON_MS : document.hidden ? HIDDEN_MS : LOOK_MS);
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
    this.samples.push({
      time: this.looked / 1000,
      active: begun.reduce((sum, job) => sum + job.active, 0),
      allowed: begun.reduce((sum, job) => sum + job.target, 0),
      cores: machine.cpus,
      ofJob: new Map(begun.map((job) => [job.id, job.active])),
    });
    if (this.samples.length > SAMPLES) this.samples.splice(0, this.samples.length - SAMPLES);
  }

  /** A browser tries again by itself when a stream breaks, but not when it was refused. */
  private listen(): void {
    const events = new EventSource("/v1/events");
    for (const type of ["job-added", "job-changed", "job-ended", "policy-changed", "missed", "cap"])
      events.addEventListener(type, () => this.lookSoon());
    events.onerror = () => {
      if (events.readyState !== EventSource.CLOSED) return;
      events.close();
      if (this.link !== "ended") setTimeout(() => this.listen(), EVENTS_AGAIN_MS);
    };
    this.events = events;
  }

  /** Whether this page's user may change the job; tided decides. */
  mayChange(job: { owner: string }): boolean {
    const { session, machine } = this;
    return session.admin === true || session.user === job.owner || (machine !== null && machine.uid === session.uid);
  }

  close(): void {
    this.events?.close();
    clearTimeout(this.timer);
    this.link = "ended";
  }
}
