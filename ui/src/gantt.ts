/* SPDX-License-Identifier: Apache-2.0 */
/* The history of jobs as rectangles over time: rows are cores, or jobs. */
import { PastJob } from "./api";
import { fillOf, lookOf, numberOf } from "./colour";
import { colourOf, h, Picture, setAttribute } from "./dom";
import { count, duration, mark, marksOf, moment, parseCores } from "./format";

/** One allocation of a job, from when it was given to the next one or the end. */
export interface Bar { job: PastJob; from: number; to: number; threads: number; cores: readonly number[]; coresText: string; reason: string; before: number | null }

/** The bars of all jobs that had exactly the cores of these rows: they shared them. */
interface Group { coresText: string; rows: readonly number[]; edges: Edge[]; jobs: number }
interface Edge { time: number; id: string; threads: number } // what the job has from then on

/** A job's place on its group's cores, from the pixel @x on. */
interface Place { x: number; from: number; to: number }

export type Rows = "cores" | "jobs";

const AXIS = 22, MARKS = 14, LEFT = 52, NAMES = 120;
const CORES_HEIGHT = 380, CORE_MOST = 26; // of the picture, of a row
const JOB_ROW = 22, JOB_ROWS_MAX = 400;
const SHORTEST_S = 10, LONGEST_S = 62 * 86400;
const RECTANGLES = 4000; // of a group in one frame
const MARK_GAP = 5; // pixels between two marks of decisions

/** Every allocation as a bar that ends where the next one begins. Nothing is known behind @end. */
export function barsOf(jobs: readonly PastJob[], end: number): Bar[] {
  const bars: Bar[] = [];
  for (const job of jobs) {
    const given = [...job.allocations].sort((a, b) => a.time - b.time);
    given.forEach((a, i) => {
      const to = given[i + 1]?.time ?? Math.min(job.ended ?? end, end);
      bars.push({ job, from: a.time, to: Math.max(a.time, to), threads: a.threads, cores: parseCores(a.cores), coresText: a.cores, reason: a.reason, before: given[i - 1]?.threads ?? (job.cut ? null : 0) });
    });
  }
  return bars.sort((a, b) => a.from - b.from);
}

/** The sum of threads over time, as the points of a step curve. */
export function stepsOf(bars: readonly Bar[], until: number): { times: number[]; threads: number[] } {
  const changes = bars.flatMap((bar): [number, number][] => (bar.to < until ? [[bar.from, bar.threads], [bar.to, -bar.threads]] : [[bar.from, bar.threads]])).sort((a, b) => a[0] - b[0]);
  const times: number[] = [], threads: number[] = [];
  let sum = 0;
  for (const [time, by] of changes) {
    sum += by;
    if (times[times.length - 1] === time) threads[threads.length - 1] = sum;
    else {
      times.push(time);
      threads.push(sum);
    }
  }
  if (times.length && times[times.length - 1]! < until) {
    times.push(until);
    threads.push(sum);
  }
  return { times, threads };
}

/** @place: the row of each core; the machine may have had others then. */
function groupsOf(bars: readonly Bar[], place: ReadonlyMap<number, number>): Group[] {
  const groups = new Map<string, Group>();
  for (const bar of bars) {
    if (bar.to <= bar.from || bar.cores.length === 0) continue;
    let group = groups.get(bar.coresText);
    if (!group) groups.set(bar.coresText, (group = { coresText: bar.coresText, rows: bar.cores.flatMap((core) => place.get(core) ?? []), edges: [], jobs: 0 }));
    group.edges.push({ time: bar.from, id: bar.job.id, threads: bar.threads }, { time: bar.to, id: bar.job.id, threads: 0 });
  }
  // An end before a begin at the same time: the same job goes on.
  for (const group of groups.values()) {
    group.edges.sort((a, b) => a.time - b.time || a.threads - b.threads);
    group.jobs = new Set(group.edges.map((edge) => edge.id)).size;
  }
  return [...groups.values()].filter((group) => group.rows.length > 0).sort((a, b) => b.rows.length - a.rows.length); // narrow ones are drawn above wide ones
}

/** Where each of the jobs that share @n cores stands: side by side, as many cores as it has threads. */
function placesOf(has: ReadonlyMap<string, number>, n: number): Map<string, [number, number]> {
  let sum = 0, at = 0;
  for (const threads of has.values()) sum += threads;
  const scale = sum > n ? n / sum : 1, places = new Map<string, [number, number]>();
  for (const [id, threads] of [...has].sort((a, b) => numberOf(a[0]) - numberOf(b[0]))) {
    places.set(id, [at, at + threads * scale]);
    at += threads * scale;
  }
  return places;
}

