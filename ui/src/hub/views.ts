/* SPDX-License-Identifier: Apache-2.0 */
/* The views of an organization's hub, behind a login. */
import { get, Problem, send, Session } from "../api";
import { h } from "../dom";
import type { Views } from "../frame";
import { AreasPage } from "./energy";
import { HubLive } from "./live";
import { told } from "./parts";
import { AuditPage, ownPassword, UsersPage } from "./people";
import { PolicyPage } from "./policy";
import { UnitsPage } from "./units";
import { UsedPage } from "./used";

/** Shows the form until somebody has logged in. */
function login(session: Session): Promise<Session> {
  return new Promise((done) => {
    const user = h("input", { name: "user", autocomplete: "username", required: true, autofocus: true, autocapitalize: "none" });
    const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
    const says = h("p", { class: "says alarm", role: "alert" }), button = h("button", { type: "submit", class: "primary" }, "Log in");
    const form = h("form", { class: "card login", onsubmit: async (event: Event) => {
      event.preventDefault();
      button.disabled = true;
      says.textContent = "";
      try {
        await send("POST", "/v1/login", { user: user.value, password: password.value });
        const now = await get<Session>("/v1/session");
        if (!now.user) throw new Problem(0, "the browser did not keep the session's cookie", "Open the page by https.");
        main.remove();
        done(now);
      } catch (error) {
        says.textContent = told(error);
        password.value = "";
        password.focus();
      }
      button.disabled = false;
    } }, h("h1", {}, h("span", { class: "brand" }, "threadtide"), session.org ? ` ${session.org}` : ""), h("label", {}, "User", user), h("label", {}, "Password", password), button, says);
    const main = h("main", { class: "enter" }, form);
    document.title = "Log in – threadtide";
    document.body.append(main);
    user.focus();
  });
}

export async function hubViews(first: Session): Promise<Views> {
  const session = first.user ? first : await login(first), live = new HubLive(session);
  const out = h("button", { type: "button", class: "small", onclick: async () => {
    try {
      await send("POST", "/v1/logout", {});
    } finally {
      location.reload();
    }
  } }, "Log out");
  const password = h("button", { type: "button", class: "small password", onclick: ownPassword }, "Password");
  const pages = [new AreasPage(live), new UsedPage(live), new UnitsPage(live), new PolicyPage(live), ...(session.may?.includes("users") ? [new UsersPage(live), new AuditPage(live)] : [])];
  return {
    live, pages,
    options: {
      user: `${session.user}, ${session.role ?? ""}`, ended: "This session has ended. Load the page again to log in.", extra: [password, out],
      keys: [["↑ ↓ ← →", "in the tree: move, close, open"], ["Enter", "choose the area"], ["/", "find"]],
    },
  };
}
