/* SPDX-License-Identifier: Apache-2.0 */
/* View Used: kWh and cost by area, user and day: today so far, or days that are over, beside as many days before (each day beside that of a week before). */
import { get } from "../api";
import { h, Rows, setText } from "../dom";
import { duration, energy, number, UNKNOWN } from "../format";
import type { Page } from "../frame";
import { HubLive } from "./live";
import { amount, UsedRow } from "./model";
import { between, card, cells, Choice, joules, money, table, told } from "./parts";

type By = "area" | "user" | "day";
interface Shown extends UsedRow { before: number | null }

const DAY_MS = 86400000, WEEK_MS = 7 * DAY_MS;
const SPANS: readonly (readonly [string, number])[] = [["today", 0], ["yesterday", DAY_MS], ["1 week", WEEK_MS], ["30 days", 30 * DAY_MS], ["1 year", 365 * DAY_MS]];
const ROWS_MAX = 200;
const AGAIN_MS = 60000;
const NAMES = ["Energy", "Between", "Cost", "Than before", "Gaps"];

/** The hub has sums also of things of which nothing is known: that is no 0. */
const known = (row: UsedRow): UsedRow => (row.basis === "unknown" ? { ...row, uj: null, low_uj: null, high_uj: null, cost: null } : row);

const byKey = (rows: readonly UsedRow[]) => new Map(rows.map((row) => [row.key, amount(row.uj)]));

/** The day a week before, as a key of a row by day. */
function weekBefore(day: string): string {
  const at = new Date(`${day}T12:00:00Z`);
  return Number.isNaN(at.getTime()) ? "" : new Date(at.getTime() - WEEK_MS).toISOString().slice(0, 10);
}

export function change(now: number | null, before: number | null): string {
  if (now === null || !before) return UNKNOWN;
  const percent = Math.round((100 * (now - before)) / before);
  return percent === 0 ? "as much" : `${percent > 0 ? "▲ +" : "▼ −"}${number(Math.abs(percent))} %`;
}

export class UsedPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Used";
  private readonly by = new Choice<By>("By", [["area", "area"], ["user", "user"], ["day", "day"]], "area", () => this.anew());
  private readonly span = new Choice("Window", SPANS, WEEK_MS, () => this.anew());
  private readonly filter = h("input", { type: "search", placeholder: "Find  ( / )", "aria-label": "Find a row", oninput: () => this.draw() });
  private readonly rows: Rows<Shown, HTMLTableRowElement>;
  private readonly says = h("p", { class: "small", role: "status" });
  private told: Shown[] = [];
  private filling = false; // the hub has not counted all of it yet
  private looked = 0;

  constructor(private readonly live: HubLive) {
    const body = h("tbody");
    this.rows = new Rows(body, (row) => row.key, (row) => h("tr", {}, h("th", { scope: "row" }, this.nameOf(row.key)), ...cells(NAMES)), (row, u) =>
      [joules(u.uj), between(amount(u.low_uj), amount(u.high_uj), energy), money(u.cost, live.currency), change(amount(u.uj), u.before), u.gap_ms >= 1000 ? duration(u.gap_ms / 1000) : "none"]
        .forEach((text, i) => setText(row.cells[i + 1]!, text)));
    const page = card("Used", h("div", { class: "toolbar" }, this.by.element, this.span.element), this.says, table(["What", ...NAMES], body, "Energy used"));
    page.querySelector("header")!.append(this.filter);
    this.element = h("div", { class: "page used" }, page);
  }

  private nameOf(key: string): string {
    return this.by.value === "area" && this.live.byPath.get(key)?.name ? `${this.live.byPath.get(key)!.name} (${key})` : key;
  }

  show(): void {
    if (!this.element.hidden && this.live.link !== "ended" && Date.now() - this.looked > AGAIN_MS) void this.fetch();
  }

  focusFilter(): void {
    this.filter.focus();
  }

  private anew(): void {
    this.told = [];
    this.rows.show([]);
    void this.fetch();
  }

  /** The hub counts whole days of its own zone, which today's answer tells. A day that is not over is compared with none. */
  private async fetch(): Promise<void> {
    const by = this.by.value, span = this.span.value, now = Date.now(), back = by === "day" ? WEEK_MS : span;
    const days = (first: number, last: number) => get<{ from_ms: number; filling: boolean; rows: UsedRow[] }>(`/v1/energy?by=${by}&from=${first}&to=${last + 1}`)
      .then((told) => ({ ...told, rows: told.rows.map(known) }));
    this.looked = now;
    try {
      const today = await days(now, now);
      const last = today.from_ms - DAY_MS / 2, first = last - span + DAY_MS; // noons: some days have 23 or 25 hours
      const whole = span ? await days(first, last) : null, earlier = span ? await days(first - back, last - back) : null;
      const over = whole?.rows ?? [], past = byKey(earlier?.rows ?? []);
      if (by !== this.by.value || span !== this.span.value) return;
      this.filling = [today, whole, earlier].some((told) => told?.filling === true);
      this.told = over.map((row) => ({ ...row, before: past.get(by === "day" ? weekBefore(row.key) : row.key) ?? null }));
      if (!span || by === "day") this.told.push(...today.rows.map((row) => ({ ...row, before: null })));
      if (by !== "day") this.told.sort((a, b) => (amount(b.uj) ?? -1) - (amount(a.uj) ?? -1));
      this.draw();
    } catch (error) {
      setText(this.says, told(error));
    }
  }

  private draw(): void {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.told.filter((row) => words.every((word) => this.nameOf(row.key).toLowerCase().includes(word)));
    const root = this.by.value === "area" ? this.told.find((row) => row.key === this.live.org) : undefined, parts: string[] = [];
    if (this.filling) parts.push("The hub is still counting days of before: these sums are not whole yet.");
    if (root) parts.push(`${this.live.org}: ${joules(root.uj)}${root.cost === null ? "" : `, ${money(root.cost, this.live.currency)}`}${this.span.value ? `; ${compared(amount(root.uj), root.before, this.span.value)}` : " so far."}`);
    if (wanted.length > ROWS_MAX) parts.push(`The first ${ROWS_MAX} of ${number(wanted.length)} rows: find others by name.`);
    if (this.by.value === "user" && !this.live.administrator) parts.push("You see your own energy; administrators see everybody's.");
    if (!wanted.length) parts.push(words.length ? "No row has all these words." : this.span.value ? "Nothing is known of this window, which ends with yesterday." : "Nothing is known of today yet.");
    setText(this.says, parts.join(" "));
    this.rows.show(wanted.slice(0, ROWS_MAX));
  }
}

function compared(now: number | null, before: number | null, span: number): string {
  const what = span === WEEK_MS ? "the week before" : `the ${span === DAY_MS ? "day" : `${span / DAY_MS} days`} before`;
  if (now === null || !before) return `nothing is known of ${what}.`;
  const percent = Math.round((100 * (now - before)) / before);
  return `${percent === 0 ? "as much as" : `${number(Math.abs(percent))} % ${percent > 0 ? "more" : "less"} than`} in ${what} (${energy(before)}).`;
}
