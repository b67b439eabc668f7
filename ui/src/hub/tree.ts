/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of areas. Only rows that can be seen are elements of the page, so a thousand areas cost what twenty do.
 * Keys as in any tree: arrows, Home and End, Page up and down; the tree alone has the focus.
 */
import { h, inNextFrame, setAttribute, setText } from "../dom";
import { number, watts } from "../format";
import { HubLive } from "./live";
import { amount, Area, depthOf } from "./model";
import { Meter, PowerBar } from "./parts";

const ROW = 40; // pixels, as in style.css
const DEPTH_MAX = 6; // deeper ones are not indented further
const MORE = 8; // rows above and below what is seen
const OPEN_ALL = 60; // areas; a larger tree opens with its first two levels
const STATES: { [state: string]: [string, string] } = { connected: ["●", "connected"], lost: ["○", "lost"], never: ["◌", "never seen"] };

interface Row { element: HTMLElement; twisty: HTMLElement; name: HTMLElement; state: HTMLElement; power: HTMLElement; bar: PowerBar; budget: Meter; share: HTMLElement; rest: HTMLElement; area: string }

/** A path is no name: of areas without one the last part is shown. */
export const titleOf = (area: Area): string => (area.name && area.name !== area.area ? area.name : area.area.split("/").pop()!);

const budgetShare = (area: Area): number | null => {
  const day = amount(area.budget?.day_uj), used = amount(area.budget?.used_uj);
  return day && used !== null ? used / day : null;
};

/** A row's bars and marks in words, for screen readers. */
function restOf(area: Area): string {
  const share = budgetShare(area);
  return ["", area.power ? `${watts(area.power.low_uw)} to ${watts(area.power.high_uw)}` : "power unknown", area.cap_uw === null ? "no cap" : `cap ${watts(area.cap_uw)}`,
    ...(share === null ? [] : [`${number(100 * share)} % of today's budget`]), ...(area.unit ? [STATES[area.state]?.[1] ?? area.state] : [])].join(", ");
}

export class Tree {
  readonly element: HTMLElement;
  readonly search = h("input", { type: "search", placeholder: "Find an area  ( / )", "aria-label": "Find an area", oninput: () => this.rebuild(), onkeydown: (e: KeyboardEvent) => this.onSearchKey(e) });
  chosen: string | null = null;
  private readonly tree = h("div", { class: "tree", role: "tree", tabindex: 0, "aria-label": "Areas" });
  private readonly room = h("div", { class: "room", role: "presentation" });
  private readonly says = h("p", { class: "small", role: "status" });
  private readonly open = new Set<string>();
  private readonly pool: Row[] = [];
  private visible: Area[] = [];
  private place = new Map<string, number>(); // among all that are visible
  private among = new Map<string, [number, number]>(); // place among its siblings, and how many they are
  private shape = -1;
  private readonly later = inNextFrame(() => this.draw());

  constructor(private readonly live: HubLive, private readonly onChoose: (path: string, settled: boolean) => void) {
    this.tree.append(this.room);
    this.tree.addEventListener("scroll", this.later, { passive: true });
    this.tree.addEventListener("keydown", (event) => this.onKey(event));
    this.tree.addEventListener("click", (event) => this.onClick(event));
    new ResizeObserver(this.later).observe(this.tree);
    this.element = h("section", { class: "card areas" }, h("header", {}, h("h2", {}, "Areas"), this.search), this.says, this.tree);
  }

  show(): void {
    if (this.shape !== this.live.shape) {
      if (this.shape <= 0) this.openFirst();
      this.shape = this.live.shape;
      this.rebuild();
    }
    this.draw();
  }

  /** Makes the area and what it lies in visible, and chooses it. */
  reveal(path: string): void {
    for (let at = this.live.byPath.get(path)?.parent; at; at = this.live.byPath.get(at)?.parent ?? null) this.open.add(at);
    this.chosen = path;
    this.rebuild();
    this.scrollTo(path);
  }

  private openFirst(): void {
    const deep = this.live.areas.length <= OPEN_ALL ? Infinity : 1;
    for (const area of this.live.areas) if (depthOf(area.area) < deep) this.open.add(area.area);
  }