/** Round steps of an axis of time, at least @least seconds. */
function stepOf(least: number): number {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];
  return steps.find((step) => step >= least) ?? 2419200;
}

export class Gantt {
  readonly element: HTMLElement;
  from: number;
  to: number;
  rows: Rows = "cores";
  chosen: string | null = null; // job id
  private readonly picture: Picture;
  private readonly room = h("div", { class: "rows" });
  private readonly tip = h("div", { class: "tip", hidden: true });
  private bars: Bar[] = [];
  private jobs: PastJob[] = [];
  private cores: readonly number[] = [0]; // their numbers
  private groups: Group[] = [];
  private listed: PastJob[] = []; // the rows, where rows are jobs
  private grip: { x: number; from: number; to: number; pan: boolean } | null = null;
  private selection: [number, number] | null = null;
  private pinch = new Map<number, number>();

  constructor(private readonly onRange: () => void, private readonly onChoose: (id: string | null) => void) {
    this.to = Date.now() / 1000;
    this.from = this.to - 600;
    this.picture = new Picture({ class: "gantt", tabindex: 0, role: "img", "aria-describedby": "gantt-keys" }, (c, width, height) => this.paint(c, width, height));
    const canvas = this.picture.canvas;
    canvas.addEventListener("pointerdown", (e) => this.press(e));
    canvas.addEventListener("pointermove", (e) => this.move(e));
    canvas.addEventListener("pointerup", (e) => this.release(e));
    canvas.addEventListener("pointercancel", () => this.cancel());
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("dblclick", () => this.zoom(3, 0.5));
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    canvas.addEventListener("keydown", (e) => this.key(e));
    this.room.append(canvas);
    this.room.addEventListener("scroll", () => this.rows === "jobs" && this.picture.draw(), { passive: true });
    this.element = h("div", { class: "pictured" }, this.room, this.tip,
      h("p", { id: "gantt-keys", class: "small" }, "Drag to zoom, Shift and drag to move, Ctrl and the wheel to zoom; keys: ← → + − 0."));
  }

  show(jobs: PastJob[], bars: Bar[], cores: readonly number[]): void {
    this.jobs = jobs;
    this.bars = bars;
    this.cores = cores;
    this.groups = groupsOf(bars, new Map(cores.map((core, i) => [core, i])));
    this.layOut();
    this.picture.draw();
  }

  redraw(): void {
    this.layOut();
    this.picture.draw();
  }

  /** Bars of which a part is in the window, oldest first. */
  seen(): Bar[] {
    return this.bars.filter((bar) => bar.to >= this.from && bar.from <= this.to);
  }

  private findJobs(): PastJob[] {
    const now = Date.now() / 1000;
    return this.jobs.filter((job) => job.submitted <= this.to && (job.ended ?? now) >= this.from)
      .sort((a, b) => (a.begun ?? a.submitted) - (b.begun ?? b.submitted)).slice(-JOB_ROWS_MAX);
  }

  private layOut(): void {
    if (this.rows === "jobs") this.listed = this.findJobs();
    const seen = new Set(this.seen().map((bar) => bar.job.name || bar.job.id));
    setAttribute(this.picture.canvas, "aria-label", `${moment(this.from)} to ${moment(this.to)}, ${this.rows === "cores" ? `${this.cores.length} cores` : "a row for each job"}: ` +
      `${count(seen.size, "job")}. ${[...seen].slice(0, 20).join(", ")}`);
    const rows = this.rows === "cores" ? Math.max(60, this.cores.length * this.coreHeight()) : Math.max(3, this.listed.length) * JOB_ROW;
    this.picture.setHeight(rows + AXIS + MARKS);
  }

  /** Rows of jobs of which a part can be seen: only these are painted. */
  private rowsSeen(): [number, number] {
    const from = Math.floor((this.room.scrollTop - MARKS) / JOB_ROW);
    return [Math.max(0, from), Math.min(this.listed.length, from + Math.ceil(this.room.clientHeight / JOB_ROW) + 2)];
  }

  private coreHeight(): number {
    return Math.max(1, Math.min(CORE_MOST, Math.floor(CORES_HEIGHT / this.cores.length)));
  }

  /** Where the time begins. */
  left(): number {
    return this.rows === "cores" ? LEFT : Math.min(NAMES, this.picture.width / 3);
  }

  private x(time: number): number {
    return this.left() + ((time - this.from) / (this.to - this.from)) * (this.picture.width - this.left());
  }

