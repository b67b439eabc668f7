/* SPDX-License-Identifier: Apache-2.0 */
/* Small pieces that the hub's views are made of. */
import { Problem } from "../api";
import { announce, Child, h, setText, setWidth } from "../dom";
import { energy, money as moneyText, watts } from "../format";
import { amount, Amount, PowerBand } from "./model";

export const told = (error: unknown): string =>
  error instanceof Problem ? [error.message, error.hint].filter(Boolean).join(". ") : String(error);

export const between = (low: number | null, high: number | null, text: (v: number | null) => string): string =>
  low === null || high === null ? "" : low === high ? "exactly" : `${text(low)} to ${text(high)}`;

export const bandText = (power: PowerBand | null): string => (power ? [between(power.low_uw, power.high_uw, watts), power.basis,
  power.silent ? `${power.silent} of ${power.units} units tell nothing` : ""].filter(Boolean).join(", ") : "unknown");

export const money = (value: Amount | null | undefined, currency: string): string => moneyText(amount(value), currency);

export const joules = (value: Amount | null | undefined): string => energy(amount(value));

export const card = (title: string, ...inside: Child[]): HTMLElement => h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), ...inside);

export function table(names: string[], body: HTMLElement, label: string): HTMLElement {
  return h("div", { class: "scroll" }, h("table", { class: "jobs", "aria-label": label },
    h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))), body));
}

export const cells = (names: string[]): HTMLElement[] => names.map((label) => h("td", { "data-label": label }));

export class Tile {
  readonly element: HTMLElement;
  private readonly value = h("b");
  private readonly more = h("span");

  constructor(name: string, ...extra: Child[]) {
    this.element = h("div", { class: "tile" }, h("h3", {}, name), this.value, this.more, ...extra);
  }

  show(value: string, more: string, alarm = false): void {
    setText(this.value, value);
    setText(this.more, more);
    this.element.classList.toggle("alarm", alarm);
  }
}

/** Power against its cap: filled to the middle, the band of uncertainty hatched, the cap as a line. */
export class PowerBar {
  readonly element: HTMLElement;
  private readonly used = h("i", { class: "used" });
  private readonly band = h("i", { class: "band" });
  private readonly cap = h("i", { class: "cap" });

  constructor() {
    this.element = h("span", { class: "powerbar", "aria-hidden": "true" }, this.used, this.band, this.cap);
  }

  show(power: PowerBand | null, cap: number | null): void {
    const most = Math.max(power?.high_uw ?? 0, cap ?? 0) * 1.05 || 1;
    const percent = (n: number) => `${((100 * n) / most).toFixed(1)}%`;
    setWidth(this.used, power ? percent(power.mid_uw) : "0");
    this.band.style.left = power ? percent(power.low_uw) : "0";
    setWidth(this.band, power ? percent(power.high_uw - power.low_uw) : "0");
    this.cap.hidden = cap === null;
    if (cap !== null) this.cap.style.left = percent(cap);
    this.element.classList.toggle("over", power !== null && cap !== null && power.low_uw > cap);
  }
}

export class Meter {
  readonly element: HTMLElement;
  private readonly fill = h("i");

  constructor() {
    this.element = h("span", { class: "bar", "aria-hidden": "true" }, this.fill);
  }

  show(share: number | null): void {
    setWidth(this.fill, `${Math.min(100, Math.max(0, 100 * (share ?? 0))).toFixed(1)}%`);
    this.element.classList.toggle("over", (share ?? 0) > 1);
  }
}

/** A group of buttons of which one is pressed. */
export class Choice<T> {
  readonly element: HTMLElement;
  private readonly buttons: HTMLButtonElement[];

  constructor(label: string, private readonly options: readonly (readonly [string, T])[], public value: T, private readonly onChoice: () => void) {
    this.buttons = options.map(([name, option]) => h("button", { type: "button", "aria-pressed": String(option === value), onclick: () => this.choose(option) }, name));
    this.element = h("div", { class: "buttons", role: "group", "aria-label": label }, ...this.buttons);
  }

  private choose(value: T): void {
    this.value = value;
    this.options.forEach(([, option], i) => this.buttons[i]!.setAttribute("aria-pressed", String(option === value)));
    this.onChoice();
  }
}

/** Asks before something is done. Resolves to whether it was confirmed; @more stands above the buttons. */
export function confirmed(question: string, yes: string, ...more: Child[]): Promise<boolean> {
  return new Promise((answer) => {
    const before = document.activeElement;
    const dialog = h("dialog", { class: "ask", "aria-labelledby": "ask" }, h("form", { method: "dialog" }, h("h2", { id: "ask" }, question), ...more,
      h("div", { class: "field" }, h("button", { value: "yes", class: "primary" }, yes), h("button", { value: "no", autofocus: true }, "Cancel"))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement) before.focus();
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Where a view says how something went: to eyes and to screen readers. */
export class Says {
  readonly element = h("p", { class: "says" });

  say(text: string, alarm = false): void {
    setText(this.element, text);
    this.element.classList.toggle("alarm", alarm);
    announce(text);
  }
}
