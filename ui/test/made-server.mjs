// SPDX-License-Identifier: Apache-2.0
// A made-up tided (or cluster) behind the page, for states that real ones have seldom or late. The page's other tests have real ones.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const DIST = process.env.TIDE_UI_DIST ?? join(dirname(fileURLToPath(import.meta.url)), "../dist");
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript" };

export const job = (id, more = {}) => ({
  id, name: `${id}-name`, owner: "ada", state: "running", pids: [1], cores: "0-1", allowed: 4, target: 2, active: 2, max: 4, oversubscribed: false, malleable: true, adopted: false,
  kept: false, submitted: false, preemptible: true, priority: 0, class: 0, weight: 100, min: 1, limit: null, request: null, memory: null, memory_used: null, deadline: null, placement: "shared",
  pinned: null, pinned_by: null, place: null, latency: null, progress: { done: 0, total: 0, unit: "", rate: 0 }, reason: "equal share", note: "", elapsed_s: 1, run_s: 1, wait_s: 0, backends: [],
  power_uw: null, power_basis: null, energy_uj: null, energy_low_uj: null, energy_high_uj: null, energy_basis: null, ...more,
});

/** An answer that is no success. */
export const refusal = (status, message) => ({ status, body: { error: { message, hint: "" } } });

export class MadeServer {
  asked = [];
  streams = new Set();
  gone = false;
  session = { server: "machine", user: "eve", uid: 1000, version: "0" };
  machine = { version: "0", pid: 1, epoch: 1, uid: 0, privileged: true, policy: "equal", placement: "shared", cpus: 4, online: "0-3", free: 2, memory: null, memory_counted: 0, jobs: 1,
    oversubscribed: false, weights: true, governs: true, notes: [] };
  jobs = [job("j1")];
  /** Path → what is answered: a value, a refusal, or a function that gives one. */
  answers = {
    "/v1/session": () => this.session, "/v1/machine": () => this.machine, "/v1/jobs": () => this.jobs, "/v1/history": () => [], "/v1/energy": { rows: [], since: 0, until: 0, currency: null },
    "/v1/power/sources": [], "/v1/power/cap": { state: "none", uw: null, source: null, until: null, why: "", cores: null, caps: [] },
  };

  async listen() {
    this.server = createServer((ask, answer) => this.answer(ask, answer)).listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${this.server.address().port}/`;
    return this;
  }

  close() {
    this.server.close();
    this.server.closeAllConnections();
  }

  cut() {
    this.gone = true;
    this.server.closeAllConnections();
  }

  tell(type) {
    for (const stream of this.streams) stream.write(`event: ${type}\ndata: {}\n\n`);
  }

  count(path) {
    return this.asked.filter((asked) => asked.split("?")[0] === path).length;
  }

  answer(ask, answer) {
    const path = ask.url.split("?")[0], file = path === "/" ? "/index.html" : path;
    if (this.gone) return ask.socket.destroy();
    this.asked.push(ask.url);
    if (/^\/[a-z]+\.(html|css|js)$/.test(file)) return answer.setHeader("Content-Type", TYPES[file.split(".")[1]]).end(readFileSync(join(DIST, file)));
    if (path === "/v1/events") {
      answer.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" }).write(":\n\n");
      this.streams.add(answer);
      return ask.socket.on("close", () => this.streams.delete(answer));
    }
    const found = this.answers[path] ?? (path.endsWith("/explain") ? { id: "", name: "", changes: [], speedup: null } : refusal(404, "there is no such thing"));
    const told = typeof found === "function" ? found() : found, { status = 200, body = told } = told?.body?.error ? told : {};
    return answer.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  }
}
