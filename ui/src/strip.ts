/* SPDX-License-Identifier: Apache-2.0 */
/* The strip of cores: a cell a core, filled by the jobs that have it. */
import { Job, Machine } from "./api";
import { fillOf, lookOf } from "./colour";
import { colourOf, h, Picture, setAttribute } from "./dom";
import { coreNumbers, parseCores } from "./format";

const GAP = 3;
const SMALLEST = 12, LARGEST = 100; // width of a cell
const LABEL_WIDTH = 26; // from which a cell has its number
const ROWS_WANTED = 4;

interface Part { id: string; share: number } // of the core's height

/**
 * The jobs on each of @numbers, the machine's cores. Jobs that share the same cores are laid side by side on them, as many as they have threads; in
 * proportion to these when there are more threads than cores.
 */
export function divideCores(numbers: readonly number[], jobs: readonly Job[]): Part[][] {
  const parts: Part[][] = numbers.map(() => []), place = new Map(numbers.map((core, i) => [core, i]));
  const groups = new Map<string, Job[]>();
  for (const job of jobs) if (job.cores) groups.set(job.cores, [...(groups.get(job.cores) ?? []), job]);
  for (const [text, sharing] of groups) {
    const cores = parseCores(text).filter((core) => place.has(core)), threads = (job: Job) => job.target || job.active || job.allowed;
    const sum = sharing.reduce((s, job) => s + threads(job), 0), scale = sum > cores.length ? cores.length / sum : 1;
    let at = 0;
    for (const job of sharing) {
      const end = at + threads(job) * scale;
      for (let i = Math.floor(at); i < end - 1e-6 && i < cores.length; i++)
        parts[place.get(cores[i]!)!]!.push({ id: job.id, share: Math.min(end, i + 1) - Math.max(at, i) });
      at = end;
    }
  }
  for (const core of parts) {
    const sum = core.reduce((s, part) => s + part.share, 0);
    if (sum > 1) for (const part of core) part.share /= sum;
  }
  return parts;
}

/** "cnn 0-3; rnn 4-5; 2 free": what the picture shows. */
function describe(machine: Machine, jobs: readonly Job[]): string {
  const held = jobs.filter((job) => job.cores !== "").map((job) => `${job.name} ${job.cores}`);
  return `${machine.cpus} cores: ${[...held, `${machine.free} free`].join("; ")}`;
}

export class Strip {
  readonly element: HTMLElement;
  private readonly picture: Picture;
  private numbers: readonly number[] = []; // of the cores
  private parts: Part[][] = [];
  private columns = 1;
  private cell = SMALLEST;
  private height = SMALLEST;
  selected: string | null = null;
  private readonly tip = h("div", { class: "tip", hidden: true });
  private names = new Map<string, string>();

  constructor(private readonly choose: (id: string) => void) {
    this.picture = new Picture({ class: "strip", role: "img" }, (c, width) => this.paint(c, width));
    const canvas = this.picture.canvas;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    canvas.addEventListener("click", (event) => {
      const id = this.at(event).part?.id;
      if (id) this.choose(id);
    });
    this.element = h("div", { class: "pictured" }, canvas, this.tip);
  }

  show(machine: Machine, jobs: readonly Job[]): void {
    this.numbers = coreNumbers(machine.online, machine.cpus);
    this.parts = divideCores(this.numbers, jobs);
    this.names = new Map(jobs.map((job) => [job.id, job.name]));
    setAttribute(this.picture.canvas, "aria-label", describe(machine, jobs));
    this.layOut();
    this.picture.draw();
  }

  private layOut(): void {
    const n = this.parts.length, width = this.picture.canvas.clientWidth || 320;
    let columns = Math.ceil(n / ROWS_WANTED);
    if (n * (LABEL_WIDTH + GAP) <= width) columns = n;
    this.cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor((width + GAP) / columns) - GAP));
    this.columns = Math.max(1, Math.min(n, Math.floor((width + GAP) / (this.cell + GAP))));
    this.height = this.cell >= LABEL_WIDTH ? Math.max(44, Math.round(this.cell * 0.9)) : Math.round(this.cell * 1.4);
    this.picture.setHeight(Math.ceil(n / this.columns) * (this.height + GAP) - GAP + 2);
  }

  private paint(c: CanvasRenderingContext2D, width: number): void {
    if (width !== this.paintedWidth) {
      this.paintedWidth = width;
      this.layOut();
    }
    const free = colourOf("free"), faint = colourOf("faint"), ink = colourOf("text");
    const fills = new Map<string, string | CanvasPattern>();
    c.textAlign = "center";
    this.parts.forEach((core, i) => {
      const x = (i % this.columns) * (this.cell + GAP), y = Math.floor(i / this.columns) * (this.height + GAP) + 1;
      c.fillStyle = free;
      c.fillRect(x, y, this.cell, this.height);
      let from = y + this.height;
      for (const part of core) {
        let fill = fills.get(part.id);
        if (!fill) fills.set(part.id, (fill = fillOf(c, part.id)));
        const high = part.share * this.height;
        from -= high;
        c.globalAlpha = this.selected && this.selected !== part.id ? 0.25 : 1;
        c.fillStyle = fill;
        c.fillRect(x, from, this.cell, high);
        if (high >= 13 && this.cell >= SMALLEST) this.label(c, lookOf(part.id).mark, x + this.cell / 2, from + high / 2 + 4);
        c.globalAlpha = 1;
      }
      if (this.cell >= LABEL_WIDTH && core.length === 0) {
        c.fillStyle = faint;
        c.font = "11px system-ui, sans-serif";
        c.fillText(String(this.numbers[i]), x + this.cell / 2, y + this.height / 2 + 4);
      }
      if (this.selected && core.some((part) => part.id === this.selected)) {
        c.strokeStyle = ink;
        c.lineWidth = 2;
        c.strokeRect(x + 1, y + 1, this.cell - 2, this.height - 2);
      }
    });
  }

  private paintedWidth = 0;

  /** Dark on a light ground, so that it is read on every hue and pattern. */
  private label(c: CanvasRenderingContext2D, mark: string, x: number, y: number): void {
    if (this.cell >= 18) {
      c.fillStyle = "rgba(255, 255, 255, 0.82)";
      c.fillRect(x - 7, y - 12, 14, 15);
    }
    c.fillStyle = "#111";
    c.font = "bold 12px ui-monospace, monospace";
    c.fillText(mark, x, y);
  }

  private at(event: MouseEvent): { core: number; part?: Part } {
    const x = event.offsetX, y = event.offsetY - 1;
    const column = Math.floor(x / (this.cell + GAP)), row = Math.floor(y / (this.height + GAP));
    const core = column < this.columns ? row * this.columns + column : -1;
    let rest = 1 - (y - row * (this.height + GAP)) / this.height;
    for (const part of this.parts[core] ?? []) {
      rest -= part.share;
      if (rest <= 0) return { core, part };
    }
    return { core };
  }

  private hover(event: MouseEvent): void {
    const { core } = this.at(event);
    const jobs = this.parts[core];
    this.tip.hidden = !jobs;
    if (!jobs) return;
    const who = jobs.map((part) => `${this.names.get(part.id) ?? part.id}${jobs.length > 1 ? ` ${Math.round(part.share * 100)} %` : ""}`);
    this.tip.textContent = `Core ${this.numbers[core]}: ${who.join(", ") || "free"}`;
    this.tip.style.left = `${Math.min(event.offsetX + 12, this.picture.width - 150)}px`;
    this.tip.style.top = `${event.offsetY + 16}px`;
  }
}