  private time(x: number): number {
    return this.from + ((x - this.left()) / (this.picture.width - this.left())) * (this.to - this.from);
  }

  private paint(c: CanvasRenderingContext2D, width: number, height: number): void {
    const left = this.left();
    this.paintAxis(c, width, height);
    c.save();
    c.beginPath();
    c.rect(left, 0, width - left, height);
    c.clip();
    if (this.rows === "cores") this.paintCores(c, width);
    else this.paintJobs(c, width);
    this.paintMarks(c);
    const now = this.x(Date.now() / 1000);
    c.fillStyle = colourOf("active");
    c.fillRect(now, MARKS, 1.5, height - AXIS - MARKS);
    if (this.selection) {
      c.fillStyle = `${colourOf("active")}40`;
      c.fillRect(Math.min(...this.selection), MARKS, Math.abs(this.selection[1] - this.selection[0]), height - AXIS - MARKS);
    }
    c.restore();
    this.paintNames(c);
  }

  private paintAxis(c: CanvasRenderingContext2D, width: number, height: number): void {
    const step = stepOf(((this.to - this.from) / Math.max(1, width - this.left())) * 90);
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "center";
    for (const t of marksOf(this.from, this.to, step)) {
      const x = this.x(t);
      c.fillStyle = colourOf("line");
      c.fillRect(x, MARKS, 1, height - AXIS - MARKS);
      c.fillStyle = colourOf("faint");
      c.fillText(mark(t, step), Math.min(x, width - 24), height - 6);
    }
  }

  private paintCores(c: CanvasRenderingContext2D, width: number): void {
    const high = this.coreHeight(), gap = high > 5 ? 1 : 0, fills = new Map<string, string | CanvasPattern>();
    const left = this.left(), scale = (width - left) / (this.to - this.from);
    const rectangle = (rows: readonly number[], id: string, place: Place, x: number) => {
      let fill = fills.get(id);
      if (!fill) fills.set(id, (fill = fillOf(c, id)));
      c.globalAlpha = this.chosen && this.chosen !== id ? 0.2 : 1;
      c.fillStyle = fill;
      for (let i = Math.floor(place.from); i < place.to - 1e-6; ) {
        let run = 1; // rows that follow each other are one rectangle
        while (i + run < place.to - 1e-6 && rows[i + run] === rows[i]! + run) run++;
        const top = Math.max(place.from, i) - i, bottom = Math.min(place.to, i + run) - i;
        c.fillRect(place.x, MARKS + (rows[i]! + top) * high, Math.max(1, x - place.x), (bottom - top) * high - gap);
        i += run;
      }
    };
    for (const group of this.groups) this.paintGroup(group, left, scale, width, rectangle);
    c.globalAlpha = 1;
  }

  /** Sweeps over the group's changes. Those within one pixel are one. */
  private paintGroup(group: Group, left: number, scale: number, width: number,
    rectangle: (rows: readonly number[], id: string, place: Place, x: number) => void): void {
    const has = new Map<string, number>(), open = new Map<string, Place>();
    const settle = (x: number) => {
      const places = placesOf(has, group.rows.length);
      for (const [id, place] of open) {
        const now = places.get(id);
        if (now && Math.abs(now[0] - place.from) < 1e-6 && Math.abs(now[1] - place.to) < 1e-6) continue;
        if (x > left) rectangle(group.rows, id, { ...place, x: Math.max(left, place.x) }, x);
        open.delete(id);
      }
      for (const [id, [from, to]] of places) if (!open.has(id)) open.set(id, { x, from, to });
    };
    if (group.edges[0]!.time > this.to || group.edges[group.edges.length - 1]!.time < this.from) return;
    // As many rectangles as a frame can draw: where many jobs change all the time, changes that are close are one.
    const seen = group.edges.filter((edge) => edge.time >= this.from && edge.time <= this.to).length;
    const changes = Math.min(seen, width), step = changes * group.jobs > RECTANGLES ? (width * group.jobs) / RECTANGLES : 1;
    let pixel = -Infinity, settled = left;
    for (const edge of group.edges) {
      const x = left + (edge.time - this.from) * scale;
      if (x > width) break;
      if (x > settled + step && pixel !== -Infinity) {
        settle(Math.max(pixel, left));
        settled = x;
      }
      pixel = Math.max(pixel, x);
      if (edge.threads) has.set(edge.id, edge.threads);
      else has.delete(edge.id);
    }
    if (pixel === -Infinity) return;
    settle(Math.max(pixel, left));
    has.clear();
    settle(group.edges[group.edges.length - 1]!.time <= this.to ? Math.max(pixel, left) : width);
  }

