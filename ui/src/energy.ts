/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page Energy: what the machine draws, with the uncertainty of that, who draws it, the cap, and what it has used. An
 * amount whose basis is "unknown" is null and shown as a dash.
 */
import { get, Job, Problem, send } from "./api";
import { Chart } from "./chart";
import { swatch } from "./colour";
import { announce, h, Rows, setAttribute, setText } from "./dom";
import { clock, count, duration, energy, figure, moment, money, UNKNOWN, watts } from "./format";
import { Live } from "./live";
import type { Page } from "./frame";

export interface PowerRange { uw: number | null; low_uw: number | null; high_uw: number | null; basis: string }
export interface EnergyRange { uj: number | null; low_uj: number | null; high_uj: number | null; basis: string; gap_ms?: number }
interface JobPower { id: string; name: string; power_uw: number | null; energy_uj: number | null; energy_low_uj: number | null; energy_high_uj: number | null; energy_basis: string | null }
interface Power { time: number; power: PowerRange; energy: EnergyRange; parts: { [part: string]: EnergyRange }; jobs: JobPower[]; load: { mcpu: number; other_mcpu: number; speed_permille: number } }
interface Source { name: string; kind: string; part: string; basis: string; error_permille: number; used: boolean; uw: number | null; uj: number | null; path: string; problem: string }
interface Cap { state: "none" | "kept" | "not-yet" | "over"; uw?: number | null; source?: string | null; until?: number | null; why?: string; cores?: number | null;
  caps: { source: string; kind: string; uw: number; until: number | null }[] }
interface UsedRow { key: string; name?: string; owner?: string; uj: number | null; low_uj: number | null; high_uj: number | null; basis: string; gap_ms: number; kwh: number | null; cost: number | null; gco2: number | null }
interface Used { rows: UsedRow[]; since: number; until: number; currency: string | null }
interface Sample { time: number; range: PowerRange; cap: number | null }

const PARTS = ["jobs", "system", "idle", "unattributed"] as const;
const LOOK_MS = 1000, SLOW_LOOK_MS = 10000, USED_MS = 60000;
const DAY_S = 86400, WEEK_S = 7 * DAY_S;
const KEYS = ["day", "job", "user", "part"] as const;
const SPANS: [string, number][] = [["1 day", DAY_S], ["1 week", WEEK_S], ["30 days", 30 * DAY_S], ["1 year", 365 * DAY_S]];
const USED_ROWS = 200;
const SAMPLES = 600;
const PART_S = 5; // watts of a part are its energy over so long, or over the time between two figures if that is longer
const STALE_S = 30; // after which a figure that stays the same is no news of now
const HIDDEN_MS = 15000, GAP_S = 60; // nobody looked for so long: a gap in the chart
const WHOSE: { [source: string]: string } = { configuration: "of the configuration", person: "set by hand", lease: "of the power lease" };
const WHOSE_USE: { [by: string]: string } = { job: "Your jobs alone: administrators see everybody's.", user: "Yours, or everybody's for administrators and the power group." };
const BASES: { [basis: string]: string } = {
  measured: "a sensor or meter of the whole machine told it", calibrated: "by a curve that was calibrated against a meter",
  modelled: "by sensors of a part, or a model that was given", assumed: "guessed from what such machines usually draw, so that the range is wide",
  unknown: "no source tells it",
};

const range = (low: number | null, high: number | null, text: (v: number | null) => string): string =>
  low === null || high === null ? "" : low === high ? "exactly" : `${text(low)} to ${text(high)}`;

