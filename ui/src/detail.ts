/* SPDX-License-Identifier: Apache-2.0 */
/* One job: what it has, why, how it speeds up, and what its owner may change. */
import { Changed, Explanation, get, Job, jobPath, Problem, send } from "./api";
import { Chart } from "./chart";
import { swatch } from "./colour";
import { announce, h, Rows, setText } from "./dom";
import { bytes, clock, count, duration, energy, figure, moment, UNKNOWN, watts } from "./format";
import { Live } from "./live";

const EXPLAIN_MS = 3000;
const NONE = "Nothing was recorded yet.";

export class Detail {
  readonly element: HTMLElement;
  private id: string | null = null;
  private gone = false; // the job is not there any more
  private opener: HTMLElement | null = null;
  private timer = 0;
  private readonly name = h("h2", { id: "detail-name" });
  private readonly facts = h("dl", { class: "facts" });
  private readonly factRows = new Map<string, { name: HTMLElement; value: HTMLElement }>();
  private readonly controls = h("div", { class: "controls" });
  private readonly says = h("p", { class: "says", role: "status" });
  private readonly list = h("ol", { class: "changes" });
  private readonly none = h("p", { class: "none" }, NONE);
  private readonly curveBox = h("div", { class: "speedup", hidden: true });
  private readonly changes: Rows<Explanation["changes"][number], HTMLLIElement>;
  private readonly curve: Chart;
  private fields: Controls | null = null;

  constructor(private readonly live: Live, private readonly onClose: () => void) {
    const box = h("div");
    this.curve = new Chart(box, {
      height: 150, label: "Speed against threads, as measured", plain: "Threads", axis: (v) => `×${figure(v)}`,
      curves: [{ label: "measured", colour: "active", width: 2, value: (v) => (v === null ? UNKNOWN : `×${figure(v)}`) },
        { label: "ideal", colour: "faint", dash: [4, 4], value: (v) => (v === null ? UNKNOWN : `×${figure(v)}`) }],
    });
    this.curveBox.append(h("h3", {}, "Speed with more threads"), h("p", { class: "small" }), box);
    this.changes = new Rows(this.list, (c) => `${c.time}/${c.to}/${c.cores}`, (c) => h("li", {}, h("time", {}, moment(c.time)),
      h("b", {}, c.from === c.to ? count(c.to, "thread") : `${c.from} → ${c.to} threads`), c.cores ? h("span", { class: "cores" }, `cores ${c.cores}`) : "",
      h("span", { class: "why" }, c.reason || "no reason was recorded"), h("span", { class: "small" })),
    (row, c) => setText(row.lastElementChild!, c.latency_us ? `in place after ${figure(c.latency_us / 1000)} ms` : ""));
    this.element = h("aside", { class: "detail", hidden: true, "aria-labelledby": "detail-name", tabindex: -1 },
      h("header", {}, this.name, h("button", { class: "plain", onclick: () => this.close(), "aria-label": "Close (Escape)" }, "✕")),
      h("div", { class: "body" }, this.facts, this.controls, this.says, h("h3", {}, "Why"), this.none, this.list, this.curveBox));
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
  }

  open(id: string, opener: HTMLElement | null): void {
    const job = this.live.jobs.find((j) => j.id === id);
    if (!job) return;
    this.opener = opener;
    this.id = id;
    this.element.hidden = false;
    this.name.replaceChildren(swatch(id), job.name || id);
    setText(this.none, NONE);
    this.changes.show([]);
    this.curveBox.hidden = true;
    this.showControls(job);
    this.show();
    void this.explain();
    this.element.focus();
  }

  private showControls(job: Job): void {
    this.gone = false;
    setText(this.says, "");
    this.fields = this.live.mayChange(job) ? new Controls(job, (what, body) => void this.change(what, body)) : null;
    this.controls.replaceChildren(this.fields ? this.fields.element
      : h("p", { class: "small" }, `${job.owner}'s job: only ${job.owner} and administrators may change it.`));
  }

  close(): void {
    if (this.id === null) return;
    this.id = null;
    clearTimeout(this.timer);
    this.element.hidden = true;
    this.onClose();
    this.opener?.focus();
  }

  get shown(): string | null {
    return this.id;
  }

  /** With each look at the machine. */
  show(): void {
    const job = this.live.jobs.find((j) => j.id === this.id);
    if (!job) {
      if (this.id !== null && !this.gone) this.showEnd();
      return;
    }
    if (this.gone) {
      this.showControls(job);
      void this.explain();
    }
    this.fact("State", job.state + (job.note ? `: ${job.note}` : ""));
    this.fact("Owner", job.owner);
    this.fact("Threads", job.cores || job.active ? `${job.active || UNKNOWN} active, ${job.target || UNKNOWN} allowed, built with ${job.max || UNKNOWN}` : "waits");
    this.fact("Cores", job.cores || UNKNOWN);
    this.fact("Weight, priority, class", `${job.weight}, ${job.priority}, ${job.class}`);
    this.fact("Limits", `at least ${job.min}${job.limit === null ? "" : `, at most ${job.limit}`}${job.pinned === null ? "" : `, pinned to ${job.pinned} by ${job.pinned_by}`}`);
    this.fact("Memory", job.memory_used === null ? UNKNOWN : bytes(job.memory_used));
    this.fact("Time", `ran ${duration(job.run_s)}${job.wait_s >= 1 ? `, waited ${duration(job.wait_s)}` : ""}`);
    this.fact("Power", typeof job.power_uw === "number" ? `${watts(job.power_uw)} (${job.power_basis ?? "?"})` : null);
    this.fact("Energy", typeof job.energy_uj === "number" ? `${energy(job.energy_uj)} (${energy(job.energy_low_uj)} to ${energy(job.energy_high_uj)})` : null);
    this.fact("Runtimes", job.backends.map((b) => `${b.name} ${b.version}`).join(", ") || UNKNOWN);
    this.fact("Now", job.reason || UNKNOWN);
    this.fields?.show(job);
  }

