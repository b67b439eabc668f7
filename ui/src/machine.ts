/* SPDX-License-Identifier: Apache-2.0 */
/* Page 1: who has which cores and threads now, how far each job is, and why. */
import { Job, Latency, Machine } from "./api";
import { Chart } from "./chart";
import { swatch } from "./colour";
import { Detail } from "./detail";
import { h, Rows, setAttribute, setText, setWidth } from "./dom";
import { bytes, clock, count, duration, figure, number, UNKNOWN, watts } from "./format";
import { Live } from "./live";
import { Strip } from "./strip";
import type { Page } from "./frame";

const FILTER_FROM = 8; // jobs
const CHART_DRAW_MS = 1000;

const WAITING = new Set(["queued", "held", "paused"]);

const waits = (job: Job): boolean => WAITING.has(job.state);

class Tile {
  readonly element: HTMLElement;
  private readonly value = h("b");
  private readonly more = h("span");
  readonly extra = h("div");

  constructor(name: string) {
    this.element = h("div", { class: "tile" }, h("h3", {}, name), this.value, this.more, this.extra);
  }

  show(value: string, more: string, alarm = false): void {
    setText(this.value, value);
    setText(this.more, more);
    this.element.classList.toggle("alarm", alarm);
  }
}

/** A bar of what is used (filled), what may be used (outline), in relation to @most. */
class Bullet {
  readonly element: HTMLElement;
  private readonly used = h("i", { class: "used" });
  private readonly may = h("i", { class: "may" });

  constructor() {
    this.element = h("span", { class: "bullet", "aria-hidden": "true" }, this.may, this.used);
  }

  show(used: number, may: number, most: number, over: boolean): void {
    const percent = (n: number) => `${Math.min(100, (100 * n) / Math.max(1, most))}%`;
    setWidth(this.used, percent(used));
    setWidth(this.may, percent(may));
    this.element.classList.toggle("over", over);
  }
}

interface JobRow extends HTMLTableRowElement { parts?: RowParts }
interface RowParts {
  state: HTMLElement; threads: HTMLElement; bullet: Bullet; cores: HTMLElement; bar: HTMLElement; fill: HTMLElement; done: HTMLElement;
  rate: HTMLElement; why: HTMLElement; power: HTMLElement;
}

export class MachinePage implements Page {
  readonly element: HTMLElement;
  readonly title = "Machine";
  private readonly tiles = {
    cores: new Tile("Cores"), threads: new Tile("Active threads"), jobs: new Tile("Jobs"),
    over: new Tile("Oversubscription"), policy: new Tile("Policy"), memory: new Tile("Memory of jobs"),
  };
  private readonly bullet = new Bullet();
  private readonly strip: Strip;
  private readonly chart: Chart;
  private readonly detail: Detail;
  private readonly running: Rows<Job, JobRow>;
  private readonly waiting: Rows<Job, HTMLTableRowElement>;
  private readonly filter = h("input", { type: "search", placeholder: "Filter by name, owner, state  ( / )", "aria-label": "Filter jobs",
    oninput: () => this.show() });
  private readonly runningCard: HTMLElement;
  private readonly waitingCard: HTMLElement;
  private readonly empty = h("p", { class: "none" }, "No job runs. Start one: ", h("code", {}, "tide run --name cnn -- python train.py"));
  private readonly notes = h("ul", { class: "notes" });
  private drawn = 0;
  private power = false;

