/* SPDX-License-Identifier: Apache-2.0 */
/* View Machines: all machines of the inventory, the jobs of all of them, and the way to the page of each. */
import { AT, get, Job, Machine, pageOf, Problem } from "./api";
import { h, Rows, setAttribute, setText } from "./dom";
import { count, figure, number, UNKNOWN, watts } from "./format";
import type { Page } from "./frame";

/** A machine's answer, as `tide fleet --json` prints it; null: nothing was told. */
interface Answer {
  name: string; address: string; reached: boolean; error: string | null; machine: Machine | null; jobs: Job[] | null;
  power: { power?: { uw: number | null }; load?: { mcpu: number | null } } | null;
}

interface FarJob { at: string; job: Job }

const REST_MS = 5000; // from one round's end to the next one's begin
const TIMEOUT_MS = 30000; // a round waits 10 s for silent machines
const FILTER_FROM = 8; // jobs

const COLUMNS = ["Machine", "Cores", "Free", "Load", "Jobs", "Waiting", "Power", "Policy", "State"];
const JOB_COLUMNS = ["Job", "Machine", "Owner", "State", "Threads", "Cores"];

const waits = (job: Job): boolean => job.state === "queued" || job.state === "held";

function cellsOf({ reached, error, machine, jobs, power }: Answer): string[] {
  const waiting = jobs?.filter(waits).length ?? 0, load = power?.load?.mcpu;
  if (!reached || !machine || !jobs) return [...Array<string>(COLUMNS.length - 2).fill(UNKNOWN), `unreachable: ${error ?? "no reason is known"}`];
  return [number(machine.cpus), number(machine.free), typeof load === "number" ? figure(load / 1000) : UNKNOWN, number(jobs.length - waiting),
    number(waiting), watts(power?.power?.uw), machine.policy, "reached"];
}

function table(columns: readonly string[], body: HTMLElement): HTMLTableElement {
  return h("table", { class: "jobs" }, h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)))), body);
}

const link = (name: string): HTMLAnchorElement =>
  h("a", { href: pageOf(name), "aria-current": name === AT ? "true" : null }, name);

export class MachinesPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Machines";
  private readonly says = h("p", { class: "none", role: "status" }, "The machines are being asked …");
  private readonly sum = h("span", { class: "small" });
  private readonly filter = h("input", { type: "search", placeholder: "Filter by name, machine, owner, state  ( / )", "aria-label": "Filter jobs of all machines",
    oninput: () => this.showJobs() });
  private readonly machines: Rows<Answer, HTMLTableRowElement>;
  private readonly jobs: Rows<FarJob, HTMLTableRowElement>;
  private readonly machineTable: HTMLTableElement;
  private readonly jobCard: HTMLElement;
  private readonly none = h("p", { class: "none" }, "No job on any machine that was reached.");
  private answers: Answer[] = [];
  private busy = false;
  private ended = -Infinity; // when the last round did

  constructor() {
    const body = h("tbody"), jobBody = h("tbody");
    this.machines = new Rows(body, (a) => a.name,
      (a) => h("tr", {}, h("td", { "data-label": "Machine" }, link(a.name), h("span", { class: "small" }, a.address)),
        ...COLUMNS.slice(1).map((name) => h("td", { "data-label": name, class: name === "State" ? "why" : null }))),
      (row, a) => {
        cellsOf(a).forEach((text, i) => setText(row.cells[i + 1]!, text));
        setAttribute(row, "class", a.reached ? null : "unreached");
      });
    this.jobs = new Rows(jobBody, ({ at, job }) => `${at}/${job.id}`,
      ({ at, job }) => h("tr", {}, h("td", { "data-label": "Job" }, job.name || job.id, h("span", { class: "small" }, job.id)),
        h("td", { "data-label": "Machine" }, link(at)), ...JOB_COLUMNS.slice(2).map((name) => h("td", { "data-label": name }))),
      (row, { job }) => [job.owner, job.state, job.target ? `${job.active || UNKNOWN} of ${job.target}` : UNKNOWN, job.cores || UNKNOWN]
        .forEach((text, i) => setText(row.cells[i + 2]!, text)));
    this.machineTable = table(COLUMNS, body);
    this.jobCard = h("section", { class: "card" }, h("header", {}, h("h2", {}, "Jobs of all machines"), this.filter), this.none,
      h("div", { class: "scroll" }, table(JOB_COLUMNS, jobBody)));
    this.element = h("div", { class: "page" },
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Machines"), this.sum), this.says, h("div", { class: "scroll" }, this.machineTable)),
      this.jobCard);
    this.showAll();
  }

  focusFilter(): void {
    if (!this.jobCard.hidden) this.filter.focus();
  }

  /** Called with each look at the own machine; a round of all machines begins seldom, and only while somebody looks. */
  show(): void {
    if (this.element.hidden || document.hidden || this.busy || performance.now() - this.ended < REST_MS) return;
    void this.ask();
  }

  private async ask(): Promise<void> {
    this.busy = true;
    try {
      this.answers = await get<Answer[]>("/v1/fleet", TIMEOUT_MS);
      setText(this.says, this.answers.length ? "" : "The inventory has no machine: a line of it is a name and an address.");
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      if (problem.status === 404 || problem.status === 400) this.answers = [];
      setText(this.says, [problem.message, problem.hint].filter(Boolean).join(". "));
    }
    this.busy = false;
    this.ended = performance.now();
    this.showAll();
  }

  private showAll(): void {
    const reached = this.answers.filter((a) => a.reached).length;
    this.says.hidden = this.says.textContent === "";
    this.machineTable.hidden = this.answers.length === 0;
    setText(this.sum, this.answers.length ? `${number(reached)} of ${count(this.answers.length, "machine")} reached` : "");
    this.machines.show(this.answers);
    this.jobCard.hidden = reached === 0;
    this.showJobs();
  }

  private showJobs(): void {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.answers.flatMap((a) => (a.jobs ?? []).map((job) => ({ at: a.name, job })));
    const wanted = all.filter(({ at, job }) => words.every((word) => `${at} ${job.id} ${job.name} ${job.owner} ${job.state}`.toLowerCase().includes(word)));
    this.filter.hidden = all.length < FILTER_FROM && this.filter.value === "";
    this.none.hidden = all.length > 0;
    this.jobs.show(wanted);
    this.jobCard.querySelector("table")!.hidden = all.length === 0;
  }
}
