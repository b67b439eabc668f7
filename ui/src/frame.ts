/* SPDX-License-Identifier: Apache-2.0 */
/* The frame around all views: which one is shown, how the connection is, the theme, and keys. */
import { Problem } from "./api";
import { h, setText } from "./dom";
import { moment } from "./format";

export interface Page {
  readonly element: HTMLElement;
  readonly title: string;
  /** With each look at the server, and when the page comes into view. */
  show(): void;
  focusFilter?(): void;
}

export type Link = "connecting" | "live" | "slow" | "lost" | "ended";

/** How the page hears of the server that shows it. */
export interface Connection {
  readonly link: Link;
  readonly problem: Problem | null;
  readonly looked: number; // when the last answer came, in ms; 0: never
  onChange(listener: () => void): void;
}

export interface FrameOptions {
  user: string;
  ended: string; // what to do when the session has ended
  keys: [string, string][]; // beside those of every page
  extra?: HTMLElement[]; // in the header
  of?: string; // whom the views are of, first in the window's title
}

/** The views of a program that serves the page. */
export interface Views {
  live: Connection & { start(): void };
  options: FrameOptions;
  pages: Page[];
}

const THEMES = ["auto", "light", "dark"] as const;
const AGE_MS = 1000;
const LINKS: Record<Link, string> = { connecting: "connecting", live: "live", slow: "slow", lost: "lost", ended: "ended" };

function storedTheme(): (typeof THEMES)[number] {
  try {
    return THEMES.find((t) => t === localStorage.getItem("theme")) ?? "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

export function setTheme(theme: string = storedTheme()): void {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.dispatchEvent(new Event("themechange"));
}

export class Frame {
  private readonly pages: Page[] = [];
  private readonly tabs = new Map<Page, HTMLAnchorElement>();
  private readonly link = h("span", { class: "link", role: "status" });
  private readonly banner = h("div", { class: "banner", hidden: true, role: "alert" });
  private readonly nav = h("nav", { "aria-label": "Pages" });
  private readonly main = h("main", { id: "main", tabindex: -1 });
  private readonly help: HTMLDialogElement;
  private readonly theme = h("button", { class: "plain", onclick: () => this.nextTheme() });
  private shownLink: Link | "" = "";

  constructor(private readonly live: Connection, private readonly options: FrameOptions) {
    this.help = h("dialog", { "aria-labelledby": "keys" }, h("h2", { id: "keys" }, "Keys"),
      h("dl", { class: "facts" }, ...[["1, 2, …", "pages"], ...options.keys, ["t", "light, dark, or as the system has it"], ["?", "this list"]]
        .flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
      h("form", { method: "dialog" }, h("button", {}, "Close")));
    this.showTheme();
    document.body.append(h("a", { class: "skip", href: "#main", onclick: (event: Event) => {
      event.preventDefault();
      this.main.focus();
    } }, "Skip to the page"),
    h("header", { class: "top" }, h("strong", { class: "brand" }, "threadtide"), this.nav, h("span", { class: "grow" }),
      h("span", { class: "who small" }, options.user), ...(options.extra ?? []), this.link, this.theme,
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
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme());
    this.live.onChange(() => this.show());
    setInterval(() => this.showLink(), AGE_MS);
    this.choose();
    this.showLink();
  }

  /** The part of the address before a slash names the page; what follows is the page's own. */
  private current(): Page {
    const name = location.hash.slice(1).split("/")[0];
    return this.pages.find((page) => page.title.toLowerCase() === name) ?? this.pages[0]!;
  }

  private choose(): void {
    const now = this.current();
    for (const page of this.pages) {
      page.element.hidden = page !== now;
      if (page === now) this.tabs.get(page)!.setAttribute("aria-current", "page");
      else this.tabs.get(page)!.removeAttribute("aria-current");
    }
    document.title = [this.options.of, now.title, "threadtide"].filter(Boolean).join(" – ");
    now.show();
  }

  private show(): void {
    this.showLink();
    this.current().show();
  }

  private showLink(): void {
    const { live } = this, since = live.looked ? moment(live.looked / 1000) : "";
    if (this.shownLink !== live.link) {
      this.shownLink = live.link;
      setText(this.link, LINKS[live.link]);
      this.link.className = `link ${live.link}`;
      document.body.classList.toggle("stale", live.link === "lost" || live.link === "ended");
    }
    const problem = live.problem;
    this.banner.hidden = live.link === "live" || live.link === "connecting";
    if (live.link === "slow") setText(this.banner, `The connection is slow: what you see is of ${since}.`);
    if (live.link === "lost") setText(this.banner, `${problem?.status ? problem.message : "The connection is lost"}. ${since ? `What you see is of ${since}. ` : ""}${problem?.hint ?? ""} Trying again.`);
    if (live.link === "ended") setText(this.banner, this.options.ended);
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
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]") ||
      at instanceof HTMLInputElement || at instanceof HTMLSelectElement || at instanceof HTMLTextAreaElement) return;
    const page = this.pages[Number(event.key) - 1];
    if (page) location.hash = page.title.toLowerCase();
    else if (event.key === "?") this.help.showModal();
    else if (event.key === "t") this.nextTheme();
    else if (event.key === "/") this.current().focusFilter?.();
    else return;
    event.preventDefault();
  }
}
