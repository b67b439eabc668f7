/* SPDX-License-Identifier: Apache-2.0 */
/* View Policy: the text in force with its lines; for administrators a draft that is checked, compared, and applied. */
import { get, send } from "../api";
import { h, Rows, setText } from "../dom";
import { count, moment } from "../format";
import type { Page } from "../frame";
import { HubLive } from "./live";
import { Checked, Fault, Policy } from "./model";
import { card, confirmed, Says, told } from "./parts";

const CHECK_MS = 800; // after the last key

export class PolicyPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Policy";
  private readonly about = h("p", { class: "small", role: "status" });
  private readonly text = h("ol", { class: "source", tabindex: 0, "aria-label": "The policy in force", role: "list" });
  private readonly draft = h("textarea", { spellcheck: "false", "aria-label": "Draft of the policy", rows: 24, autocomplete: "off", oninput: () => this.changed() });
  private readonly faults: Rows<Fault, HTMLLIElement>;
  private readonly diff = h("ul", { class: "diff" });
  private readonly says = new Says();
  private readonly apply = h("button", { type: "button", class: "primary", disabled: true, onclick: () => void this.put() }, "Apply");
  private readonly back = h("button", { type: "button", disabled: true, onclick: () => this.restore() }, "Discard the draft");
  private readonly editor: HTMLElement | null;
  private policy: Policy | null = null;
  private timer = 0;
  private asked = 0;
  private line = "";

  constructor(private readonly live: HubLive) {
    const list = h("ul", { class: "faults" });
    this.faults = new Rows(list, (f) => `${f.line}:${f.column} ${f.text}`, (f) => h("li", {}, f.line !== null && h("button", { type: "button", class: "plainlink", onclick: () => this.jump(f.line!, f.column ?? 1) }, `${f.line}:${f.column ?? 1}`), ` ${f.text}`), () => undefined);
    this.editor = live.may("policy") ? card("Draft", this.says.element, this.draft, list, h("h3", {}, "What it changes"), this.diff, h("div", { class: "field" }, this.apply, this.back)) : null;
    this.element = h("div", { class: "page policy" }, card("Policy in force", this.about, this.text), this.editor);
  }

  show(): void {
    if (this.element.hidden) return;
    const moved = this.policy !== null && this.live.policyNumber !== null && this.live.policyNumber !== this.policy.number;
    if (!this.policy || moved) void this.fetch();
    const line = location.hash.split("/")[1] ?? "";
    if (line !== this.line) {
      this.line = line;
      this.mark();
    }
  }

  private async fetch(): Promise<void> {
    if (Date.now() - this.asked < 2000) return;
    this.asked = Date.now();
    try {
      const policy = await get<Policy>("/v1/policy"), edited = this.policy !== null && this.draft.value !== this.policy.text;
      this.policy = policy;
      this.live.policyNumber = policy.number;
      setText(this.about, policy.made_ms === null || policy.valid_until_ms === null ? "No policy is in force yet."
        : `Number ${policy.number}, made ${moment(policy.made_ms / 1000)}; units keep to it until ${moment(policy.valid_until_ms / 1000)} when the hub is away.`);
      this.text.hidden = policy.text === "";
      this.text.replaceChildren(...policy.text.replace(/\n$/, "").split("\n").map((line) => h("li", {}, h("code", {}, line || " "))));
      if (edited) this.says.say(`The policy has moved on to number ${policy.number} while you wrote: look at what your draft changes now.`, true);
      else this.draft.value = policy.text;
      this.changed();
      this.mark();
    } catch (error) {
      setText(this.about, told(error));
    }
  }

  /** The line that an explanation named. */
  private mark(): void {
    const at = Number(this.line) - 1;
    [...this.text.children].forEach((line, i) => line.classList.toggle("named", i === at));
    this.text.children[at]?.scrollIntoView({ block: "center" });
  }

  private changed(): void {
    const same = this.draft.value === this.policy?.text;
    this.apply.disabled = true;
    this.back.disabled = same;
    clearTimeout(this.timer);
    if (same) {
      this.faults.show([]);
      this.diff.replaceChildren(h("li", { class: "small" }, "The draft is the policy in force."));
      setText(this.says.element, "");
    } else this.timer = window.setTimeout(() => void this.check(), CHECK_MS);
  }

  private async check(): Promise<void> {
    const text = this.draft.value;
    try {
      const checked = await send<Checked>("POST", "/v1/policy/check", { text });
      if (text !== this.draft.value) return;
      const doubts = checked.warnings?.length ?? 0;
      this.faults.show([...checked.faults, ...(checked.warnings ?? [])]);
      const lines = checked.faults.length ? [] : checked.diff?.length ? checked.diff : [checked.diff ? "All rules stay as they are: only the text changes, such as comments or the order of lines." : "No fault."];
      this.diff.replaceChildren(...lines.map((line) => h("li", { class: line[0] === "+" ? "new" : line[0] === "-" ? "gone" : line[0] === "~" ? "other" : "small" }, line)));
      this.says.say(checked.faults.length ? `${count(checked.faults.length, "fault")}: this cannot be applied.` : `No contradiction in the coming year${doubts ? `; ${count(doubts, "doubt")}, and it can be applied all the same` : ""}.`, checked.faults.length > 0);
      this.apply.disabled = checked.faults.length > 0;
    } catch (error) {
      this.says.say(told(error), true);
    }
  }

  private jump(line: number, column: number): void {
    const lines = this.draft.value.split("\n"), begin = lines.slice(0, line - 1).reduce((n, text) => n + text.length + 1, 0);
    const at = begin + Math.min(Math.max(0, column - 1), lines[line - 1]?.length ?? 0);
    this.draft.focus();
    this.draft.setSelectionRange(at, begin + (lines[line - 1]?.length ?? 0));
    this.draft.scrollTop = Math.max(0, (line - 5) * parseFloat(getComputedStyle(this.draft).lineHeight));
  }

  private restore(): void {
    this.draft.value = this.policy?.text ?? "";
    this.changed();
  }

  private async put(): Promise<void> {
    const changes = [...this.diff.children].map((line) => h("li", { class: line.className }, line.textContent));
    if (!this.policy || !await confirmed("Apply this policy to all areas?", "Apply", h("ul", { class: "diff" }, ...changes))) return;
    try {
      const put = await send<{ number?: number } | null>("PUT", "/v1/policy", { text: this.draft.value, number: this.policy.number });
      this.policy = { ...this.policy, text: this.draft.value };
      this.asked = 0;
      await this.fetch();
      this.says.say(`Applied${put?.number ? ` as number ${put.number}` : ""}: units get it now.`);
    } catch (error) {
      this.says.say(told(error), true);
      this.asked = 0;
      void this.fetch();
    }
  }
}
