/* SPDX-License-Identifier: Apache-2.0 */
/* View Cluster: trainings, the sizes that they had, and what is free on each node. Read only. */
import { get, Problem, Session } from "./api";
import { Chart } from "./chart";
import { h, Rows, setAttribute, setText } from "./dom";
import { count, figure, moment, number, UNKNOWN, watts } from "./format";
import type { Connection, Link, Page, Views } from "./frame";

interface Count { desired: number; actual: number; ready: number; min: number; max: number }

interface Training {
  namespace: string; name: string; created_ms: number | null; mode: string; phase: string; reason: string; message: string;
  ps: Count; workers: Count; step: number | null; loss: number | null; examples_per_s: number | null; efficiency: number | null;
  sizes: [number | null, number, number][];
}

interface Node {
  name: string; ready: boolean; schedulable: boolean; mcpu: number; trainings_mcpu: number; others_mcpu: number; free_mcpu: number;
  power_mcpu: number | null; power_until_ms: number | null; cap_mw: number | null; draw_mw: number | null;
}

/** @trainings, @nodes null: the user may not read them; @problems says why. */
interface Cluster { time_ms: number; trainings: Training[] | null; nodes: Node[] | null; problems: string[] }

const LOOK_MS = 3000;
const HIDDEN_MS = 30000;
const SLOW_MS = 5000;
const AGAIN_MS = [1000, 2000, 4000, 8000];
const NODES_SHOWN = 200;
const UNREAD = "the trainings cannot be read";
const PAST_ENDS = ["Succeeded", "Failed"];

/** Asks the program for the cluster again and again; one look at a time. */
class ClusterLive implements Connection {
  cluster: Cluster | null = null;
  link: Link = "connecting";
  problem: Problem | null = null;
  looked = 0;
  private readonly listeners = new Set<() => void>();
  private failures = 0;
  private timer = 0;

  onChange(listener: () => void): void {
    this.listeners.add(listener);
  }

  start(): void {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.timer) this.plan(0);
    });
    void this.look();
  }

  private plan(ms: number): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.look(), ms);
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }

  private async look(): Promise<void> {
    const slow = window.setTimeout(() => {
      if (this.link === "live") this.link = "slow";
      this.tell();
    }, SLOW_MS);
    this.timer = 0;
    try {
      this.cluster = await get<Cluster>("/v1/cluster");
      this.looked = Date.now();
      this.failures = 0;
      this.problem = null;
      this.link = "live";
    } catch (error) {
      this.problem = error instanceof Problem ? error : new Problem(0, String(error));
      this.failures++;
      this.link = this.problem.status === 403 ? "ended" : "lost";
    }
    clearTimeout(slow);
    this.tell();
    if (this.link === "ended") return;
    this.plan(this.failures ? AGAIN_MS[Math.min(this.failures, AGAIN_MS.length) - 1]! : document.hidden ? HIDDEN_MS : LOOK_MS);
  }
}

const cores = (mcpu: number): string => figure(mcpu / 1000);
const nameOf = (t: Training): string => `${t.namespace}/${t.name}`;
const runs = (t: Training): boolean => !PAST_ENDS.includes(t.phase);

/** Times, parameter servers and workers as steps, up to @end: of one training, or the sums of several. */
export function stepsOf(trainings: readonly Training[], end: number): (number | null)[][] {
  const events: [number, number, number][] = [];
  for (const t of trainings) {
    let ps = 0, workers = 0;
    for (const [at, nowPs, nowWorkers] of t.sizes) {
      if (at === null) continue;
      events.push([at / 1000, nowPs - ps, nowWorkers - workers]);
      ps = nowPs;
      workers = nowWorkers;
    }
  }
  events.sort((a, b) => a[0] - b[0]);
  const times: number[] = [], servers: number[] = [], work: number[] = [];
  let ps = 0, workers = 0;
  for (const [at, more, moreWorkers] of events) {
    ps += more;
    workers += moreWorkers;
    if (times[times.length - 1] !== at) {
      times.push(at);
      servers.push(ps);
      work.push(workers);
    } else {
      servers[servers.length - 1] = ps;
      work[work.length - 1] = workers;
    }
  }
  if (times.length && end > times[times.length - 1]!) {
    times.push(end);
    servers.push(ps);
    work.push(workers);
  }
  return [times, servers, work];
}