  private paintJobs(c: CanvasRenderingContext2D, width: number): void {
    const [first, end] = this.rowsSeen(), row = new Map(this.listed.slice(first, end).map((job, i) => [job, first + i]));
    const now = Date.now() / 1000, most = this.bars.reduce((n, bar) => Math.max(n, bar.threads), 1);
    c.fillStyle = colourOf("faint");
    for (const [job, i] of row) {
      const y = MARKS + i * JOB_ROW, x0 = this.x(job.submitted), x1 = this.x(job.begun ?? job.ended ?? now);
      if (x1 - x0 > 1) for (let x = Math.max(x0, 0); x < Math.min(x1, width); x += 6) c.fillRect(x, y + JOB_ROW / 2, 3, 1.5); // it waits
    }
    const fills = new Map<string, string | CanvasPattern>();
    for (const bar of this.bars) {
      const i = row.get(bar.job);
      if (i === undefined || bar.to < this.from || bar.from > this.to || bar.threads === 0) continue;
      const x0 = this.x(bar.from), high = Math.max(3, ((JOB_ROW - 3) * bar.threads) / most);
      c.globalAlpha = this.chosen && this.chosen !== bar.job.id ? 0.25 : 1;
      let fill = fills.get(bar.job.id);
      if (!fill) fills.set(bar.job.id, (fill = fillOf(c, bar.job.id)));
      c.fillStyle = fill;
      c.fillRect(x0, MARKS + (i + 1) * JOB_ROW - high - 1, Math.max(1, this.x(bar.to) - x0), high);
    }
    c.globalAlpha = 1;
  }

  /** A triangle where somebody's cores or threads changed. */
  private paintMarks(c: CanvasRenderingContext2D): void {
    let last = -Infinity;
    c.fillStyle = colourOf("text");
    for (const bar of this.bars) {
      if (bar.from < this.from || bar.from > this.to) continue;
      if (this.chosen && bar.job.id !== this.chosen) continue;
      const x = this.x(bar.from);
      if (x - last < MARK_GAP) continue;
      last = x;
      c.beginPath();
      c.moveTo(x - 3.5, 2);
      c.lineTo(x + 3.5, 2);
      c.lineTo(x, 10);
      c.fill();
    }
  }

  private paintNames(c: CanvasRenderingContext2D): void {
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = colourOf("faint");
    if (this.rows === "cores") {
      const high = this.coreHeight(), every = Math.max(1, Math.ceil(14 / high));
      c.textAlign = "right";
      for (let row = 0; row < this.cores.length; row += every) c.fillText(String(this.cores[row]), LEFT - 8, MARKS + row * high + high / 2 + 4);
      return;
    }
    c.textAlign = "left";
    const [first, end] = this.rowsSeen(), rows = this.listed.slice(first, end), text = colourOf("text");
    const top = (i: number) => MARKS + (first + i) * JOB_ROW;
    rows.forEach((job, i) => {
      c.fillStyle = fillOf(c, job.id);
      c.fillRect(0, top(i) + 5, 12, 12);
    });
    c.fillStyle = "#111";
    c.font = "bold 10px ui-monospace, monospace";
    rows.forEach((job, i) => c.fillText(lookOf(job.id).mark, 3, top(i) + 15));
    c.fillStyle = text;
    c.font = "12px system-ui, sans-serif";
    rows.forEach((job, i) => c.fillText(job.name || job.id, 18, top(i) + 15, this.left() - 24));
  }

  // ---- what a person does ----

  setRange(from: number, to: number): void {
    const middle = (from + to) / 2, span = Math.min(LONGEST_S, Math.max(SHORTEST_S, to - from));
    this.from = middle - span / 2;
    this.to = middle + span / 2;
    this.onRange(); // which draws
  }

  /** @times as much, around the point at @share of the window. */
  zoom(times: number, share: number): void {
    const at = this.from + share * (this.to - this.from), span = (this.to - this.from) * times;
    this.setRange(at - share * span, at + (1 - share) * span);
  }

  pan(share: number): void {
    const by = share * (this.to - this.from);
    this.setRange(this.from + by, this.to + by);
  }

  now(): void {
    const now = Date.now() / 1000;
    this.setRange(now - (this.to - this.from), now);
  }

