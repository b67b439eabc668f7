/* SPDX-License-Identifier: Apache-2.0 */
/* One area: what it draws over time, its cap and which line of the policy says so, who was shrunk for it, its switches. */
import type uPlot from "uplot";
import { get } from "../api";
import { Chart } from "../chart";
import { colourOf, h, Rows, setText } from "../dom";
import { date, duration, figure, moment, number, UNKNOWN, watts } from "../format";
import { curvesOf, Price, pricesOf } from "./history";
import { HubLive } from "./live";
import { amount, Area, AreaEnergy, areaPath, Explained, ExplainLine, Shrunk, ShrunkJob } from "./model";
import { bandText, card, cells, Choice, joules, Meter, Says, table, Tile, told } from "./parts";
import { Switches } from "./switches";
import { titleOf } from "./tree";

interface Span { seconds: number; step: string; ahead: number; again: number }

// Each window has as many stretches as a chart can show; the policy for the time ahead stands at its right.
const SPANS: readonly (readonly [string, Span])[] = [["1 h", { seconds: 3600, step: "10s", ahead: 900, again: 10000 }], ["6 h", { seconds: 21600, step: "1min", ahead: 5400, again: 30000 }],
  ["1 day", { seconds: 86400, step: "5min", ahead: 21600, again: 60000 }], ["1 week", { seconds: 604800, step: "1h", ahead: 86400, again: 300000 }]];
const SETTLE_MS = 250; // before a chosen area's history is asked for
const SHRUNK_MAX = 100;
const AXIS = 62; // pixels: "1.25 kW"

export class AreaView {
  readonly element: HTMLElement;
  private readonly title = h("h2", { tabindex: -1 });
  private readonly path = h("span", { class: "small" });
  private readonly power = new Tile("Power now");
  private readonly cap: Tile;
  private readonly meter = new Meter();
  private readonly budget: Tile;
  private readonly price = new Tile("Price now");
  private readonly carbon = new Tile("Carbon");
  private readonly people = new Tile("Nobody there");
  private readonly lease = new Tile("Lease");
  private readonly span = new Choice("Window", SPANS, SPANS[1]![1], () => void this.fetch());
  private readonly chart: Chart;
  private readonly chartSays = h("p", { class: "small", role: "status" });
  private readonly why = h("button", { type: "button", class: "plainlink", onclick: () => void this.explain() }, "Which lines of the policy say so?");
  private readonly whyAt = h("input", { type: "datetime-local", "aria-label": "At which time", onchange: () => void this.explain() });
  private readonly whyRows: Rows<ExplainLine, HTMLTableRowElement>;
  private readonly whyCard: HTMLElement;
  private readonly whySays = new Says();
  private readonly shrunkRows: Rows<Shrunk, HTMLTableRowElement>;
  private readonly shrunkJobs: Rows<ShrunkJob, HTMLTableRowElement>;
  private readonly shrunkJobsTable: HTMLElement;
  private readonly shrunkCard: HTMLElement;
  private shrunkSeen = "";
  private readonly switches: Switches;
  private area: string | null = null;
  private answer: AreaEnergy | null = null;
  private fetched = 0;
  private prices: Price[] = [];
  private timer = 0;

  constructor(private readonly live: HubLive) {
    const chart = h("div"), why = h("tbody"), shrunk = h("tbody"), jobs = h("tbody");
    const value = (v: number | null) => watts(v === null ? null : v * 1e6);
    this.cap = new Tile("Cap", this.why);
    this.cap.element.classList.add("wide");
    this.budget = new Tile("Budget of today", this.meter.element);
    this.chart = new Chart(chart, {
      height: 240, label: "Power of the area with its bounds, its cap, and windows of the tariff", axis: (v) => (Math.abs(v) >= 1000 ? `${figure(v / 1000)} kW` : `${v} W`), band: [1, 0, "low"],
      curves: [{ label: "lowest", colour: "low", hidden: true, stepped: true, value }, { label: "highest", colour: "low", hidden: true, stepped: true, value },
        { label: "power", colour: "active", width: 2, stepped: true, value }, { label: "cap", colour: "alarm", dash: [6, 4], stepped: true, value }],
      left: () => AXIS, under: (plot) => this.paintPrices(plot),
    });
    this.whyRows = new Rows(why, (line) => `${line.what} ${line.line} ${line.text}`, (line) => h("tr", {}, h("th", { scope: "row" }, line.what),
      h("td", { "data-label": "Line" }, line.line === null ? "" : h("a", { href: `#policy/${line.line}` }, `line ${line.line}`)), h("td", { "data-label": "Says", class: "says-what" }, line.text)), () => undefined);
    this.whyCard = card("Which lines of the policy say so", h("div", { class: "field" }, h("label", {}, "at", this.whyAt)), this.whySays.element, table(["What", "Line", "Says"], why, "What is in force"));
    this.shrunkRows = new Rows(shrunk, (s) => s.node, (s) => h("tr", {}, h("th", { scope: "row" }, s.node), ...cells(["Jobs", "Fewer cores"])), (row, s) =>
      [number(s.jobs), number(s.cores)].forEach((text, i) => setText(row.cells[i + 1]!, text)));
    this.shrunkJobs = new Rows(jobs, (s) => `${s.node} ${s.user} ${s.job}`, (s) => h("tr", {}, h("th", { scope: "row" }, s.job), ...cells(["User", "Machine", "Fewer cores"])), (row, s) =>
      [s.user, s.node, number(s.cores)].forEach((text, i) => setText(row.cells[i + 1]!, text)));
    this.shrunkJobsTable = table(["Job", "User", "Machine", "Fewer cores"], jobs, "Jobs that have fewer cores");
    this.shrunkCard = card("Shrunk for the cap", table(["Machine", "Jobs", "Fewer cores"], shrunk, "Machines whose jobs have fewer cores"), this.shrunkJobsTable);
    this.switches = new Switches(live);
    this.element = h("div", { class: "one", hidden: true },
      h("section", { class: "card" }, h("header", {}, this.title, this.path),
        h("div", { class: "tiles" }, this.power.element, this.cap.element, this.budget.element, this.price.element, this.carbon.element, this.lease.element, this.people.element),
        h("div", { class: "toolbar" }, this.span.element), chart, this.chartSays),
      this.whyCard, this.switches.element, this.shrunkCard);
    this.whyCard.hidden = true;
  }

