/* SPDX-License-Identifier: Apache-2.0 */
/* Views Users and Audit, for administrators; and the own password. */
import { get, send } from "../api";
import { h, Rows, setText } from "../dom";
import { moment, UNKNOWN } from "../format";
import type { Page } from "../frame";
import { HubLive } from "./live";
import { Audit, User } from "./model";
import { card, cells, confirmed, Says, table, told } from "./parts";

const ROLES = ["viewer", "operator", "administrator"];
const LIMIT = 100;
const SECRET_LEN = 10;
const AGAIN_MS = 15000;

const roles = (chosen: string, attributes = {}) => h("select", attributes, ...ROLES.map((role) => h("option", { value: role, selected: role === chosen }, role)));
/** Sessions end with an old password or role in any case. */
const keepTokens = () => h("input", { type: "checkbox", name: "keep_tokens" });
const secret = () => h("input", { type: "password", autocomplete: "new-password", required: true, minlength: SECRET_LEN });

export class UsersPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Users";
  private readonly rows: Rows<User, HTMLTableRowElement>;
  private readonly says = new Says();
  private readonly keep = keepTokens();
  private looked = 0;

  constructor(private readonly live: HubLive) {
    const body = h("tbody");
    this.rows = new Rows(body, (u) => u.user, (u) => this.makeRow(u), (row, u) => {
      const select = row.cells[1]!.querySelector("select")!;
      select.dataset.role = u.role;
      if (document.activeElement !== select) select.value = u.role;
      setText(row.cells[2]!, u.last_ms ? moment(u.last_ms / 1000) : UNKNOWN);
    });
    const name = h("input", { required: true, maxlength: 63, autocomplete: "off" }), password = secret(), role = roles("viewer");
    this.element = h("div", { class: "page users" }, card("Users", this.says.element, table(["User", "Role", "Last seen", ""], body, "Users"),
      h("label", { class: "small" }, this.keep, " A new role leaves the user's tokens: scripts go on with them")),
      card("A new user", h("form", { class: "field", onsubmit: (event: Event) => {
        event.preventDefault();
        void this.change("POST", "", { user: name.value, role: role.value, password: password.value }, `${name.value} is a user now.`).then((done) => done && (event.target as HTMLFormElement).reset());
      } }, h("label", {}, "Name", name), h("label", {}, "Role", role), h("label", {}, "Password", password), h("button", { type: "submit" }, "Add"))));
  }

  private makeRow(u: User): HTMLTableRowElement {
    const row = h("tr", {}, h("th", { scope: "row" }, u.user), ...cells(["Role", "Last seen", ""])), self = u.user === this.live.session.user;
    row.cells[1]!.append(roles(u.role, { "aria-label": `Role of ${u.user}`, disabled: self, onchange: (event: Event) => {
      const select = event.target as HTMLSelectElement, role = select.value;
      void this.change("PATCH", u.user, { role, keep_tokens: this.keep.checked }, `${u.user} is ${role} now.`).then((done) => {
        if (!done) select.value = select.dataset.role ?? u.role; // as it still is
      });
    } }));
    if (!self)
      row.cells[3]!.append(h("button", { type: "button", class: "danger", "aria-label": `Remove ${u.user}`, onclick: async () => {
        if (await confirmed(`Remove ${u.user}?`, "Remove")) void this.change("DELETE", u.user, undefined, `${u.user} is no user any more.`);
      } }, "Remove"));
    return row;
  }

  private async change(method: "POST" | "PATCH" | "DELETE", user: string, body: unknown, done: string): Promise<boolean> {
    let ok = true;
    try {
      await send(method, `/v1/users${user && `/${encodeURIComponent(user)}`}`, body);
      this.says.say(done);
    } catch (error) {
      this.says.say(told(error), true);
      ok = false;
    }
    await this.fetch();
    return ok;
  }

  show(): void {
    if (!this.element.hidden && this.live.link !== "ended" && Date.now() - this.looked > AGAIN_MS) void this.fetch();
  }

  private async fetch(): Promise<void> {
    this.looked = Date.now();
    try {
      this.rows.show(await get<User[]>("/v1/users"));
    } catch (error) {
      this.says.say(told(error), true);
    }
  }
}

export class AuditPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Audit";
  private readonly rows: Rows<Audit, HTMLTableRowElement>;
  private readonly says = h("p", { class: "small", role: "status" });
  private readonly earlier = h("button", { type: "button", hidden: true, onclick: () => void this.fetch(this.told.at(-1)?.id) }, "Earlier");
  private told: Audit[] = [];
  private looked = 0;

  constructor(private readonly live: HubLive) {
    const body = h("tbody");
    this.rows = new Rows(body, (a) => [a.id, a.time_ms, a.user, a.what, a.target].join(" "), (a) => h("tr", {}, h("td", { "data-label": "Time" }, moment(a.time_ms / 1000)), h("td", { "data-label": "User" }, a.user ?? UNKNOWN),
      h("td", { "data-label": "Action" }, a.what), h("td", { "data-label": "Target" }, a.target ?? ""), h("td", { "data-label": "Outcome", class: "why" }, a.outcome ?? ""), h("td", { "data-label": "From" }, a.from ?? "")), () => undefined);
    this.element = h("div", { class: "page audit" }, card("Audit", this.says, table(["Time", "User", "Action", "Target", "Outcome", "From"], body, "Who did what"), this.earlier));
  }

  show(): void {
    if (!this.element.hidden && this.live.link !== "ended" && Date.now() - this.looked > AGAIN_MS) void this.fetch();
  }

  /** @before: the rows before this one, else the latest. */
  private async fetch(before?: number): Promise<void> {
    this.looked = Date.now();
    try {
      const rows = await get<Audit[]>(`/v1/audit?limit=${LIMIT}${before ? `&before=${before}` : ""}`), known = new Set(rows.map((a) => a.id ?? a.time_ms));
      if (before === undefined && !rows.some((a) => this.told.some((b) => b.id === a.id))) this.told = [];
      this.told = [...this.told.filter((a) => !known.has(a.id ?? a.time_ms)), ...rows].sort((a, b) => b.time_ms - a.time_ms || (b.id ?? 0) - (a.id ?? 0));
      this.rows.show(this.told);
      this.earlier.hidden = rows.length < LIMIT || !rows.at(-1)?.id;
      setText(this.says, "");
    } catch (error) {
      setText(this.says, told(error));
    }
  }
}

/** Changes the own password; the hub ends all of the user's sessions then. */
export function ownPassword(): void {
  const old = h("input", { type: "password", autocomplete: "current-password", required: true }), fresh = secret(), keep = keepTokens(), says = new Says();
  const dialog: HTMLDialogElement = h("dialog", { class: "ask", "aria-labelledby": "own" }, h("form", { onsubmit: async (event: Event) => {
    event.preventDefault();
    try {
      await send("POST", "/v1/me/password", { old: old.value, new: fresh.value, keep_tokens: keep.checked });
      location.reload();
    } catch (error) {
      says.say(told(error), true);
    }
  } }, h("h2", { id: "own" }, "Your password"), h("p", { class: "small" }, "You log in anew with the new one."),
  h("div", { class: "field" }, h("label", {}, "Now", old)), h("div", { class: "field" }, h("label", {}, "New", fresh)),
  h("label", { class: "small" }, keep, " My tokens stay: scripts go on with them"), says.element,
  h("div", { class: "field" }, h("button", { type: "submit", class: "primary" }, "Change it"), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