  private key(event: KeyboardEvent): void {
    const does: { [key: string]: () => void } = {
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.6, 0.5), "=": () => this.zoom(0.6, 0.5),
      "-": () => this.zoom(1 / 0.6, 0.5), "0": () => this.now(),
    };
    const what = does[event.key];
    if (!what || event.ctrlKey || event.metaKey) return;
    what();
    event.preventDefault();
    event.stopPropagation();
  }

  private wheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    const share = (event.offsetX - this.left()) / (this.picture.width - this.left());
    if (event.ctrlKey) this.zoom(Math.exp(event.deltaY / 300), Math.max(0, Math.min(1, share)));
    else this.pan((event.deltaY || event.deltaX) / 1500);
  }

  private press(event: PointerEvent): void {
    this.pinch.set(event.pointerId, event.offsetX);
    this.grip = { x: event.offsetX, from: this.from, to: this.to, pan: event.shiftKey || event.pointerType === "touch" };
    if (event.pointerType !== "touch") this.picture.canvas.setPointerCapture(event.pointerId);
  }

  private move(event: PointerEvent): void {
    if (this.pinch.has(event.pointerId) && this.pinch.size === 2) {
      this.spread(event);
      return;
    }
    if (!this.grip) {
      this.hover(event);
      return;
    }
    const by = event.offsetX - this.grip.x;
    if (this.grip.pan) {
      const s = (by / (this.picture.width - this.left())) * (this.grip.to - this.grip.from);
      this.setRange(this.grip.from - s, this.grip.to - s);
    } else if (Math.abs(by) > 4) {
      this.selection = [this.grip.x, event.offsetX];
      this.picture.draw();
    }
  }

  private spread(event: PointerEvent): void {
    const [a, b] = [...this.pinch.values()] as [number, number], before = Math.abs(a - b);
    this.pinch.set(event.pointerId, event.offsetX);
    const [p, q] = [...this.pinch.values()] as [number, number], after = Math.abs(p - q);
    if (before > 8 && after > 8) this.zoom(before / after, ((p + q) / 2 - this.left()) / (this.picture.width - this.left()));
    this.grip = null;
  }

  private release(event: PointerEvent): void {
    const selection = this.selection, grip = this.grip;
    this.cancel();
    this.pinch.delete(event.pointerId);
    if (selection) this.setRange(this.time(Math.min(...selection)), this.time(Math.max(...selection)));
    else if (grip && Math.abs(event.offsetX - grip.x) < 4) {
      const bar = this.barAt(event.offsetX, event.offsetY);
      this.onChoose(bar && bar.job.id !== this.chosen ? bar.job.id : null);
    }
  }

  private cancel(): void {
    this.grip = this.selection = null;
    this.pinch.clear();
    this.picture.draw();
  }

  private barAt(x: number, y: number): Bar | undefined {
    const time = this.time(x);
    if (y < MARKS) { // the nearest decision
      const near = this.bars.filter((bar) => Math.abs(this.x(bar.from) - x) < 6);
      return near.sort((a, b) => Math.abs(this.x(a.from) - x) - Math.abs(this.x(b.from) - x))[0];
    }
    const here = this.bars.filter((bar) => bar.from <= time && time < bar.to);
    if (this.rows === "jobs") {
      const job = this.listed[Math.floor((y - MARKS) / JOB_ROW)];
      return here.find((bar) => bar.job === job);
    }
    const at = (y - MARKS) / this.coreHeight(), row = Math.floor(at);
    for (const group of [...this.groups].reverse()) {
      const i = group.rows.indexOf(row);
      if (i < 0) continue;
      const sharing = here.filter((bar) => bar.coresText === group.coresText);
      for (const [id, [from, to]] of placesOf(new Map(sharing.map((bar) => [bar.job.id, bar.threads])), group.rows.length))
        if (from <= i + at - row && i + at - row < to) return sharing.find((bar) => bar.job.id === id);
    }
    return undefined;
  }

  private hover(event: PointerEvent): void {
    const bar = this.barAt(event.offsetX, event.offsetY);
    this.tip.hidden = !bar;
    if (!bar) return;
    this.tip.replaceChildren(h("b", {}, bar.job.name || bar.job.id), ` ${count(bar.threads, "thread")}${bar.cores.length ? ` on ${count(bar.cores.length, "core")}` : ""}`,
      h("br"), `${moment(bar.from)}, for ${duration(bar.to - bar.from)}`, h("br"), bar.reason);
    this.tip.style.left = `${Math.max(0, Math.min(event.offsetX + 14, this.picture.width - 250))}px`;
    this.tip.style.top = `${event.offsetY + 18}px`;
  }
}
