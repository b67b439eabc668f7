/* SPDX-License-Identifier: Apache-2.0 */
/* Page 2: what ran when, on which cores, with how many threads, and what was decided. */
import { get, PastJob, Problem } from "./api";
import { Chart } from "./chart";
import { swatch } from "./colour";
import { h, Rows, setText } from "./dom";
import { coreNumbers, count, moment, number, UNKNOWN } from "./format";
import { Bar, barsOf, Gantt, stepsOf } from "./gantt";
import { Live } from "./live";
import type { Page } from "./frame";

const LIMIT = 1000; // jobs, the most that the server tells at once
const AGAIN_MS = 5000; // while the window reaches to now
const ZOOM_MS = 250; // after the last change of the window
const DECISIONS = 100;
const SPANS: [string, number][] = [["1 min", 60], ["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["1 d", 86400], ["1 w", 604800], ["1 month", 2678400]];
const NOW_SLACK_S = 2;

export class TimePage implements Page {
  readonly element: HTMLElement;
  readonly title = "Time";
  private readonly gantt: Gantt;
  private readonly chart: Chart;
  private readonly says = h("p", { class: "small", role: "status" });
  private readonly window = h("span", { class: "small window" });
  private readonly decisions: Rows<Bar, HTMLTableRowElement>;
  private readonly spans: HTMLButtonElement[];
  private readonly views: HTMLButtonElement[];
  private readonly chosen = h("button", { class: "chip", hidden: true, onclick: () => this.choose(null) });
  private jobs: PastJob[] = [];
  private since = Infinity; // of what was fetched …
  private until = -Infinity; // … Infinity: to now and on
  private cut = 0; // jobs of which older changes are missing
  private fetched = 0;
  private timer = 0;
  private decisionsTimer = 0;
  private following = true;
  private bars: Bar[] = [];
  private steps: { times: number[]; threads: number[] } = { times: [], threads: [] };
  private made: PastJob[] | null = null; // what bars and steps are of
  private madeAt = 0;
  private busy = false;

  constructor(private readonly live: Live) {
    this.gantt = new Gantt(() => this.onRange(), (id) => this.choose(id));
    this.spans = SPANS.map(([name, span]) => h("button", { onclick: () => this.setSpan(span) }, name));
    this.views = (["cores", "jobs"] as const).map((rows) => h("button", { "aria-pressed": String(rows === "cores"), onclick: () => this.setRows(rows) }, rows));
    const chart = h("div");
    this.chart = new Chart(chart, {
      height: 170, label: "Threads over the same time", onZoom: (from, to) => this.gantt.setRange(from, to), left: () => this.gantt.left(),
      curves: [{ label: "all jobs", colour: "allowed", stepped: true, fill: true, value: (v) => (v === null ? UNKNOWN : number(v)) },
        { label: "chosen job", colour: "active", stepped: true, width: 2, value: (v) => (v === null ? UNKNOWN : number(v)) }],
    });
    const body = h("tbody");
    this.decisions = new Rows(body, (bar) => `${bar.job.id}/${bar.from}/${bar.threads}`, (bar) => h("tr", {},
      h("td", { "data-label": "Time" }, h("time", {}, moment(bar.from))),
      h("td", { "data-label": "Job" }, h("button", { class: "name", onclick: () => this.choose(bar.job.id) }, swatch(bar.job.id), h("span", {}, bar.job.name || bar.job.id))),
      h("td", { "data-label": "Threads" }, `${bar.before ?? UNKNOWN} → ${bar.threads}`), h("td", { "data-label": "Cores" }, bar.cores.length ? count(bar.cores.length, "core") : UNKNOWN),
      h("td", { class: "why", "data-label": "Why" }, bar.reason || UNKNOWN)), () => undefined);
    const bar = (label: string, ...buttons: HTMLElement[]) => h("div", { class: "buttons", role: "group", "aria-label": label }, ...buttons);
    this.element = h("div", { class: "page time" }, h("section", { class: "card" },
      h("header", {}, h("h2", {}, "Jobs over time"), this.chosen, this.window),
      h("div", { class: "toolbar" }, bar("Window", ...this.spans),
        bar("Move", h("button", { "aria-label": "Earlier", onclick: () => this.gantt.pan(-0.5) }, "◀"), h("button", { "aria-label": "Zoom out", onclick: () => this.gantt.zoom(2, 0.5) }, "−"),
          h("button", { "aria-label": "Zoom in", onclick: () => this.gantt.zoom(0.5, 0.5) }, "+"), h("button", { "aria-label": "Later", onclick: () => this.gantt.pan(0.5) }, "▶"),
          h("button", { onclick: () => this.gantt.now() }, "Now")),
        bar("Rows", ...this.views)),
      this.gantt.element, this.says, h("h3", {}, "Threads"), chart),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Decisions in this window")), h("div", { class: "scroll" },
      h("table", { class: "jobs decisions" }, h("thead", {}, h("tr", {}, ...["Time", "Job", "Threads", "Cores", "Why"].map((name) => h("th", { scope: "col" }, name)))), body))));
    this.markSpan();
  }

  show(): void {
    if (this.element.hidden) return;
    if (this.following) this.follow();
    if (Date.now() - this.fetched > AGAIN_MS && (this.following || this.lacks())) void this.fetch();
  }

  /** Whether the window has more than was fetched for it. */
  private lacks(): boolean {
    const { from, to } = this.gantt;
    return from < this.since || Math.min(to, Date.now() / 1000) > this.until || (this.cut > 0 && (Math.floor(from) > this.since || Math.ceil(to) < this.until));
  }

  private follow(): void {
    const now = Date.now() / 1000, span = this.gantt.to - this.gantt.from;
    this.gantt.from = now - span;
    this.gantt.to = now;
    this.draw();
  }

  private setSpan(span: number): void {
    const to = this.following ? Date.now() / 1000 : this.gantt.to;
    this.gantt.setRange(to - span, to);
  }

  private setRows(rows: "cores" | "jobs"): void {
    this.gantt.rows = rows;
    for (const view of this.views) view.setAttribute("aria-pressed", String(view.textContent === rows));
    this.gantt.redraw();
    this.chart.remake();
  }

  private choose(id: string | null): void {
    this.gantt.chosen = id;
    this.chosen.hidden = id === null;
    const job = this.jobs.find((j) => j.id === id);
    if (id !== null) this.chosen.replaceChildren(swatch(id), `${job?.name || id}  ✕`);
    this.chosen.setAttribute("aria-label", `Chosen: ${job?.name || id}; show all jobs`);
    this.draw();
  }

  private onRange(): void {
    this.following = Math.abs(this.gantt.to - Date.now() / 1000) < NOW_SLACK_S + (this.gantt.to - this.gantt.from) * 0.01;
    this.markSpan();
    this.draw(false);
    clearTimeout(this.decisionsTimer);
    this.decisionsTimer = window.setTimeout(() => this.showDecisions(), ZOOM_MS);
    clearTimeout(this.timer);
    if (this.lacks()) this.timer = window.setTimeout(() => void this.fetch(), ZOOM_MS);
  }

  private markSpan(): void {
    const span = this.gantt.to - this.gantt.from;
    SPANS.forEach(([, s], i) => this.spans[i]!.setAttribute("aria-pressed", String(Math.abs(s - span) < s / 100)));
  }

  private async fetch(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    clearTimeout(this.timer);
    const since = Math.max(1, Math.floor(this.gantt.from)), until = this.following ? Infinity : Math.ceil(this.gantt.to), all = this.live.machine === null || this.live.governs;
    let known = false;
    try {
      this.jobs = await get<PastJob[]>(`/v1/history?since=${since}${until < Infinity ? `&until=${until}` : ""}&limit=${LIMIT}`);
      this.since = since;
      this.until = until;
      this.cut = this.jobs.filter((job) => job.cut).length;
      known = true;
      setText(this.says, [this.jobs.length >= LIMIT ? `Shown are the newest ${number(LIMIT)} jobs of this window: earlier ones are missing. Choose a shorter window.`
        : this.cut ? `${count(this.cut, "job")} changed more often than is told at once: older changes are missing. Choose a shorter window.`
        : this.jobs.length === 0 ? `No job${all ? "" : " of yours"} ran in this window.` : "", all ? "" : "Your jobs alone: administrators see everybody's."].filter(Boolean).join(" "));
    } catch (error) {
      if (error instanceof Problem && error.status !== 0) setText(this.says, `${error.message}. ${error.hint}`);
    }
    this.fetched = Date.now();
    this.busy = false;
    this.draw();
    if (known && (this.gantt.from < this.since || this.gantt.to > this.until)) this.timer = window.setTimeout(() => void this.fetch(), ZOOM_MS); // else with a later look
  }

  private draw(decisions = true): void {
    const now = Date.now() / 1000, end = Math.min(now, this.until), { gantt } = this;
    if (this.made !== this.jobs || now - this.madeAt > AGAIN_MS / 1000 || (this.following && now - this.madeAt > (gantt.to - gantt.from) / 1000)) {
      this.made = this.jobs; // what runs has grown by a pixel
      this.madeAt = now;
      this.bars = barsOf(this.jobs, end);
      this.steps = stepsOf(this.bars, end);
      gantt.show(this.jobs, this.bars, coreNumbers(this.live.machine?.online ?? "", this.live.machine?.cpus ?? 1));
    } else gantt.redraw();
    const { bars } = this;
    setText(this.window, `${moment(gantt.from)} – ${this.following ? "now" : moment(gantt.to)}`);
    const all = between(this.steps, gantt.from, gantt.to), one = gantt.chosen === null ? null : stepsOf(bars.filter((bar) => bar.job.id === gantt.chosen), end);
    this.chart.show([all.times, all.threads, one ? sampled(one, all.times) : all.times.map(() => null)], [gantt.from, gantt.to]);
    if (decisions) this.showDecisions();
  }

  private showDecisions(): void {
    const { gantt } = this;
    const decided = gantt.seen().filter((bar) => bar.from >= gantt.from && (gantt.chosen === null || bar.job.id === gantt.chosen));
    this.decisions.show(decided.slice(-DECISIONS).reverse());
  }
}

/** The value of a step curve at each of @times. */
function sampled(steps: { times: number[]; threads: number[] }, times: readonly number[]): (number | null)[] {
  let at = -1;
  return times.map((time) => {
    while (at + 1 < steps.times.length && steps.times[at + 1]! <= time) at++;
    return at < 0 ? null : steps.threads[at]!;
  });
}

/** The part of a step curve between two times, with the step before it. */
function between(steps: { times: number[]; threads: number[] }, from: number, to: number): { times: number[]; threads: number[] } {
  const first = Math.max(0, steps.times.findIndex((time) => time >= from) - 1), after = steps.times.findIndex((time) => time > to);
  const end = after < 0 ? steps.times.length : after + 1;
  return { times: steps.times.slice(first, end), threads: steps.threads.slice(first, end) };
}