  /** @settled: by a click or Enter, not in passing. */
  choose(path: string, settled: boolean): void {
    if (this.area !== path) {
      this.area = path;
      this.answer = null;
      this.fetched = 0;
      this.whyCard.hidden = true;
      this.switches.choose(path);
      this.chart.show([[], [], [], [], []]);
      setText(this.chartSays, "");
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.fetch(), settled ? 0 : SETTLE_MS);
    }
    this.show();
    if (settled && matchMedia("(max-width: 900px)").matches) this.title.focus();
  }

  show(): void {
    const area = this.area === null ? undefined : this.live.byPath.get(this.area);
    this.element.hidden = !area;
    if (!area) return;
    setText(this.title, titleOf(area));
    const since = area.since_ms ? ` since ${moment(area.since_ms / 1000)}` : "";
    setText(this.path, [area.area, area.unit ? `unit ${area.unit}: ${area.state === "never" ? "never seen" : area.state + since}` : "the sum of what is below"].join(" · "));
    this.showTiles(area);
    this.switches.show(area);
    this.shrunkCard.hidden = !area.shrunk?.length;
    this.shrunkRows.show((area.shrunk ?? []).slice(0, SHRUNK_MAX));
    void this.showShrunkJobs(area);
    if (this.fetched && Date.now() - this.fetched > this.span.value.again) void this.fetch();
  }

  /** Which jobs of whom is asked for apart, when something has changed: the hub says what the user may see. */
  private async showShrunkJobs(area: Area): Promise<void> {
    const seen = JSON.stringify([area.area, area.shrunk ?? []]);
    if (seen === this.shrunkSeen) return;
    this.shrunkSeen = seen;
    this.shrunkJobsTable.hidden = true;
    if (!area.shrunk?.length) return;
    try {
      const { jobs } = await get<{ jobs: ShrunkJob[] }>(areaPath(area.area, "/shrunk"));
      if (seen !== this.shrunkSeen) return;
      this.shrunkJobsTable.hidden = !jobs.length;
      this.shrunkJobs.show(jobs.slice(0, SHRUNK_MAX));
    } catch {
      this.shrunkSeen = ""; // asked again with the next news
    }
  }

  private showTiles(area: Area): void {
    const { power } = area, cap = area.cap_uw, over = power !== null && cap !== null && power.low_uw > cap;
    this.power.show(watts(power?.mid_uw), area.state === "lost" && power ? `${bandText(power)}; the unit is lost` : bandText(power), over);
    const next = area.next_ms ? `may change ${whenOf(area.next_ms)}` : "";
    this.cap.show(cap === null ? "none" : watts(cap), [area.cap_by, area.kind && !area.cap_by?.includes(area.kind) ? area.kind : "", over ? "above it" : "", area.floor_uw ? `floor ${watts(area.floor_uw)}` : "", next].filter(Boolean).join(", "), over);
    const day = amount(area.budget?.day_uj), used = amount(area.budget?.used_uj);
    this.budget.show(day === null ? "none" : used === null ? UNKNOWN : `${number((100 * used) / (day || 1))} %`, day === null ? "" : `${joules(used)} of ${joules(day)}`, day !== null && used !== null && used > day);
    this.meter.element.hidden = day === null;
    this.meter.show(day && used !== null ? used / day : null);
    const price = area.price;
    this.price.element.hidden = price === null;
    if (price) this.price.show(`${amount(price.amount) === null ? UNKNOWN : number(amount(price.amount)!, 2)}`, `${price.unit}${price.until_ms ? `, until ${moment(price.until_ms / 1000)}` : ""}`);
    this.carbon.element.hidden = area.carbon_g === null;
    this.carbon.show(area.carbon_g === null ? "" : `${number(area.carbon_g)} g`, "CO₂ a kWh");
    this.lease.element.hidden = area.lease_uw === null;
    this.lease.show(watts(area.lease_uw), "what it may draw now");
    this.people.element.hidden = area.absent_s === null || area.absent_s === undefined;
    if (typeof area.absent_s === "number") this.people.show(area.absent_s > 0 ? duration(area.absent_s) : "no", area.absent_s > 0 ? "since then nobody was seen" : "somebody is there");
  }

  private async fetch(): Promise<void> {
    const { area } = this, { seconds, step, ahead, again } = this.span.value, now = Math.floor(Date.now() / 1000);
    const about = Math.floor(Date.now() / again) * again; // the hub makes one answer for all who ask the same
    if (area === null) return;
    this.fetched = Date.now();
    try {
      const answer = await get<AreaEnergy>(areaPath(area, `/energy?from=${about - seconds * 1000}&to=${about + ahead * 1000}&step=${step}`));
      if (area !== this.area) return;
      this.answer = answer;
      this.draw(now - seconds, now + ahead);
    } catch (error) {
      if (area === this.area) setText(this.chartSays, told(error));
    }
  }

  private draw(from: number, to: number): void {
    const answer = this.answer!, cap = this.live.byPath.get(answer.area)?.cap_uw ?? null, curves = curvesOf(answer, from, to, cap);
    this.prices = pricesOf(answer, from, to);
    this.chart.show([curves.times, curves.low, curves.high, curves.mid, curves.cap], [from, to]);
    const gap = answer.stretches.reduce((sum, s) => sum + (s.basis === "unknown" ? answer.step_ms : s.gap_ms), 0), known = curves.mid.some((v) => v !== null);
    const currency = this.live.currency ? `${this.live.currency}/kWh` : "the price of a kWh";
    setText(this.chartSays, [known ? "" : "Nothing is known of this window.", known && gap >= 1000 ? `Of ${duration(gap / 1000)} nothing is known: these are gaps, not 0.` : "",
      this.prices.length ? `Shaded: the tariff, ${currency}; the stronger, the dearer.` : ""].filter(Boolean).join(" "));
  }

  /** Behind the curves: windows of the tariff, shaded by price, with the price in figures; and where now is. */
  private paintPrices(plot: uPlot): void {
    const { ctx, bbox } = plot, ratio = bbox.width / Math.max(1, plot.over.clientWidth);
    const most = Math.max(...this.prices.map((p) => p.amount)), least = Math.min(...this.prices.map((p) => p.amount));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "left";
    for (const price of this.prices) {
      const left = plot.valToPos(price.from, "x", true), right = plot.valToPos(price.to, "x", true), share = most > least ? (price.amount - least) / (most - least) : 0;
      ctx.globalAlpha = 0.05 + 0.16 * share;
      ctx.fillStyle = colourOf("allowed");
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillStyle = colourOf("faint");
      const text = number(price.amount, 2);
      if (ctx.measureText(text).width + 8 * ratio < right - left) ctx.fillText(text, left + 4 * ratio, bbox.top + bbox.height - 3 * ratio);
    }
    const now = plot.valToPos(Date.now() / 1000, "x", true);
    ctx.fillStyle = colourOf("faint");
    ctx.fillRect(now, bbox.top, ratio, bbox.height);
    ctx.fillText("now", now + 4 * ratio, bbox.top + 13 * ratio);
    ctx.restore();
  }

  private async explain(): Promise<void> {
    const { area } = this, at = this.whyAt.value ? new Date(this.whyAt.value).getTime() : Date.now();
    if (area === null) return;
    this.whyCard.hidden = false;
    try {
      const said = await get<Explained>(areaPath(area, `/explain?at=${at}`));
      if (area !== this.area) return;
      this.whyRows.show(said.lines);
      this.whySays.say(`In force for ${said.area} ${whenOf(said.at_ms)}${said.lines.length ? "" : ": no rule"}.${said.next_ms ? ` A window opens or closes next ${whenOf(said.next_ms)}.` : ""}${clocks(said.zone ?? null)}`);
    } catch (error) {
      this.whyRows.show([]);
      this.whySays.say(told(error), true);
    }
    this.whyCard.scrollIntoView({ block: "nearest" });
  }
}

/** Windows of the policy are of its own clock, which may be another one than the reader's. */
function clocks(zone: string | null): string {
  const here = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  return zone === null || zone === here ? "" : ` Windows of the policy are of the clock of ${zone}, these times of ${here}.`;
}

/** "at 18:00", "on 24 Nov 18:00". */
function whenOf(ms: number): string {
  const text = moment(ms / 1000);
  return `${text.startsWith(date(ms / 1000)) ? "on" : "at"} ${text}`;
}