  private wanted(): Set<string> | null {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    const found = new Set<string>();
    for (const area of this.live.areas) {
      const text = `${area.area} ${area.name ?? ""} ${area.unit ?? ""} ${area.unit ? STATES[area.state]?.[1] ?? "" : ""}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
      for (let at: Area | undefined = area; at && !found.has(at.area); at = at.parent === null ? undefined : this.live.byPath.get(at.parent)) found.add(at.area);
    }
    return found;
  }

  private rebuild(): void {
    const wanted = this.wanted();
    this.visible = [];
    this.place.clear();
    this.among.clear();
    const walk = (parent: string) => {
      const all = this.live.below.get(parent) ?? [], list = wanted ? all.filter((a) => wanted.has(a.area)) : all;
      list.forEach((area, i) => {
        this.place.set(area.area, this.visible.length);
        this.among.set(area.area, [i + 1, list.length]);
        this.visible.push(area);
        if (wanted || this.open.has(area.area)) walk(area.area);
      });
    };
    walk("");
    this.room.style.height = `${Math.max(1, this.visible.length) * ROW}px`;
    const all = this.live.areas.length;
    setText(this.says, wanted ? `${number(this.visible.length)} of ${number(all)} areas${this.visible.length ? "" : ": none has all these words"}` : `${number(all)} ${all === 1 ? "area" : "areas"}`);
    this.later();
  }

  private draw(): void {
    if (!this.tree.clientHeight) return;
    const first = Math.max(0, Math.floor(this.tree.scrollTop / ROW) - MORE);
    const shown = this.visible.slice(first, first + Math.ceil(this.tree.clientHeight / ROW) + 2 * MORE);
    while (this.pool.length < shown.length) this.pool.push(this.makeRow());
    this.pool.forEach((row, i) => {
      const area = shown[i] && (this.live.byPath.get(shown[i].area) ?? shown[i]); // a later list has new objects
      row.element.hidden = !area;
      if (area) this.fill(row, area, first + i);
      else row.area = "";
    });
    const at = this.pool.find((row) => row.area === this.chosen && this.chosen !== null);
    setAttribute(this.tree, "aria-activedescendant", at ? at.element.id : null);
  }

  private makeRow(): Row {
    const row: Row = { element: h("div", { class: "area", role: "treeitem", id: `area${this.pool.length}` }), twisty: h("span", { class: "twisty", "aria-hidden": "true" }), name: h("span", { class: "label" }),
      state: h("span", { class: "mark", "aria-hidden": "true" }), power: h("span", { class: "watts" }), bar: new PowerBar(), budget: new Meter(), share: h("span", { class: "share small", "aria-hidden": "true" }), rest: h("span", { class: "unseen" }), area: "" };
    row.element.append(row.twisty, row.name, row.state, row.power, row.bar.element, h("span", { class: "budget" }, row.budget.element, row.share), row.rest);
    this.room.append(row.element);
    return row;
  }

  private fill(row: Row, area: Area, at: number): void {
    const holds = this.live.below.has(area.area), open = holds && (this.open.has(area.area) || this.search.value.trim() !== "");
    const [place, count] = this.among.get(area.area) ?? [1, 1], share = budgetShare(area);
    const depth = depthOf(area.area), top = `${at * ROW}px`;
    row.area = area.area;
    if (row.element.style.top !== top) row.element.style.top = top;
    if (row.element.dataset.area !== area.area) {
      row.element.dataset.area = area.area;
      row.twisty.style.setProperty("--depth", String(Math.min(depth, DEPTH_MAX)));
      setText(row.name, titleOf(area));
      row.element.title = area.area;
    }
    setAttribute(row.element, "aria-level", String(depth + 1));
    setAttribute(row.element, "aria-posinset", String(place));
    setAttribute(row.element, "aria-setsize", String(count));
    setAttribute(row.element, "aria-expanded", holds ? String(open) : null);
    setAttribute(row.element, "aria-selected", String(area.area === this.chosen));
    setText(row.twisty, holds ? (open ? "▾" : "▸") : "");
    setText(row.state, area.unit ? STATES[area.state]?.[0] ?? "?" : "");
    setAttribute(row.state, "class", `mark ${area.unit ? area.state : ""}`);
    setText(row.power, watts(area.power?.mid_uw));
    setText(row.rest, restOf(area));
    row.bar.show(area.power, area.cap_uw);
    row.budget.element.hidden = share === null;
    row.budget.show(share);
    setText(row.share, share === null ? "" : `${number(100 * share)} %`);
  }

  private choose(path: string, settled: boolean): void {
    this.chosen = path;
    this.draw();
    this.onChoose(path, settled);
  }

  private toggle(path: string, open: boolean): void {
    if (open) this.open.add(path);
    else this.open.delete(path);
    this.rebuild();
  }

  private onClick(event: Event): void {
    const at = event.target as HTMLElement, path = at.closest<HTMLElement>(".area")?.dataset.area;
    if (!path) return;
    if (at.classList.contains("twisty") && this.live.below.has(path)) this.toggle(path, !this.open.has(path));
    else this.choose(path, true);
  }

  private onSearchKey(event: KeyboardEvent): void {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.tree.focus();
      const words = this.search.value.toLowerCase().trim();
      const first = this.visible.find((a) => `${a.area} ${a.name ?? ""}`.toLowerCase().includes(words)) ?? this.visible[0];
      if (first) this.go(this.place.get(first.area)!);
    } else if (event.key === "Escape" && this.search.value) {
      this.search.value = "";
      this.rebuild();
      event.preventDefault();
    }
  }

  private scrollTo(path: string): void {
    const top = (this.place.get(path) ?? 0) * ROW, { scrollTop, clientHeight } = this.tree;
    if (top < scrollTop) this.tree.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.tree.scrollTop = top + ROW - clientHeight;
  }

  private go(index: number): void {
    const area = this.visible[Math.min(this.visible.length - 1, Math.max(0, index))];
    if (!area) return;
    this.scrollTo(area.area);
    this.choose(area.area, false);
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const at = this.chosen === null ? -1 : (this.place.get(this.chosen) ?? -1), area = this.visible[at];
    const page = Math.max(1, Math.floor(this.tree.clientHeight / ROW) - 1), holds = area && this.live.below.has(area.area);
    const moves: { [key: string]: () => void } = {
      ArrowDown: () => this.go(at + 1), ArrowUp: () => this.go(at - 1), Home: () => this.go(0), End: () => this.go(this.visible.length - 1),
      PageDown: () => this.go(at + page), PageUp: () => this.go(at - page),
      ArrowRight: () => (holds && !this.open.has(area.area) ? this.toggle(area.area, true) : holds ? this.go(at + 1) : undefined),
      ArrowLeft: () => (holds && this.open.has(area.area) ? this.toggle(area.area, false) : area?.parent ? this.go(this.place.get(area.parent) ?? at) : undefined),
      Enter: () => area && this.choose(area.area, true), " ": () => area && this.choose(area.area, true),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  }
}