  /** The last state is over. */
  private showEnd(): void {
    this.gone = true;
    this.fact("State", "ended");
    for (const name of ["Threads", "Cores", "Power", "Now"]) this.fact(name, null);
    if (this.controls.contains(document.activeElement)) this.element.focus();
    this.controls.replaceChildren();
    this.fields = null;
    setText(this.says, "This job has ended: its history is on the page Time.");
  }

  /** null: nothing is known of it, and nothing of what was told before, maybe of another job, stays. */
  private fact(name: string, value: string | null): void {
    let row = this.factRows.get(name);
    if (!row && value === null) return;
    if (!row) {
      row = { name: h("dt", {}, name), value: h("dd") };
      this.factRows.set(name, row);
      this.facts.append(row.name, row.value);
    }
    row.name.hidden = row.value.hidden = value === null;
    setText(row.value, value ?? "");
  }

  private async explain(): Promise<void> {
    const id = this.id;
    clearTimeout(this.timer);
    if (id === null) return;
    try {
      const told = await get<Explanation>(jobPath(id, "/explain"));
      if (this.id !== id) return;
      const newest = [...told.changes].reverse();
      this.changes.show(newest);
      this.none.hidden = newest.length > 0;
      this.showCurve(told.speedup);
    } catch (error) {
      if (this.id === id && error instanceof Problem && error.status !== 0) setText(this.none, error.message);
    }
    if (this.id !== id || this.gone) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.explain(), EXPLAIN_MS);
  }

  private showCurve(speedup: Explanation["speedup"]): void {
    this.curveBox.hidden = !speedup || speedup.counts < 2;
    if (!speedup || this.curveBox.hidden) return;
    const threads = speedup.table.map((_, i) => i + 1);
    setText(this.curveBox.querySelector("p")!, `From ${count(speedup.counts, "thread count")}, confidence ${Math.round(speedup.confidence * 100)} %. ` +
      `A change of threads takes ${figure(speedup.resize_us / 1000)} ms.`);
    this.curve.show([threads, speedup.table, threads], [1, threads.length]);
  }

  private async change(what: string, body: unknown): Promise<void> {
    const id = this.id;
    if (id === null) return;
    this.says.textContent = `${what} …`;
    try {
      const done = body === null ? await send<Changed>("DELETE", jobPath(id)) : await send<Changed>("PATCH", jobPath(id), body);
      const how = body === null ? "asked to end" : done.changed === false ? "already set to this, nothing changed"
        : done.status === "pending" ? "accepted; takes effect once the job has started its threads"
        : done.status === "partial" ? "not all processes have answered yet" : "done";
      this.says.textContent = `${what}: ${how}, ${clock(Date.now() / 1000)}.`;
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      this.says.textContent = `${what}: ${problem.message}. ${problem.hint}`;
    }
    announce(this.says.textContent);
    this.live.lookSoon();
    void this.explain();
  }
}

const isHeld = (job: Job) => job.held ?? job.state === "held"; // an older tided tells the state alone

/** Controls for the owner of a job. A field that is being edited keeps what was typed. */
class Controls {
  readonly element: HTMLElement;
  private readonly threads: HTMLInputElement;
  private readonly weight: HTMLInputElement;
  private readonly pin: HTMLButtonElement;
  private readonly hold: HTMLButtonElement;
  private job: Job;

  constructor(job: Job, change: (what: string, body: unknown) => void) {
    const field = (label: string, input: HTMLInputElement, set: () => void, more: Node | string = "") =>
      h("form", { class: "field", onsubmit: (event: Event) => {
        event.preventDefault();
        if (input.reportValidity()) set();
      } }, h("label", {}, label, input), h("button", { type: "submit" }, "Set"), more);
    this.job = job;
    this.threads = h("input", { type: "number", min: 1, max: 4096, required: true, value: job.target || 1, inputmode: "numeric" });
    this.weight = h("input", { type: "number", min: 1, max: 10000, required: true, value: job.weight, inputmode: "numeric" });
    this.pin = h("button", { onclick: () => change(this.job.kept ? "Unpin" : "Pin", { pin: !this.job.kept }) }, "Pin");
    this.hold = h("button", { onclick: () => change(this.hold.textContent!, { held: !isHeld(this.job) }) }, "Hold back");
    const end = h("button", { class: "danger", onclick: () => {
      if (confirm(`Ask ${this.job.name || this.job.id} to end (SIGTERM)?`)) change("End", null);
    } }, "End…");
    this.element = h("fieldset", {}, h("legend", {}, "Change"),
      field("Threads", this.threads, () => change("Threads", { threads: Number(this.threads.value) }),
        h("button", { type: "button", onclick: () => change("Automatic", { auto: true }) }, "Automatic")),
      field("Weight", this.weight, () => change("Weight", { weight: Number(this.weight.value) })),
      h("div", { class: "field" }, this.pin, this.hold, end));
    this.show(job);
  }

  show(job: Job): void {
    this.job = job;
    setText(this.pin, job.kept ? "Unpin" : "Pin to its cores");
    const waits = job.state === "held" || job.state === "queued";
    setText(this.hold, waits ? (isHeld(job) ? "Release" : "Hold back") : isHeld(job) ? "Resume" : "Pause");
    this.pin.disabled = job.cores === "";
    this.threads.disabled = waits;
    if (document.activeElement !== this.threads && job.target) this.threads.value = String(job.target);
    if (document.activeElement !== this.weight) this.weight.value = String(job.weight);
  }
}