class ClusterPage implements Page {
  readonly title = "Cluster";
  readonly element: HTMLElement;
  private readonly tiles = ["Trainings", "Workers", "Free for trainings", "Nodes with a power cap"].map((name) => {
    const value = h("b"), more = h("span");
    return { element: h("div", { class: "tile" }, h("h3", {}, name), value, more), value, more };
  });
  private readonly problems = h("p", { class: "banner", role: "status", hidden: true });
  private readonly trainingRows: Rows<Training, HTMLTableRowElement>;
  private readonly trainingSays = h("p", { class: "none" });
  private readonly nodeRows: Rows<Node, HTMLTableRowElement>;
  private readonly nodeSays = h("p", { class: "small" });
  private readonly filter = h("input", { type: "search", placeholder: "filter nodes", "aria-label": "Filter nodes", oninput: () => this.showNodes() });
  private readonly chart: Chart;
  private readonly chartOf = h("h2", {}, "Parameter servers and workers over time");
  private readonly all = h("button", { type: "button", "aria-pressed": "true", onclick: () => this.choose(null) }, "All trainings");
  private chosen: string | null = null; // null: the sum of all

  constructor(private readonly live: ClusterLive) {
    const trainings = h("tbody"), nodes = h("tbody"), chart = h("div"), value = (v: number | null) => (v === null ? UNKNOWN : number(v));
    this.chart = new Chart(chart, {
      height: 200, label: "Parameter servers and workers over time",
      curves: [{ label: "parameter servers", colour: "allowed", stepped: true, dash: [6, 3], value }, { label: "workers", colour: "active", stepped: true, width: 2, fill: true, value }],
    });
    this.trainingRows = new Rows(trainings, nameOf, (t) => h("tr", {}, h("th", { scope: "row" },
      h("button", { class: "name", type: "button", "aria-pressed": "false", onclick: () => this.choose(nameOf(t)) }, h("span", {}, nameOf(t)))),
    ...["Phase", "Servers", "Workers", "Step", "Examples/s", "Efficiency"].map((label) => h("td", { "data-label": label })), h("td", { class: "why", "data-label": "Why" })),
    (row, t) => this.showTraining(row, t));
    this.nodeRows = new Rows(nodes, (n) => n.name, (n) => h("tr", {}, h("th", { scope: "row" }, n.name), h("td", { class: "parts", "data-label": "Cores" },
      h("span", { class: "text" }), h("span", { class: "powerbar", role: "img" }, h("i", { class: "band" }), h("i", { class: "used" }), h("i", { class: "cap" }))),
    ...["Trainings", "Others", "Free", "Watts"].map((label) => h("td", { "data-label": label }))), (row, n) => this.showNode(row, n));
    const table = (names: string[], body: HTMLElement) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": names[0]! },
      h("table", { class: "jobs" }, h("thead", {}, h("tr", {}, ...names.map((n) => h("th", { scope: "col" }, n)))), body));
    this.element = h("div", { class: "page cluster" }, this.problems, h("div", { class: "tiles" }, ...this.tiles.map((t) => t.element)),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Trainings")), this.trainingSays,
        table(["Training", "Phase", "Servers", "Workers", "Step", "Examples/s", "Efficiency", "Why"], trainings)),
      h("section", { class: "card" }, h("header", {}, this.chartOf, this.all), chart),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Nodes"), this.filter), this.nodeSays,
        table(["Node", "Cores", "Trainings", "Others", "Free", "Watts"], nodes)));
  }

  focusFilter(): void {
    this.filter.focus();
  }

  show(): void {
    const cluster = this.live.cluster;
    if (!cluster || this.element.hidden) return;
    const trainings = cluster.trainings ?? [];
    this.problems.hidden = cluster.problems.length === 0;
    setText(this.problems, cluster.problems.join(" · "));
    if (!trainings.some((t) => nameOf(t) === this.chosen)) this.chosen = null;
    this.trainingRows.show(trainings);
    this.trainingSays.hidden = trainings.length > 0;
    setText(this.trainingSays, cluster.trainings ? "There is no training." : "The trainings cannot be read.");
    this.showTiles(cluster, trainings);
    this.showChart();
    this.showNodes();
  }

  private choose(name: string | null): void {
    this.chosen = name;
    this.show();
  }

  private tile(i: number, value: string, more: string): void {
    setText(this.tiles[i]!.value, value);
    setText(this.tiles[i]!.more, more);
  }

  private showTiles(cluster: Cluster, trainings: Training[]): void {
    const now = trainings.filter(runs), sum = (f: (t: Training) => number) => now.reduce((s, t) => s + f(t), 0), nodes = cluster.nodes;
    this.tile(0, cluster.trainings ? String(now.length) : UNKNOWN, cluster.trainings ? `${now.filter((t) => t.phase === "Running").length} running, ${trainings.length - now.length} ended` : UNREAD);
    this.tile(1, cluster.trainings ? String(sum((t) => t.workers.actual)) : UNKNOWN, cluster.trainings ? `${sum((t) => t.workers.ready)} in training, ${count(sum((t) => t.ps.actual), "parameter server")}` : UNREAD);
    const usable = nodes?.filter((n) => n.ready && n.schedulable) ?? [], capped = usable.filter((n) => n.power_mcpu !== null);
    this.tile(2, nodes ? `${cores(usable.reduce((s, n) => s + n.free_mcpu, 0))}` : UNKNOWN,
      nodes ? `of ${cores(nodes.reduce((s, n) => s + n.mcpu, 0))} cores on ${count(nodes.length, "node")}` : "the nodes cannot be read");
    this.tile(3, nodes ? `${capped.length}` : UNKNOWN, capped.length ? `of ${count(nodes!.length, "node")}; they allow ${cores(capped.reduce((s, n) => s + n.power_mcpu!, 0))} cores` : nodes ? "no node tells of a power cap" : "the nodes cannot be read");
  }

  private showTraining(row: HTMLTableRowElement, t: Training): void {
    const pressed = nameOf(t) === this.chosen, range = (c: Count) => (c.min === c.max ? `${c.min}` : `${c.min} to ${c.max}`);
    const parts = (c: Count) => `${c.ready}/${c.actual}${c.desired !== c.actual ? ` → ${c.desired}` : ""} (${range(c)})`;
    setAttribute(row.querySelector("button")!, "aria-pressed", String(pressed));
    row.classList.toggle("chosen", pressed);
    [t.phase, parts(t.ps), parts(t.workers), t.step === null ? UNKNOWN : number(t.step), t.examples_per_s === null ? UNKNOWN : figure(t.examples_per_s),
      t.efficiency === null ? UNKNOWN : `${t.efficiency} %`, t.reason === "Policy" || !t.reason ? t.message : `${t.reason}: ${t.message}`]
      .forEach((text, i) => setText(row.cells[i + 1]!, text));
  }

  private showChart(): void {
    const cluster = this.live.cluster!, trainings = cluster.trainings ?? [], one = trainings.find((t) => nameOf(t) === this.chosen);
    const steps = stepsOf(one ? [one] : trainings, cluster.time_ms / 1000), workers = steps[2]!;
    setText(this.chartOf, `Parameter servers and workers over time${one ? `: ${nameOf(one)}` : ""}`);
    setAttribute(this.all, "aria-pressed", String(!one));
    setAttribute(this.chart.element, "aria-label", steps[0]!.length ? `Parameter servers and workers over time, since ${moment(steps[0]![0]!)}: ${workers.length} points, at most ${Math.max(...workers.map((w) => w ?? 0))} workers, now ${workers[workers.length - 1]}` : "No size is known yet");
    this.chart.show(steps);
  }

  private showNodes(): void {
    const nodes = this.live.cluster?.nodes, wanted = this.filter.value.trim().toLowerCase();
    const found = (nodes ?? []).filter((n) => n.name.toLowerCase().includes(wanted));
    setText(this.nodeSays, !nodes ? "The nodes cannot be read: this needs the right to list nodes and pods." : found.length > NODES_SHOWN ? `The first ${NODES_SHOWN} of ${number(found.length)} nodes.` : found.length ? "" : "There is no such node.");
    this.nodeRows.show(found.slice(0, NODES_SHOWN));
  }

  private showNode(row: HTMLTableRowElement, n: Node): void {
    const cells = row.cells, used = n.trainings_mcpu + n.others_mcpu, share = (mcpu: number) => `${Math.min(100, (100 * mcpu) / (n.mcpu || 1))}%`;
    const state = !n.ready ? " not ready" : !n.schedulable ? " cordoned" : "", bar = row.querySelector<HTMLElement>(".powerbar")!;
    const [all, ours, cap] = [...bar.children] as [HTMLElement, HTMLElement, HTMLElement];
    setText(row.querySelector(".text")!, `${cores(n.mcpu)}${state}`);
    all.style.width = share(used);
    ours.style.width = share(n.trainings_mcpu);
    cap.style.left = n.power_mcpu === null ? "" : share(n.power_mcpu);
    cap.hidden = n.power_mcpu === null;
    setAttribute(bar, "aria-label", `${cores(used)} of ${cores(n.mcpu)} cores are requested, ${cores(n.trainings_mcpu)} by trainings${n.power_mcpu === null ? "" : `; watts allow ${cores(n.power_mcpu)}`}`);
    const w = (mw: number | null) => watts(mw === null ? null : mw * 1000);
    const power = n.power_mcpu === null ? "no cap" : `${n.cap_mw === null ? "" : `${w(n.cap_mw)}, `}${cores(n.power_mcpu)} cores${n.draw_mw === null ? "" : `; draws ${w(n.draw_mw)}${n.cap_mw === null ? "" : `, ${w(Math.max(0, n.cap_mw - n.draw_mw))} free`}`}`;
    [cores(n.trainings_mcpu), cores(n.others_mcpu), cores(n.free_mcpu), power].forEach((text, i) => setText(cells[i + 2]!, text));
  }
}

export function clusterViews(session: Session): Views {
  const live = new ClusterLive();
  return {
    live, pages: [new ClusterPage(live)],
    options: { user: session.user ?? "", ended: "This page's session has ended. Run 'kubectl tide dashboard' again for a new link.", keys: [["/", "filter nodes"]] },
  };
}
