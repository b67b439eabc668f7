/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present state of the hub's areas: the whole list whenever a stream of events begins, and seldom; in between the
 * parts of it that events bring, which are told at most once a second. An event that comes while the list is fetched may
 * be newer than the list, and is kept. A stream's heartbeat is hidden from scripts, so a small question every few
 * seconds tells a slow connection, a lost one, and a session that has ended.
 */
import { get, Problem, Session } from "../api";
import type { Connection, Link } from "../frame";
import { Area, Areas, SwitchOutcome } from "./model";

export interface Happened { time_ms: number; area?: string | null; unit?: string | null; text: string }

const ASK_MS = 5000;
const HIDDEN_MS = 20000;
const REST_MS = 15000; // after which a page that nobody sees closes its stream
const SLOW_MS = 2500; // an answer that takes longer says so
const TELL_MS = 1000; // the shortest time between two changes of the page
const WHOLE_MS = 120000; // the list is fetched anew
const AGAIN_MS = 3000;
const ANEW_MS = 10000; // between two lists that something unknown so far asks for, and where there is no stream
const HAPPENED_MAX = 200;

export class HubLive implements Connection {
  areas: Area[] = []; // parents before what they hold
  readonly byPath = new Map<string, Area>();
  readonly below = new Map<string, Area[]>(); // by the parent's path; "" holds those without
  org = "";
  zone: string | null = null;
  currency = "";
  link: Link = "connecting";
  problem: Problem | null = null;
  looked = 0;
  shape = 0; // grows when areas come or go
  policyNumber: number | null = null;
  readonly happened: Happened[] = [];
  private readonly listeners = new Set<() => void>();
  private readonly outcomes = new Set<(o: SwitchOutcome) => void>();
  private readonly pending = new Map<string, Partial<Area>>();
  private events: EventSource | null = null;
  private told = 0;
  private teller = 0;
  private asker = 0;
  private rest = 0;
  private whole = 0;
  private due = Infinity; // when a window of the policy or a price ends, or a budget's use is known, which no event tells
  private fetching = false;
  private stale = false; // the list that is fetched may be too old

  constructor(readonly session: Session) {}

  may(what: string): boolean {
    return this.session.may?.includes(what) ?? false;
  }

  get administrator(): boolean {
    return this.session.role === "administrator";
  }

  start(): void {
    document.addEventListener("visibilitychange", () => this.onVisible());
    window.addEventListener("online", () => this.askSoon(0));
    this.listen();
    if (document.hidden) this.onVisible();
    this.askSoon(ASK_MS);
  }

  /** A browser has few connections to a server for all its tabs: streams of hidden ones would keep others from opening. */
  private onVisible(): void {
    clearTimeout(this.rest);
    if (document.hidden) {
      this.rest = window.setTimeout(() => this.events?.close(), REST_MS);
      return;
    }
    if (this.link !== "ended" && this.events?.readyState === EventSource.CLOSED) this.listen(true);
    this.askSoon(0);
  }

  onChange(listener: () => void): void {
    this.listeners.add(listener);
  }

  onSwitch(listener: (o: SwitchOutcome) => void): void {
    this.outcomes.add(listener);
  }

  /** At once, or when the second since the last time is over. */
  private tellSoon(): void {
    if (this.teller) return;
    this.teller = window.setTimeout(() => {
      this.teller = 0;
      this.told = performance.now();
      this.merge();
      for (const listener of this.listeners) listener();
    }, Math.max(0, this.told + TELL_MS - performance.now()));
  }

  private merge(): void {
    for (const [path, part] of this.pending) {
      const area = this.byPath.get(path);
      if (area) Object.assign(area, part);
    }
    if (!this.fetching) this.pending.clear();
  }

  private setLink(link: Link, problem: Problem | null = null): void {
    if (this.link === "ended") return;
    this.problem = problem;
    this.link = link;
    if (link === "ended") this.events?.close();
    this.tellSoon();
  }

  private failed(error: unknown): void {
    const problem = error instanceof Problem ? error : new Problem(0, String(error));
    this.setLink(problem.status === 401 ? "ended" : "lost", problem);
  }

  /** While a list is on its way, it is asked for once more behind that. */
  async fetchAll(): Promise<void> {
    this.stale = true;
    while (this.stale && !this.fetching && this.link !== "ended") {
      this.merge(); // older than the list
      this.stale = false;
      this.fetching = true;
      try {
        this.take(await get<Areas>("/v1/areas"));
        this.whole = this.looked = Date.now();
        if (this.link !== "slow") this.setLink("live");
      } catch (error) {
        this.failed(error);
      }
      this.fetching = false;
      this.merge(); // what came meanwhile
    }
  }

