/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the page: which view is shown, how the connection is, the theme, and keys. */
import { get, Problem, Session } from "./api";
import { h, setText } from "./dom";
import { EnergyPage } from "./energy";
import { clock } from "./format";
import { Link, Live } from "./live";
import { MachinePage } from "./machine";
import { TimePage } from "./time";

export interface Page {
  readonly element: HTMLElement;
  readonly title: string;
  /** With each look at the machine, and when the page comes into view. */
  show(): void;
  focusFilter?(): void;
}

const THEMES = ["auto", "light", "dark"] as const;
const AGE_MS = 1000;

function storedTheme(): (typeof THEMES)[number] {
  try {
    return THEMES.find((t) => t === localStorage.getItem("theme")) ?? "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

function setTheme(theme: string): void {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.dispatchEvent(new Event("themechange"));
}

class Frame {
  private readonly pages: Page[] = [];
  private readonly tabs = new Map<Page, HTMLAnchorElement>();
  private readonly link = h("span", { class: "link", role: "status" });
  private readonly banner = h("div", { class: "banner", hidden: true, role: "alert" });
  private readonly nav = h("nav", { "aria-label": "Pages" });
  private readonly main = h("main", { id: "main", tabindex: -1 });
  private readonly help: HTMLDialogElement;
  private readonly theme = h("button", { class: "plain", onclick: () => this.nextTheme() });
  private shownLink: Link | "" = "";

  constructor(private readonly live: Live) {
    this.help = h("dialog", { "aria-labelledby": "keys" }, h("h2", { id: "keys" }, "Keys"),
      h("dl", { class: "facts" }, ...[["1, 2, …", "pages"], ["↑ ↓, Enter", "choose a job, open it"], ["Escape", "close it"], ["/", "filter jobs"],
        ["← → + − 0", "on the chart of Time: move, zoom, now"], ["t", "light, dark, or as the system has it"], ["?", "this list"]]
        .flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
      h("form", { method: "dialog" }, h("button", {}, "Close")));
    this.showTheme();
    document.body.append(h("a", { class: "skip", href: "#main", onclick: (event: Event) => {
      event.preventDefault();
      this.main.focus();
    } }, "Skip to the page"),
    h("header", { class: "top" }, h("strong", { class: "brand" }, "threadtide"), this.nav, h("span", { class: "grow" }),
      h("span", { class: "who small" }, live.session.user), this.link, this.theme,
      h("button", { class: "plain", onclick: () => this.help.showModal(), "aria-label": "Keys" }, "?")),
    this.banner, this.main, this.help, h("div", { id: "announce", role: "status", class: "unseen" }));
  }

  add(page: Page): void {
    const tab = h("a", { href: `#${page.title.toLowerCase()}` }, page.title);
    this.pages.push(page);
    this.tabs.set(page, tab);
    this.nav.append(tab);
    this.main.append(page.element);
    page.element.hidden = true;
  }

  start(): void {
    window.addEventListener("hashchange", () => this.choose());
    document.addEventListener("keydown", (event) => this.onKey(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(storedTheme()));
    this.live.onChange(() => this.show());
    setInterval(() => this.showLink(), AGE_MS);
    this.choose();
    this.showLink();
  }

  private current(): Page {
    return this.pages.find((page) => `#${page.title.toLowerCase()}` === location.hash) ?? this.pages[0]!;
  }

  private choose(): void {
    const now = this.current();
    for (const page of this.pages) {
      page.element.hidden = page !== now;
      if (page === now) this.tabs.get(page)!.setAttribute("aria-current", "page");
      else this.tabs.get(page)!.removeAttribute("aria-current");
    }
    document.title = `${now.title} – threadtide`;
    now.show();
  }

  private show(): void {
    this.showLink();
    this.current().show();
  }

  private showLink(): void {
    const { live } = this, since = live.looked ? clock(live.looked / 1000) : "";
    const texts: Record<Link, string> = { connecting: "connecting", live: "live", slow: "slow", lost: "lost", ended: "ended" };
    if (this.shownLink !== live.link) {
      this.shownLink = live.link;
      setText(this.link, texts[live.link]);
      this.link.className = `link ${live.link}`;
      document.body.classList.toggle("stale", live.link === "lost" || live.link === "ended");
    }
    const problem = live.problem;
    this.banner.hidden = live.link === "live" || live.link === "connecting";
    if (live.link === "slow") setText(this.banner, `The connection is slow: what you see is of ${since}.`);
    if (live.link === "lost") setText(this.banner, `${problem?.status ? problem.message : "The connection is lost"}. ${since ? `What you see is of ${since}. ` : ""}${problem?.hint ?? ""} Trying again.`);
    if (live.link === "ended") setText(this.banner, "This page's session has ended. Run 'tide dashboard' again for a new link.");
  }

  private showTheme(): void {
    const theme = storedTheme();
    setTheme(theme);
    setText(this.theme, theme === "auto" ? "◐" : theme === "light" ? "☀" : "☾");
    this.theme.setAttribute("aria-label", `Theme: ${theme}`);
    this.theme.title = `Theme: ${theme}`;
  }

  private nextTheme(): void {
    const next = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length]!;
    try {
      localStorage.setItem("theme", next);
    } catch {
      /* a browser that keeps nothing */
    }
    this.showTheme();
  }

  private onKey(event: KeyboardEvent): void {
    const at = event.target;
    if (event.ctrlKey || event.altKey || event.metaKey || at instanceof HTMLInputElement || at instanceof HTMLSelectElement || this.help.open) return;
    const page = this.pages[Number(event.key) - 1];
    if (page) location.hash = page.title.toLowerCase();
    else if (event.key === "?") this.help.showModal();
    else if (event.key === "t") this.nextTheme();
    else if (event.key === "/") this.current().focusFilter?.();
    else return;
    event.preventDefault();
  }
}

async function begin(): Promise<void> {
  let session: Session;
  try {
    session = await get<Session>("/v1/session");
  } catch (error) {
    document.body.append(h("p", { class: "banner", role: "alert" }, error instanceof Problem ? error.message : String(error)));
    return;
  }
  const live = new Live(session), frame = new Frame(live);
  frame.add(new MachinePage(live));
  frame.add(new TimePage(live));
  frame.add(new EnergyPage(live));
  frame.start();
  live.start();
}

void begin();
