/* SPDX-License-Identifier: Apache-2.0 */
/* The switches of an area: their state, and for operators a button that asks before it orders. */
import { send } from "../api";
import { h, replaceIn, Rows, setAttribute, setText } from "../dom";
import { HubLive } from "./live";
import { Area, areaPath, Switch, SwitchOutcome } from "./model";
import { card, cells, confirmed, Says, table, told } from "./parts";

const ENDS: readonly (readonly [string, number])[] = [["1 minute", 60], ["15 minutes", 900], ["1 hour", 3600]];
const NO_ANSWER_MS = 60000;

export class Switches {
  readonly element: HTMLElement;
  private readonly rows: Rows<Switch, HTMLTableRowElement>;
  private readonly says = new Says();
  private readonly ordered = new Map<string, { text: string; timer: number }>(); // by area and switch
  private area: string | null = null;
  private shown: Area | null = null;

  constructor(private readonly live: HubLive) {
    const body = h("tbody");
    this.rows = new Rows(body, (s) => `${this.area}/${s.name}`, (s) => h("tr", { "data-switch": s.name }, h("th", { scope: "row" }, s.name), ...cells(["State", "Rule", "Order", ""])), (row, s) => this.fill(row, s));
    this.element = card("Switches", this.says.element, table(["Switch", "State", "Rule", "Order", ""], body, "Switches"));
    live.onSwitch((outcome) => this.onOutcome(outcome));
  }

  choose(area: string): void {
    this.area = area;
    this.rows.show([]);
    this.says.element.textContent = "";
  }

  show(area: Area): void {
    this.shown = area;
    this.element.hidden = !area.switches?.length;
    this.rows.show(area.switches ?? []);
  }

  private key(name: string, area = this.area): string {
    return `${area}\n${name}`;
  }

  private fill(row: HTMLTableRowElement, s: Switch): void {
    setText(row.cells[1]!, s.known ? (s.on ? "on" : "off") : "unknown");
    setAttribute(row.cells[1]!, "class", `onoff ${s.known ? (s.on ? "on" : "off") : ""}`);
    setText(row.cells[2]!, s.always_on ? "stays on always" : "");
    setText(row.cells[3]!, this.ordered.get(this.key(s.name))?.text ?? "");
    const may = s.may && this.live.may("switch") && !s.always_on, texts = may ? (s.known ? [s.on ? "Turn off" : "Turn on"] : ["Turn on", "Turn off"]) : [];
    if (row.cells[4]!.textContent !== texts.join(""))
      replaceIn(row.cells[4]!, ...texts.map((text) => h("button", { type: "button", "aria-label": `${text}: ${s.name}`, onclick: () => void this.order(s.name, text === "Turn on") }, text)));
  }

  private async order(name: string, on: boolean): Promise<void> {
    const { area } = this;
    if (area === null) return;
    const ends = h("select", { id: "ends" }, ...ENDS.map(([text, seconds]) => h("option", { value: seconds }, text)));
    if (!await confirmed(`Turn ${name} of ${area} ${on ? "on" : "off"}?`, on ? "Turn on" : "Turn off",
      h("p", { class: "small" }, "The unit switches only relays that its own configuration lets the hub switch. A rule of the power policy that begins later may switch it back."), h("div", { class: "field" }, h("label", { for: "ends" }, "Give up if it is not done within"), ends))) return;
    this.note(area, name, "asked", NO_ANSWER_MS);
    try {
      const { id } = await send<{ id: string | number }>("POST", areaPath(area, `/switches/${encodeURIComponent(name)}`), { on, for_s: Number(ends.value) });
      if (this.ordered.get(this.key(name, area))?.text === "asked") this.note(area, name, `ordered: ${on ? "on" : "off"}`, NO_ANSWER_MS);
      this.says.say(`${name}: ordered ${on ? "on" : "off"} (${id}); the unit's answer comes.`);
    } catch (error) {
      this.note(area, name, "refused");
      this.says.say(`${name}: ${told(error)}`, true);
    }
  }

  private note(area: string, name: string, text: string, noAnswerMs = 0): void {
    const key = this.key(name, area);
    clearTimeout(this.ordered.get(key)?.timer);
    this.ordered.set(key, { text, timer: noAnswerMs ? window.setTimeout(() => this.note(area, name, "no answer yet"), noAnswerMs) : 0 });
    if (this.shown?.area === this.area && this.shown) this.rows.show(this.shown.switches ?? []);
  }

  private onOutcome(outcome: SwitchOutcome): void {
    const way = outcome.on === undefined ? "" : `: ${outcome.on ? "on" : "off"}`;
    const text = outcome.state === "done" ? `done${way}` : outcome.state === "ordered" ? `ordered${way}` : outcome.state;
    this.note(outcome.area, outcome.name, text, outcome.state === "ordered" ? NO_ANSWER_MS : 0);
    if (outcome.area === this.area && outcome.state !== "ordered") this.says.say(`${outcome.name}: ${text}${outcome.text ? `: ${outcome.text}` : ""}.`, outcome.state !== "done");
  }
}
