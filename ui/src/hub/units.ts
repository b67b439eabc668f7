/* SPDX-License-Identifier: Apache-2.0 */
/* View Units: who is connected, whose certificate ends, which policy each has; tokens for new ones. */
import { get, send } from "../api";
import { h, replaceIn, Rows, setAttribute, setText } from "../dom";
import { date, duration, moment, number, UNKNOWN } from "../format";
import type { Page } from "../frame";
import { Happened, HubLive } from "./live";
import { Policy, Unit } from "./model";
import { card, cells, confirmed, Says, table, told } from "./parts";

const AGAIN_MS = 10000;
const ROWS_MAX = 200;
const SOON_MS = 14 * 86400000; // a certificate that ends within is told
const NAMES = ["Area", "State", "Version", "Policy", "Certificate", ""];
const HAPPENED_MAX = 50;

/** Units that need somebody come first. */
function urgency(unit: Unit): number {
  const left = unit.certificate_until_ms === null ? Infinity : unit.certificate_until_ms - Date.now();
  return unit.revoked ? 3 : unit.state === "lost" || unit.two_of_a_name ? 0 : left < SOON_MS ? 1 : unit.state === "never" ? 2 : 4;
}

export class UnitsPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Units";
  private readonly rows: Rows<Unit, HTMLTableRowElement>;
  private readonly happened: Rows<Happened, HTMLTableRowElement>;
  private readonly filter = h("input", { type: "search", placeholder: "Find a unit  ( / )", "aria-label": "Find a unit", oninput: () => this.draw() });
  private readonly counts = h("p", { class: "small", role: "status" });
  private readonly says = new Says();
  private readonly token = h("output", { class: "token", hidden: true });
  private units: Unit[] = [];
  private number: number | null = null;
  private looked = 0;

  constructor(private readonly live: HubLive) {
    const body = h("tbody"), past = h("tbody");
    this.rows = new Rows(body, (u) => u.name, (u) => h("tr", { "data-unit": u.name }, h("th", { scope: "row" }, u.name), ...cells(NAMES)), (row, u) => this.fill(row, u));
    this.happened = new Rows(past, (e) => `${e.time_ms} ${e.area ?? e.unit} ${e.text}`, (e) => h("tr", {}, h("td", { "data-label": "Time" }, moment(e.time_ms / 1000)),
      h("td", { "data-label": "Where" }, e.area ?? e.unit ?? UNKNOWN), h("td", { "data-label": "What", class: "why" }, e.text)), () => undefined);
    const list = card("Units", this.counts, this.says.element, table(["Unit", ...NAMES], body, "Units"));
    list.querySelector("header")!.append(this.filter);
    this.element = h("div", { class: "page units" }, list, live.may("units") ? this.newUnit() : null, card("Since this page was opened", table(["Time", "Where", "What"], past, "What happened")));
  }

  private newUnit(): HTMLElement {
    const name = h("input", { required: true, pattern: "[a-z0-9](-?[a-z0-9]+)*", maxlength: 63, title: "a-z, 0-9 and dashes inside", autocomplete: "off" });
    const area = h("input", { autocomplete: "off", placeholder: "unlp/lab3" });
    return card("A new unit", h("form", { class: "field", onsubmit: async (event: Event) => {
      event.preventDefault();
      try {
        const made = await send<{ token: string }>("POST", "/v1/tokens", { name: name.value, ...(area.value ? { area: area.value } : {}) });
        this.token.hidden = false;
        setText(this.token, made.token);
        this.says.say(`The token for ${name.value} works once. It is shown only here.`);
      } catch (error) {
        this.says.say(told(error), true);
      }
    } }, h("label", {}, "Name", name), h("label", {}, "Area", area), h("button", { type: "submit" }, "Make a token")), this.token);
  }

  show(): void {
    if (this.element.hidden) return;
    this.happened.show(this.live.happened.slice(0, HAPPENED_MAX));
    if (this.live.link !== "ended" && Date.now() - this.looked > AGAIN_MS) void this.fetch();
  }

  focusFilter(): void {
    this.filter.focus();
  }

  private async fetch(): Promise<void> {
    this.looked = Date.now();
    try {
      this.units = await get<Unit[]>("/v1/units");
      this.number = this.live.policyNumber ?? this.number ?? (await get<Policy>("/v1/policy")).number;
      this.draw();
    } catch (error) {
      setText(this.counts, told(error));
    }
  }

  private draw(): void {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.units.filter((u) => words.every((word) => `${u.name} ${u.area ?? ""} ${u.revoked ? "revoked" : u.state}`.toLowerCase().includes(word)))
      .sort((a, b) => urgency(a) - urgency(b) || a.name.localeCompare(b.name));
    const of = (test: (u: Unit) => boolean) => number(this.units.filter(test).length);
    setText(this.counts, `${of((u) => u.state === "connected" && !u.revoked)} connected, ${of((u) => u.state === "lost" && !u.revoked)} lost, ${of((u) => u.state === "never" && !u.revoked)} never seen, ${of((u) => u.revoked)} revoked.` +
      `${wanted.length > ROWS_MAX ? ` The first ${ROWS_MAX} of ${number(wanted.length)}: find others by name.` : ""}`);
    this.rows.show(wanted.slice(0, ROWS_MAX));
  }

  private fill(row: HTMLTableRowElement, u: Unit): void {
    const left = u.certificate_until_ms === null ? null : u.certificate_until_ms - Date.now(), state = u.revoked ? "revoked" : u.state === "never" ? "never seen" : u.state;
    const policy = u.policy === null ? UNKNOWN : this.number !== null && u.policy < this.number ? `${u.policy}; has not received ${this.number} yet` : String(u.policy);
    const until = left === null ? UNKNOWN : left <= 0 ? `ended ${date(u.certificate_until_ms! / 1000)}` : `${duration(left / 1000)} left`;
    [u.area ?? UNKNOWN, u.two_of_a_name ? `${state}; two programs have this name` : state, u.version ?? UNKNOWN, policy, until].forEach((text, i) => setText(row.cells[i + 1]!, text));
    setAttribute(row.cells[2]!, "class", `unitstate ${u.revoked ? "revoked" : u.state}${u.two_of_a_name ? " alarmed" : ""}`);
    row.cells[5]!.classList.toggle("alarmed", left !== null && left < SOON_MS && !u.revoked);
    const verb = this.live.may("units") ? (u.revoked ? "Admit" : "Revoke") : "";
    if (row.cells[6]!.textContent !== verb)
      replaceIn(row.cells[6]!, ...(verb ? [h("button", { type: "button", class: u.revoked ? null : "danger", "aria-label": `${verb} ${u.name}`, onclick: () => void this.set(u.name, !u.revoked) }, verb)] : []));
  }

  private async set(name: string, revoke: boolean): Promise<void> {
    if (revoke && !await confirmed(`Revoke ${name}?`, "Revoke", h("p", { class: "small" }, "It can neither connect nor be heard until it is admitted and enrolled again."))) return;
    try {
      await send("POST", `/v1/units/${encodeURIComponent(name)}/${revoke ? "revoke" : "admit"}`, {});
      this.says.say(revoke ? `${name} is revoked.` : `${name} is admitted.`);
    } catch (error) {
      this.says.say(told(error), true);
    }
    void this.fetch();
  }
}
