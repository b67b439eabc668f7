/* SPDX-License-Identifier: Apache-2.0 */
/* Which views there are: the program that serves the page says what it is. */
import { AT, get, Problem, Session } from "./api";
import { clusterViews } from "./cluster";
import { h } from "./dom";
import { EnergyPage } from "./energy";
import { Frame, setTheme, Views } from "./frame";
import { hubViews } from "./hub/views";
import { Live } from "./live";
import { MachinePage } from "./machine";
import { MachinesPage } from "./machines";
import { TimePage } from "./time";

function machineViews(session: Session): Views {
  const live = new Live(session);
  return {
    live,
    options: {
      user: session.user ?? "", ended: "This page's session has ended. Run 'tide dashboard' again for a new link.",
      keys: [["↑ ↓, Enter", "choose a job, open it"], ["Escape", "close it"], ["/", "filter jobs"], ["← → + − 0", "on the chart of Time: move, zoom, now"]],
      ...(session.at ? { of: session.at, extra: [h("a", { class: "at", href: "/", title: "Back to this machine" }, session.at)] } : {}),
    },
    pages: [new MachinePage(live), new TimePage(live), new EnergyPage(live), new MachinesPage()],
  };
}

/** One row a program that serves the page. */
const VIEWS: { [server: string]: (session: Session) => Views | Promise<Views> } = {
  machine: machineViews,
  hub: hubViews,
  cluster: clusterViews,
};

const READ_MS = 500; // 503: the server is reading its inventory

/** The page's user, and the machine that it shows. */
async function sessionOf(): Promise<Session> {
  for (let tries = 0; ; tries++)
    try {
      return await get<Session>(AT ? `/v1/session?at=${encodeURIComponent(AT)}` : "/v1/session");
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 503 || tries === 40) throw error;
      await new Promise((go) => setTimeout(go, READ_MS));
    }
}

async function begin(): Promise<void> {
  setTheme();
  let views: Views;
  try {
    const session = await sessionOf();
    views = await (VIEWS[session.server] ?? machineViews)(session);
  } catch (error) {
    document.body.append(h("p", { class: "banner", role: "alert" }, error instanceof Problem ? error.message : String(error)));
    return;
  }
  const frame = new Frame(views.live, views.options);
  for (const page of views.pages) frame.add(page);
  frame.start();
  views.live.start();
}

void begin();