  private take(all: Areas): void {
    const same = all.areas.length === this.areas.length && all.areas.every((a, i) => a.area === this.areas[i]!.area);
    this.org = all.org ?? "";
    this.zone = all.zone;
    this.currency = all.currency ?? "";
    this.areas = all.areas;
    const counted = (a: Area) => a.unit !== null || a.budget?.used_uj !== null; // else the hub soon knows what was used today
    this.due = Date.now() - all.now_ms + all.areas.reduce((first, a) => Math.min(first, counted(a) ? Infinity : 0, a.next_ms ?? Infinity, a.price?.until_ms ?? Infinity), Infinity);
    this.byPath.clear();
    this.below.clear();
    for (const area of all.areas) this.byPath.set(area.area, area);
    for (const area of all.areas) {
      const parent = area.parent !== null && this.byPath.has(area.parent) ? area.parent : "";
      const list = this.below.get(parent);
      if (list) list.push(area);
      else this.below.set(parent, [area]);
    }
    if (!same) this.shape++;
  }

  /** For how long the list is good, in ms. */
  private keeps(): number {
    const open = this.events?.readyState === EventSource.OPEN;
    return open && Date.now() < this.due ? WHOLE_MS : ANEW_MS;
  }

  private askSoon(ms: number): void {
    clearTimeout(this.asker);
    this.asker = window.setTimeout(() => void this.ask(), ms);
  }

  private async ask(): Promise<void> {
    if (this.link === "ended") return;
    const slow = window.setTimeout(() => this.link === "live" && this.setLink("slow"), SLOW_MS);
    const begun = performance.now();
    try {
      const session = await get<Session>("/v1/session");
      const was = this.link;
      this.looked = Date.now();
      if (session.user !== this.session.user || session.role !== this.session.role) this.setLink("ended");
      else if (performance.now() - begun > SLOW_MS) this.setLink("slow");
      else if (was !== "live") {
        this.setLink("live");
        if (was === "lost") void this.fetchAll();
      }
    } catch (error) {
      this.failed(error);
    }
    clearTimeout(slow);
    this.tellSoon(); // views look at what no event tells
    if (Date.now() - this.whole > this.keeps() && !this.fetching && !document.hidden) void this.fetchAll();
    this.askSoon(this.link === "lost" ? AGAIN_MS : document.hidden ? HIDDEN_MS : ASK_MS);
  }

  /** Events are listed; a hole in the list is told. */
  private unheard(): void {
    this.happened.unshift({ time_ms: Date.now(), text: "Events were missed: what happened between the row below and this one is not listed." });
    this.happened.splice(HAPPENED_MAX);
  }

  /** A browser tries again by itself when a stream breaks, but not when it was refused. */
  private listen(again = false): void {
    this.events?.close();
    const events = new EventSource("/v1/events");
    const on = <T>(type: string, take: (data: T) => void) => events.addEventListener(type, (event) => {
      let data: T;
      try {
        data = JSON.parse((event as MessageEvent<string>).data) as T;
      } catch {
        return; // of a newer hub
      }
      this.looked = Date.now();
      take(data);
      this.tellSoon();
    });
    const part = (data: Partial<Area> & { area: string }) => {
      if (!this.byPath.has(data.area) && !this.fetching) return void (Date.now() - this.whole > ANEW_MS && this.fetchAll());
      this.pending.set(data.area, { ...this.pending.get(data.area), ...data });
    };
    on("state", part);
    on<{ area: string; power: Area["power"] }[]>("power", (areas) => areas.forEach(part));
    on<SwitchOutcome>("switch", (data) => this.outcomes.forEach((listener) => listener(data)));
    on<{ number: number }>("policy", (data) => {
      this.policyNumber = data.number;
      void this.fetchAll();
    });
    on("missed", () => {
      this.unheard();
      void this.fetchAll();
    });
    on<Happened>("event", (data) => {
      this.happened.unshift(data);
      this.happened.splice(HAPPENED_MAX);
    });
    events.onopen = () => {
      if (again) this.unheard(); // of a stream that is made anew the hub does not know where the last one ended
      again = false;
      void this.fetchAll(); // a list from before would lack what happened in between
    };
    events.onerror = () => {
      this.askSoon(0);
      if (events.readyState !== EventSource.CLOSED) return;
      if (this.link !== "ended") setTimeout(() => events === this.events && this.listen(true), AGAIN_MS);
    };
    this.events = events;
  }
}
