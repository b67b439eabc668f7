/* SPDX-License-Identifier: Apache-2.0 */
/* Which views there are: the program that serves the page says what it is. */
import { get, Problem, Session } from "./api";
import { clusterViews } from "./cluster";
import { h } from "./dom";
import { EnergyPage } from "./energy";
import { Frame, setTheme, Views } from "./frame";
import { hubViews } from "./hub/views";
import { Live } from "./live";
import { MachinePage } from "./machine";
import { TimePage } from "./time";

function machineViews(session: Session): Views {
  const live = new Live(session);
  return {
    live,
    options: {
      user: session.user ?? "", ended: "This page's session has ended. Run 'tide dashboard' again for a new link.",
      keys: [["↑ ↓, Enter", "choose a job, open it"], ["Escape", "close it"], ["/", "filter jobs"], ["← → + − 0", "on the chart of Time: move, zoom, now"]],
    },
    pages: [new MachinePage(live), new TimePage(live), new EnergyPage(live)],
  };
}

/** One row a program that serves the page. */
const VIEWS: { [server: string]: (session: Session) => Views | Promise<Views> } = {
  machine: machineViews,
  hub: hubViews,
  cluster: clusterViews,
};

async function begin(): Promise<void> {
  setTheme();
  let views: Views;
  try {
    const session = await get<Session>("/v1/session");
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