  constructor(private readonly live: Live) {
    this.strip = new Strip((id) => this.open(id, null));
    this.detail = new Detail(live, () => {
      this.strip.selected = null;
      this.show();
    });
    const chart = h("div");
    this.chart = new Chart(chart, {
      height: 170, label: "Allowed and active threads of the last ten minutes",
      curves: [{ label: "allowed", colour: "allowed", stepped: true, width: 1.6, value: (v) => (v === null ? UNKNOWN : number(v)) },
        { label: "active", colour: "active", stepped: true, width: 2, fill: true, value: (v) => (v === null ? UNKNOWN : number(v)) },
        { label: "cores", colour: "faint", dash: [5, 4], value: (v) => (v === null ? UNKNOWN : number(v)) }],
    });
    const runningBody = h("tbody"), waitingBody = h("tbody");
    this.running = new Rows(runningBody, (job) => job.id, (job) => this.makeRow(job), (row, job) => this.updateRow(row, job));
    this.waiting = new Rows(waitingBody, (job) => job.id, (job) => h("tr", {}, h("td", { "data-label": "Place" }), this.nameCell(job),
      h("td", { "data-label": "State" }), h("td", { "data-label": "Waiting" }), h("td", { class: "why", "data-label": "Why" })),
    (row, job) => [job.place === null ? UNKNOWN : String(job.place), null, job.state, duration(job.wait_s), job.reason]
      .forEach((text, i) => text !== null && setText(row.cells[i]!, text)));
    this.runningCard = h("section", { class: "card running" }, h("header", {}, h("h2", {}, "Jobs"), this.filter), this.empty,
      h("div", { class: "scroll" }, h("table", { class: "jobs" }, h("thead", {}, h("tr", {}, ...["Job", "State", "Threads", "Cores", "Progress", "Power", "Why"]
        .map((name) => h("th", { scope: "col", class: name === "Power" ? "power" : null }, name)))), runningBody)));
    this.waitingCard = h("section", { class: "card" }, h("header", {}, h("h2", {}, "Waiting")),
      h("div", { class: "scroll" }, h("table", { class: "jobs waiting" }, h("thead", {}, h("tr", {}, ...["Place", "Job", "State", "Waiting", "Why"]
        .map((name) => h("th", { scope: "col" }, name)))), waitingBody)));
    this.tiles.threads.extra.append(this.bullet.element);
    this.element = h("div", { class: "page machine" },
      h("div", { class: "main" }, h("div", { class: "tiles" }, ...Object.values(this.tiles).map((t) => t.element)),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Cores"), h("span", { class: "small" }, "coloured by job; jobs that share cores stand side by side, by their threads")), this.strip.element),
        this.runningCard, this.waitingCard,
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Threads"), h("span", { class: "small" }, "since this page was opened")), chart), this.notes),
      this.detail.element);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
  }

  private nameCell(job: Job): HTMLTableCellElement {
    const open: HTMLButtonElement = h("button", { class: "name", "data-job": job.id, onclick: () => this.open(job.id, open) },
      swatch(job.id), h("span", {}, job.name || job.id));
    return h("td", { "data-label": "Job" }, open, h("span", { class: "small" }, `${job.id} · ${job.owner}`));
  }

  private makeRow(job: Job): JobRow {
    const text = () => h("span");
    const parts: RowParts = { state: text(), threads: text(), bullet: new Bullet(), cores: text(), fill: h("i"), bar: h("span", { class: "bar", role: "progressbar", "aria-label": `Progress of ${job.name || job.id}` }),
      done: text(), rate: h("span", { class: "small" }), why: text(), power: text() };
    parts.bar.append(parts.fill);
    const row: JobRow = h("tr", {}, this.nameCell(job), h("td", { "data-label": "State" }, parts.state),
      h("td", { "data-label": "Threads" }, parts.threads, parts.bullet.element), h("td", { "data-label": "Cores", class: "cores" }, parts.cores),
      h("td", { "data-label": "Progress" }, parts.done, parts.bar, parts.rate), h("td", { "data-label": "Power", class: "power" }, parts.power),
      h("td", { "data-label": "Why", class: "why" }, parts.why));
    row.parts = parts;
    return row;
  }

  private updateRow(row: JobRow, job: Job): void {
    const p = row.parts!, over = job.active > job.target && job.target > 0;
    setText(p.state, job.state);
    setAttribute(p.state, "class", `state ${job.state}${job.oversubscribed ? " alarm" : ""}`);
    setAttribute(p.state, "title", job.note || null);
    setText(p.threads, job.active || job.target ? `${job.active || UNKNOWN} of ${job.target || UNKNOWN}` : UNKNOWN);
    setAttribute(p.threads, "title", `${job.active || UNKNOWN} active, ${job.target || UNKNOWN} allowed, built with ${job.max || UNKNOWN}`);
    p.bullet.show(job.active, job.target, this.live.machine?.cpus ?? 1, over);
    setText(p.cores, job.cores || UNKNOWN);
    this.updateProgress(p, job);
    setText(p.power, watts(job.power_uw));
    setText(p.why, job.reason);
    row.classList.toggle("chosen", this.detail.shown === job.id);
  }

  /** A server with a promise: what its requests take, and how often they kept it. */
  private updateLatency(p: RowParts, latency: Latency, promise_us: number): void {
    p.bar.hidden = true;
    const mark = latency.source === "told" ? "" : "~"; // estimated from calls of a runtime
    setText(p.done, `p99 ${latency.p99_us === null ? UNKNOWN : mark + figure(latency.p99_us / 1000)} of ${figure(promise_us / 1000)} ms`);
    const kept = latency.kept === null ? "" : `kept ${(100 * latency.kept).toFixed(1)} %`;
    setText(p.rate, [`${number(latency.rate)} requests/s`, kept].filter(Boolean).join(" · "));
  }

  private updateProgress(p: RowParts, job: Job): void {
    if (job.latency?.promise_us) {
      this.updateLatency(p, job.latency, job.latency.promise_us);
      return;
    }
    const { done, total, unit, rate } = job.progress;
    const known = total > 0, percent = known ? Math.min(100, (100 * done) / total) : 0;
    p.bar.hidden = !known;
    setWidth(p.fill, `${percent.toFixed(1)}%`);
    if (known) {
      setAttribute(p.bar, "aria-valuenow", percent.toFixed(0));
      setText(p.done, `${percent >= 100 ? "100" : percent.toFixed(percent < 10 ? 1 : 0)} %`);
    } else setText(p.done, done > 0 ? `${number(done)} ${unit}` : UNKNOWN);
    const left = known && rate > 0 && done < total ? (total - done) / rate : null;
    const speed = rate > 0 ? `${figure(rate)} ${unit || "units"}/s` : "";
    const end = left === null ? "" : `ends ${clock(Date.now() / 1000 + left, left < 600)}, in ${duration(left)}`;
    setText(p.rate, [speed, end].filter(Boolean).join(" · "));
  }

  private open(id: string, opener: HTMLElement | null): void {
    this.strip.selected = id;
    this.detail.open(id, opener ?? this.element.querySelector<HTMLElement>(`button[data-job="${CSS.escape(id)}"]`));
    this.show();
  }

  private onKey(event: KeyboardEvent): void {
    const at = document.activeElement;
    if (!(at instanceof HTMLButtonElement) || !at.dataset.job || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
    const names = [...this.element.querySelectorAll<HTMLButtonElement>("button[data-job]")];
    names[names.indexOf(at) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
    event.preventDefault();
  }

  focusFilter(): void {
    if (!this.filter.hidden) this.filter.focus();
  }

  private wanted(job: Job): boolean {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${job.id} ${job.name} ${job.owner} ${job.state}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  show(): void {
    const { machine, jobs } = this.live;
    if (!machine || this.element.hidden) return;
    const begun = jobs.filter((job) => !waits(job)), waiting = jobs.filter(waits);
    this.showTiles(machine, begun, waiting);
    this.strip.show(machine, begun);
    this.filter.hidden = jobs.length < FILTER_FROM && this.filter.value === "";
    this.empty.hidden = jobs.length > 0;
    this.setPower(begun.some((job) => typeof job.power_uw === "number"));
    this.running.show(begun.filter((job) => this.wanted(job)));
    this.runningCard.querySelector("table")!.hidden = begun.length === 0;
    this.waiting.show(waiting.filter((job) => this.wanted(job)).sort((a, b) => (a.place ?? Infinity) - (b.place ?? Infinity)));
    this.waitingCard.hidden = waiting.length === 0;
    this.detail.show();
    this.showChart();
    const notes = machine.notes.join("\n");
    if (this.notes.dataset.shown !== notes) {
      this.notes.dataset.shown = notes;
      this.notes.replaceChildren(...machine.notes.map((note) => h("li", {}, note)));
    }
  }

  private setPower(power: boolean): void {
    this.power = power;
    this.runningCard.classList.toggle("with-power", this.power);
  }

  private showTiles(machine: Machine, begun: Job[], waiting: Job[]): void {
    const active = begun.reduce((sum, job) => sum + job.active, 0), allowed = begun.reduce((sum, job) => sum + job.target, 0);
    const silent = begun.filter((job) => job.active === 0).length; // nobody tells of their threads
    const over = active - machine.cpus, rigid = begun.filter((job) => job.state === "rigid").length;
    this.tiles.cores.show(number(machine.cpus), `${number(machine.free)} free`);
    this.tiles.threads.show(number(active), `of ${number(allowed)} allowed${silent ? `; unknown of ${count(silent, "job")}` : ""}`);
    this.bullet.show(active, allowed, Math.max(machine.cpus, allowed), active > machine.cpus);
    this.tiles.jobs.show(number(begun.length), waiting.length ? `${number(waiting.length)} waiting` : rigid ? `${rigid} rigid` : "none waiting");
    this.tiles.over.show(over > 0 ? `+${number(over)}` : "none", over > 0 ? `${count(over, "thread")} above the cores` : machine.oversubscribed ? "some cores are shared" : "no more threads than cores",
      over > 0);
    const [name, ...parameters] = machine.policy.split("/");
    this.tiles.policy.show(name ?? "", parameters.join(" ") || `cores ${machine.placement}`);
    const used = begun.reduce((sum, job) => sum + (job.memory_used ?? 0), 0);
    this.tiles.memory.show(used ? bytes(used) : UNKNOWN, machine.memory ? `of ${bytes(machine.memory)}` : "no limit: submitted jobs do not wait for memory");
  }

  private showChart(): void {
    const now = performance.now();
    if (now - this.drawn < CHART_DRAW_MS * 0.8) return;
    this.drawn = now;
    const samples = this.live.samples;
    this.chart.show([samples.map((s) => s.time), samples.map((s) => s.allowed), samples.map((s) => s.active), samples.map((s) => s.cores)]);
  }
}