export class EnergyPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Energy";
  private readonly now = h("b");
  private readonly nowMore = h("span");
  private readonly used = h("b");
  private readonly usedMore = h("span");
  private readonly capValue = h("b");
  private readonly capMore = h("span");
  private readonly capTile = h("div", { class: "tile" }, h("h3", {}, "Power cap"), this.capValue, this.capMore);
  private readonly gap = h("b");
  private readonly chart: Chart;
  private readonly stack = h("div", { class: "stack", role: "img", "aria-label": "unknown" });
  private readonly partRows: Rows<[string, EnergyRange], HTMLTableRowElement>;
  private readonly jobRows: Rows<JobPower, HTMLTableRowElement>;
  private readonly sourceRows: Rows<Source, HTMLTableRowElement>;
  private readonly says = h("p", { class: "says", role: "status" });
  private readonly trouble = h("p", { class: "says alarm", role: "status", hidden: true });
  private readonly none = h("p", { class: "none", hidden: true });
  private readonly whole = h("div");
  private readonly capField = h("input", { type: "number", min: 1, max: 1000000, step: "any", required: true, inputmode: "decimal" });
  private readonly capUntil = h("input", { type: "datetime-local" });
  private readonly lift = h("button", { type: "button", onclick: () => void this.setCap(null) }, "Lift it");
  private readonly keys = KEYS.map((key) => h("button", { "aria-pressed": String(key === "day"), onclick: () => this.choose(key, this.span) }, key));
  private readonly spans = SPANS.map(([name, span]) => h("button", { "aria-pressed": String(span === WEEK_S), onclick: () => this.choose(this.by, span) }, name));
  private readonly usedRows: Rows<UsedRow, HTMLTableRowElement>;
  private readonly usedSays = h("p", { class: "small", role: "status" });
  private by: (typeof KEYS)[number] = "day";
  private span = WEEK_S;
  private usedLooked = 0;
  private currency = "";
  private samples: Sample[] = [];
  private totals: { time: number; parts: { [part: string]: EnergyRange } }[] = []; // each from when it came
  private last: { time: number; told: string } | null = null;
  private looked = 0;
  private slowly = 0;
  private busy = false;
  private cap: Cap | null = null;
  private capless = false;
  private readonly capCard: HTMLElement;
  private readonly shrunkRows: Rows<Job, HTMLTableRowElement>;
  private readonly shrunkSays = h("p", { class: "small" });
  private readonly shrunkCard: HTMLElement;

  constructor(private readonly live: Live) {
    const chart = h("div"), parts = h("tbody"), jobs = h("tbody"), sources = h("tbody");
    const value = (v: number | null) => watts(v === null ? null : v * 1e6);
    this.chart = new Chart(chart, {
      height: 220, label: "Power of the machine, with its bounds, and the cap", axis: (v) => `${v} W`, band: [1, 0, "low"],
      curves: [{ label: "lowest", colour: "low", hidden: true, value }, { label: "highest", colour: "low", hidden: true, value },
        { label: "power", colour: "active", width: 2, value }, { label: "cap", colour: "alarm", dash: [6, 4], stepped: true, value }],
    });
    this.partRows = new Rows(parts, ([name]) => name, ([name]) => h("tr", {}, h("th", { scope: "row" }, h("i", { class: `key ${name}` }), name),
      ...["Now", "Energy", "Between", "Known as"].map((label) => h("td", { "data-label": label }))), (row, [name, e]) =>
      [watts(this.partWatts(name)), energy(e.uj), range(e.low_uj, e.high_uj, energy), e.basis].forEach((text, i) => setText(row.cells[i + 1]!, text)));
    this.jobRows = new Rows(jobs, (job) => job.id, (job) => h("tr", {}, h("td", { "data-label": "Job" }, h("span", { class: "name" }, swatch(job.id), job.name || job.id)),
      ...["Now", "Energy", "Between", "Known as"].map((label) => h("td", { "data-label": label }))), (row, job) =>
      [watts(job.power_uw), energy(job.energy_uj), range(job.energy_low_uj, job.energy_high_uj, energy), job.energy_basis ?? "unknown"]
        .forEach((text, i) => setText(row.cells[i + 1]!, text)));
    this.sourceRows = new Rows(sources, (s) => `${s.kind}/${s.name}`, (s) => h("tr", {}, h("th", { scope: "row" }, s.name), h("td", { "data-label": "Kind" }, s.kind),
      h("td", { "data-label": "Measures" }, s.part), h("td", { "data-label": "Now" }), h("td", { "data-label": "Counts" }), h("td", { class: "why", "data-label": "Problem" })),
    (row, s) => [watts(s.uw), s.used ? "yes" : "no", s.problem].forEach((text, i) => setText(row.cells[i + 3]!, text)));
    const used = h("tbody");
    this.usedRows = new Rows(used, (row) => row.key, (row) => h("tr", {}, h("th", { scope: "row" }, this.by === "job" ? swatch(row.key) : "", row.name || row.key),
      ...["Energy", "Between", "Cost", "CO₂", "Gaps", "Known as"].map((label) => h("td", { "data-label": label }))), (row, u) =>
      [energy(u.uj), range(u.low_uj, u.high_uj, energy), money(u.cost, this.currency), u.gco2 === null ? UNKNOWN : `${figure(u.gco2)} g`,
        u.gap_ms >= 1000 ? duration(u.gap_ms / 1000) : "none", u.basis].forEach((text, i) => setText(row.cells[i + 1]!, text)));
    const table = (names: string[], body: HTMLElement) => h("div", { class: "scroll" }, h("table", { class: "jobs" }, h("thead", {}, h("tr", {}, ...names.map((n) => h("th", { scope: "col" }, n)))), body));
    const card = (title: string, ...inside: (Node | string)[]) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), ...inside);
    const shrunk = h("tbody");
    this.shrunkRows = new Rows(shrunk, (job) => job.id, (job) => h("tr", {}, h("th", { scope: "row" }, swatch(job.id), job.name || job.id),
      ...["Owner", "Threads"].map((label) => h("td", { "data-label": label })), h("td", { class: "why", "data-label": "Why" })), (row, job) =>
      [job.owner, `${job.target} of ${job.max}`, job.reason].forEach((text, i) => setText(row.cells[i + 1]!, text)));
    this.shrunkCard = card("Shrunk for the cap", this.shrunkSays, table(["Job", "Owner", "Threads", "Why"], shrunk));
    this.capCard = card("Cap", this.capForm(), this.says);
    this.capCard.hidden = true; // until tided says what this user may
    this.whole.append(
      h("div", { class: "tiles" }, h("div", { class: "tile" }, h("h3", {}, "Power now"), this.now, this.nowMore),
        h("div", { class: "tile" }, h("h3", {}, "Energy"), this.used, this.usedMore), this.capTile,
        h("div", { class: "tile" }, h("h3", {}, "Time without a reading"), this.gap, h("span", {}, "its energy is unknown and missing from the sum"))),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Power"), h("span", { class: "small" }, "since this page was opened")),
        chart, h("h3", {}, "Who draws it now"), this.stack, table(["Part", "Now", "Energy", "Between", "Known as"], parts)),
      card("Used", h("div", { class: "toolbar" }, h("div", { class: "buttons", role: "group", "aria-label": "By" }, ...this.keys),
        h("div", { class: "buttons", role: "group", "aria-label": "Window" }, ...this.spans)), this.usedSays,
      table(["What", "Energy", "Between", "Cost", "CO₂", "Gaps", "Known as"], used)),
      card("Jobs now", table(["Job", "Now", "Energy", "Between", "Known as"], jobs), h("p", { class: "small" }, "Yours, or all for administrators. Watts of a job are means of ten seconds.")),
      this.shrunkCard, this.capCard,
      card("Sources", table(["Name", "Kind", "Measures", "Now", "Counts", "Problem"], sources)));
    this.element = h("div", { class: "page energy" }, this.none, this.trouble, this.whole);
    setInterval(() => this.show(), LOOK_MS);
  }

  private capForm(): HTMLElement {
    return h("form", { class: "field", onsubmit: (event: Event) => {
      event.preventDefault();
      if (this.capField.reportValidity()) void this.setCap(Number(this.capField.value));
    } }, h("label", {}, "Watts", this.capField), h("label", {}, "until (or without end)", this.capUntil), h("button", { type: "submit" }, "Set the cap"), this.lift);
  }

  private choose(by: (typeof KEYS)[number], span: number): void {
    this.by = by;
    this.span = span;
    this.keys.forEach((button, i) => button.setAttribute("aria-pressed", String(KEYS[i] === by)));
    this.spans.forEach((button, i) => button.setAttribute("aria-pressed", String(SPANS[i]![1] === span)));
    this.usedRows.show([]);
    void this.lookUsed();
  }

  /** Shows the energy used; for a week also whether it is more than in the week before. */
  private async lookUsed(): Promise<void> {
    const now = Math.floor(Date.now() / 1000), { by, span } = this;
    this.usedLooked = Date.now();
    try {
      const told = await get<Used>(`/v1/energy?by=${by}&since=${now - span}&until=${now}`);
      const before = span === WEEK_S ? await get<Used>(`/v1/energy?by=part&since=${now - 2 * span}&until=${now - span}`) : null;
      const all = span === WEEK_S ? await get<Used>(`/v1/energy?by=part&since=${now - span}&until=${now}`) : null;
      if (by !== this.by || span !== this.span) return;
      this.currency = told.currency ?? "";
      this.usedRows.show(told.rows.slice(0, USED_ROWS));
      setText(this.usedSays, [told.rows.length > USED_ROWS ? `The first ${USED_ROWS} of ${told.rows.length} rows.` : all && before ? compared(all, before) : "", this.live.governs ? "" : WHOSE_USE[by] ?? ""].filter(Boolean).join(" "));
    } catch (error) {
      if (error instanceof Problem && error.status !== 0) setText(this.usedSays, error.status === 404 ? "This tided keeps no history of energy." : `${error.message}. ${error.hint}`);
    }
  }

  private async setCap(value: number | null): Promise<void> {
    const until = this.capUntil.value ? Math.floor(new Date(this.capUntil.value).getTime() / 1000) : null;
    try {
      this.cap = value === null ? await send<Cap>("DELETE", "/v1/power/cap")
        : await send<Cap>("PUT", "/v1/power/cap", { uw: Math.round(value * 1e6), ...(until ? { until } : {}) });
      this.says.textContent = value === null ? "The cap set by hand is lifted." : `The cap is ${value} W${this.cap.state === "kept" ? " and is kept" : ""}.`;
    } catch (error) {
      this.says.textContent = error instanceof Problem ? `${error.message}. ${error.hint}` : String(error);
    }
    announce(this.says.textContent);
    this.slowly = 0;
    this.live.lookSoon();
  }

  show(): void {
    if (this.element.hidden || this.live.link === "ended" || this.busy || Date.now() - this.looked < (document.hidden ? HIDDEN_MS : LOOK_MS * 0.9)) return;
    void this.look();
  }

  private async look(): Promise<void> {
    this.busy = true;
    try {
      const power = await get<Power>("/v1/power");
      if (Date.now() - this.slowly > SLOW_LOOK_MS) {
        const sources = await get<Source[]>("/v1/power/sources");
        this.sourceRows.show(sources);
        this.slowly = Date.now();
      }
      this.cap = await this.lookCap();
      this.take(power);
      this.none.hidden = this.trouble.hidden = true;
      this.whole.hidden = false;
    } catch (error) {
      this.refused(error instanceof Problem ? error : new Problem(0, String(error)));
    }
    if (Date.now() - this.usedLooked > USED_MS && !this.whole.hidden) void this.lookUsed();
    this.looked = Date.now();
    this.busy = false;
  }

  /** The frame tells of a connection that is lost. */
  private refused(problem: Problem): void {
    if (problem.status === 404) {
      setText(this.none, "This tided does not measure energy.");
      this.none.hidden = false;
      this.whole.hidden = true;
    } else if (problem.status !== 0) {
      const last = this.samples[this.samples.length - 1];
      setText(this.trouble, `${problem.message}. ${problem.hint} ${last ? `What you see is of ${moment(last.time)}.` : ""}`);
      this.trouble.hidden = false;
    }
  }

  /** A tided of before caps has none: it is asked once. */
  private async lookCap(): Promise<Cap | null> {
    if (this.capless) return null;
    try {
      return await get<Cap>("/v1/power/cap");
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 404) throw error;
      this.capless = true;
      this.capTile.hidden = true;
      return null;
    }
  }

  private take(p: Power): void {
    this.count(p);
    const parts = Object.fromEntries(PARTS.map((name) => [name, this.partWatts(name)])), before = this.samples[this.samples.length - 1]?.time ?? p.time;
    if (p.time - before > GAP_S) this.samples.push({ time: before + 1, range: { uw: null, low_uw: null, high_uw: null, basis: "unknown" }, cap: null });
    this.samples.push({ time: p.time, range: p.power, cap: this.cap?.uw ?? null });
    if (this.samples.length > SAMPLES) this.samples.splice(0, this.samples.length - SAMPLES);
    this.capCard.hidden = this.capless || !this.live.governs;
    this.showTiles(p);
    this.showStack(parts);
    this.partRows.show(PARTS.map((name) => [name, p.parts[name]!]));
    this.jobRows.show([...p.jobs].sort((a, b) => (b.power_uw ?? -1) - (a.power_uw ?? -1)));
    const w = (v: number | null) => (v === null ? null : v / 1e6);
    this.chart.show([this.samples.map((s) => s.time), this.samples.map((s) => w(s.range.low_uw)), this.samples.map((s) => w(s.range.high_uw)),
      this.samples.map((s) => w(s.range.uw)), this.samples.map((s) => w(s.cap))]);
  }

  /** Ordinary users are told figures that stay for ten seconds: what was used counts from one change to another. */
  private count(p: Power): void {
    const told = PARTS.map((name) => p.parts[name]?.uj).join(), { totals, last } = this;
    if (!last || p.time - last.time > PART_S) totals.splice(0); // nobody saw the last change
    else if (last.told !== told) totals.push({ time: p.time, parts: p.parts });
    this.last = { time: p.time, told };
    while (totals.length > 2 && totals[1]!.time < p.time - PART_S) totals.shift();
    if (totals.length > 1 && totals[totals.length - 1]!.time < p.time - STALE_S) totals.shift();
  }

  /** A part's power, from its energy over the last seconds; null: unknown. */
  private partWatts(name: string): number | null {
    const first = this.totals[0], last = this.totals[this.totals.length - 1];
    const from = first?.parts[name]?.uj, to = last?.parts[name]?.uj;
    if (!first || !last || last.time <= first.time || typeof from !== "number" || typeof to !== "number" || to < from) return null;
    return (to - from) / (last.time - first.time);
  }

  private showTiles(p: Power): void {
    setText(this.now, watts(p.power.uw));
    setText(this.nowMore, p.power.uw === null ? "unknown: see Sources" : `${range(p.power.low_uw, p.power.high_uw, watts)}, ${p.power.basis}`);
    setAttribute(this.nowMore, "title", BASES[p.power.basis] ?? null);
    setText(this.used, energy(p.energy.uj));
    setText(this.usedMore, p.energy.uj === null ? "unknown" : `${range(p.energy.low_uj, p.energy.high_uj, energy)}, ${p.energy.basis}`);
    setText(this.gap, duration((p.energy.gap_ms ?? 0) / 1000));
    const cap = this.cap, states = { none: "", kept: "kept", "not-yet": "not kept yet", over: "above it" };
    setText(this.capValue, typeof cap?.uw === "number" ? watts(cap.uw) : "none");
    setText(this.capMore, typeof cap?.uw !== "number" ? "" : [states[cap.state], WHOSE[cap.source ?? ""] ?? cap.source, cap.until ? `until ${moment(cap.until)}` : "", cap.why ?? ""].filter(Boolean).join(", "));
    this.capTile.classList.toggle("alarm", cap?.state === "over");
    this.showShrunk(cap);
    this.lift.disabled = !cap?.caps.some((c) => c.source === "person");
  }

  /** Jobs that the cap leaves fewer cores than the machine has; their reasons name it. */
  private showShrunk(cap: Cap | null): void {
    const all = this.live.machine?.cpus ?? 0, left = cap?.cores, tight = typeof cap?.uw === "number" && typeof left === "number" && left < all;
    const jobs = tight ? this.live.jobs.filter((job) => job.reason.includes("power cap")) : [];
    this.shrunkCard.hidden = !tight;
    if (tight) setText(this.shrunkSays, `The cap leaves jobs ${count(left, "core")} of ${all}.${jobs.length ? "" : " No job has fewer threads for it."}`);
    this.shrunkRows.show(jobs);
  }

  private showStack(parts: { [part: string]: number | null }): void {
    const sum = PARTS.reduce((s, name) => s + (parts[name] ?? 0), 0);
    if (this.stack.childElementCount === 0) this.stack.append(...PARTS.map((name) => h("i", { class: name })));
    PARTS.forEach((name, i) => ((this.stack.children[i] as HTMLElement).style.width = sum ? `${(100 * (parts[name] ?? 0)) / sum}%` : "0"));
    setAttribute(this.stack, "aria-label", sum ? PARTS.map((name) => `${name} ${watts(parts[name])}`).join(", ") : `unknown, ${clock(Date.now() / 1000)}`);
  }
}

/** The machine's own row among rows by part, beside which its parts stand. */
const wholeOf = (used: Used): number | null => used.rows.find((row) => row.key === "machine")?.uj ?? null;

function compared(now: Used, before: Used): string {
  const a = wholeOf(now), b = wholeOf(before);
  if (a === null) return "";
  if (!b) return `${energy(a)} in these seven days; nothing is known of the seven before.`;
  const change = Math.round((100 * (a - b)) / b);
  return `${energy(a)} in these seven days, ${change === 0 ? "as much as" : `${Math.abs(change)} % ${change > 0 ? "more" : "less"} than`} in the seven before (${energy(b)}).`;
}
