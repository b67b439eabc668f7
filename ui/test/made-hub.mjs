// SPDX-License-Identifier: Apache-2.0
// A hub with made-up areas that speaks the hub's REST and events: for the frame times of bench.mjs, and to work on the page
// without a broker. The page's tests use the real one, but for times and orders that it has seldom (hub.test.mjs). usage: node test/made-hub.mjs [PORT [AREAS]]
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const DIST = process.env.TIDE_UI_DIST ?? join(dirname(fileURLToPath(import.meta.url)), "../dist");
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript" };
const DAY_MS = 86400e3;
const MAY = { viewer: [], operator: ["switch"], administrator: ["switch", "policy", "users", "units"] };
const POLICY = `version: 1
org: unlp
zone: America/Argentina/Buenos_Aires
tariff:
  unit: EUR
  price: 0.12 EUR/kWh
  windows:
  - {when: "Mon-Fri 18:00-23:00", price: 0.30 EUR/kWh}
rules:
- {area: unlp, budget: 90 kWh/day, shape: tariff}
- {area: unlp/f1/lab1, cap: 1200 W, floor: 300 W, kind: breaker}
- {area: unlp/f1/lab1, when: "Mon-Fri 18:00-23:00", cap: 800 W, kind: budget}
`;

/** An organization of @count areas: faculties of about thirty laboratories. */
function makeAreas(count) {
  const areas = [], base = { kind: null, floor_uw: null, next_ms: null, budget: null, price: { amount: "0.12", unit: "EUR/kWh", until_ms: Date.now() + 3600e3 }, carbon_g: null, lease_uw: null, absent_s: null,
    switches: [], shrunk: [], since_ms: Date.now() - 3600e3, power: null, cap_uw: null, cap_by: null, name: null };
  areas.push({ ...base, area: "unlp", parent: null, unit: null, state: "connected", name: "University", budget: { day_uj: String(90 * 3.6e12), used_uj: String(31 * 3.6e12) } });
  for (let f = 1; areas.length < count; f++) {
    areas.push({ ...base, area: `unlp/f${f}`, parent: "unlp", unit: null, state: "connected", name: `Faculty ${f}`, cap_uw: 40e9, cap_by: "policy.yaml:9: unlp: cap 40 kW" });
    for (let l = 1; l <= 30 && areas.length < count; l++)
      areas.push({ ...base, area: `unlp/f${f}/lab${l}`, parent: `unlp/f${f}`, unit: `f${f}-lab${l}`, name: l % 3 ? `Laboratory ${l}` : null, state: l % 11 === 10 ? "lost" : "connected", cap_uw: 1200e6,
        cap_by: "policy.yaml:11: unlp/f1/lab1: cap 1200 W (breaker)", kind: "breaker", floor_uw: 300e6, next_ms: Date.now() + 1800e3, lease_uw: 1100e6, absent_s: l % 2 ? 0 : 900,
        budget: { day_uj: String(9 * 3.6e12), used_uj: String((2 + l / 4) * 3.6e12) }, carbon_g: 410,
        switches: [{ name: "ac", on: l % 2 === 0, known: true, always_on: false }, { name: "lights", on: false, known: l % 5 !== 0, always_on: false }, { name: "fridge", on: true, known: true, always_on: true }],
        shrunk: l === 1 ? [{ node: "pc1", jobs: 2, cores: 6 }, { node: "pc2", jobs: 1, cores: 1 }] : [] });
  }
  return areas;
}

export class MadeHub {
  role = "administrator";
  session = true;
  sent = []; // what the page asked to change
  streams = new Set();

  constructor(count = 40) {
    this.areas = makeAreas(count);
    this.move();
  }

  async listen(port = 0) {
    this.server = createServer((ask, answer) => void this.answer(ask, answer)).listen(port, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${this.server.address().port}/`;
    return this;
  }

  close() {
    clearInterval(this.timer);
    this.server.close();
    this.server.closeAllConnections();
  }

  /** Every area's power changes; those that hold others have the sum. */
  move() {
    const sums = new Map();
    for (const a of [...this.areas].reverse()) {
      const own = 700e6 + 420e6 * Math.sin(Date.now() / 9000 + a.area.length * 7 + Number(a.area.match(/\d+$/)?.[0] ?? 0)), mid = a.unit ? own : sums.get(a.area) ?? 0;
      a.power = a.unit && a.state === "lost" ? null : { low_uw: mid * 0.94, mid_uw: mid, high_uw: mid * 1.06, basis: a.unit ? "measured" : "measured" };
      if (a.parent) sums.set(a.parent, (sums.get(a.parent) ?? 0) + (a.power?.mid_uw ?? 0));
    }
  }

  /** Each area's power a second, of a hundred areas in an event, as the hub tells it. */
  run(ms = 1000) {
    this.timer = setInterval(() => {
      this.move();
      for (let i = 0; i < this.areas.length; i += 100) this.tell("power", this.areas.slice(i, i + 100).map(({ area, power }) => ({ area, power })));
    }, ms);
    return this;
  }

  tell(type, data) {
    const text = `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
    for (const stream of this.streams) stream.write(text);
  }

  energyOf(query) {
    const from = Number(query.get("from")), to = Number(query.get("to")), steps = { "10s": 10e3, "1min": 60e3, "5min": 300e3, "15min": 900e3, "1h": 3600e3 };
    const step_ms = steps[query.get("step")] ?? 900e3, stretches = [];
    for (let at = from - (from % step_ms); at < Math.min(to, Date.now()); at += step_ms) {
      const w = 700 + 420 * Math.sin(at / 3e6) + 60 * Math.sin(at / 2e5), share = (at - from) / (to - from), gap = share > 0.3 && share < 0.36, uj = w * step_ms * 1e3;
      stretches.push({ from_ms: at, low_uj: gap ? null : String(uj * 0.95), mid_uj: gap ? null : String(uj), high_uj: gap ? null : String(uj * 1.05), basis: gap ? "unknown" : "measured", gap_ms: gap ? step_ms : 0, cost: "0.1" });
    }
    const change = from + 0.6 * (to - from), late = from + 0.92 * (to - from);
    return { step_ms, stretches, caps: [{ from_ms: from, uw: 1200e6, by: "policy.yaml:11" }, { from_ms: change, uw: 800e6, by: "policy.yaml:12" }, { from_ms: late, uw: 1200e6, by: "policy.yaml:11" }],
      prices: [{ from_ms: from, amount: "0.12" }, { from_ms: change, amount: "0.30" }, { from_ms: late, amount: "0.12" }] };
  }

  /** When a day began here. */
  midnight = Math.floor(Date.now() / DAY_MS) * DAY_MS;

  /** Energy is counted in whole days, as by the real hub. */
  usedIn(by, from, to) {
    const day = (ms) => this.midnight + Math.floor((ms - this.midnight) / DAY_MS) * DAY_MS, from_ms = day(from), to_ms = day(to - 1) + DAY_MS;
    return { from_ms, to_ms, filling: false, currency: "EUR", rows: this.usedOf(by, from_ms, to_ms) };
  }

  usedOf(by, from, to) {
    const row = (key, kwh) => ({ key, uj: String(kwh * 3.6e12), low_uj: String(kwh * 3.5e12), high_uj: String(kwh * 3.7e12), cost: String(kwh * 0.14), gap_ms: 0 });
    const days = (Math.min(to, Date.now()) - from) / DAY_MS, late = to > Date.now() - DAY_MS;
    if (by === "area") return this.areas.map((a, i) => row(a.area, days * (i ? 1 + (i % 37) / 5 : 500) * (late ? 1 : 1.1)));
    if (by === "user") return ["ada", "grace", "alan"].map((u, i) => row(u, days * (3 + i)));
    return Array.from({ length: Math.ceil(days) }, (_, i) => row(new Date(from + i * DAY_MS + DAY_MS / 2).toISOString().slice(0, 10), 400 + 20 * (i % 7)));
  }

  get(path, query) {
    const area = path.match(/^\/v1\/areas\/(.+)\/(energy|explain|shrunk)$/), now = Date.now();
    if (area?.[2] === "energy") return { area: area[1], ...this.energyOf(query) };
    if (area?.[2] === "shrunk") return { area: area[1], jobs: [{ node: "pc1", job: "bert-fine-tune", user: "ada", cores: 5 }, { node: "pc1", job: "resnet50", user: "grace", cores: 1 }] };
    if (area) return { area: area[1], at_ms: Number(query.get("at")), zone: "UTC", next_ms: now + 1800e3, lines: [{ what: "cap", line: 12, text: "unlp/f1/lab1: cap 800 W (budget), Mon-Fri 18:00-23:00" },
      { what: "floor", line: 11, text: "unlp/f1/lab1: floor 300 W" }, { what: "price", line: null, text: "0.300 EUR/kWh" }] };
    return {
      "/v1/areas": () => ({ org: "unlp", zone: "UTC", now_ms: now, currency: "EUR", areas: this.areas.map((a) => ({ ...a, switches: a.switches.map((s) => ({ ...s, may: this.role !== "viewer" && !s.always_on })) })) }),
      "/v1/energy": () => this.usedIn(query.get("by"), Number(query.get("from")), Number(query.get("to"))),
      "/v1/policy": () => ({ number: 7, text: POLICY, made_ms: now - 86400e3, valid_until_ms: now + 6 * 86400e3 }),
      "/v1/units": () => this.areas.filter((a) => a.unit).map((a, i) => ({ name: a.unit, area: a.area, state: a.state, version: "0.9", policy: i % 9 ? 7 : 6, certificate_until_ms: now + (i % 13 ? 60 : 5) * 86400e3, revoked: i % 17 === 16 })),
      "/v1/users": () => [["ada", "administrator"], ["grace", "operator"], ["alan", "viewer"]].map(([user, role]) => ({ user, role, created_ms: now, last_ms: now - 60000 })),
      "/v1/audit": () => [{ time_ms: now - 50000, user: "grace", what: "switch", target: "unlp/f1/lab1 ac off", outcome: "done", from: "192.0.2.4" }, { time_ms: now - 90000, user: "ada", what: "policy", target: "number 7", outcome: "done", from: "192.0.2.4" }],
    }[path]?.();
  }

  async answer(ask, answer) {
    const url = new URL(ask.url, "http://x"), path = url.pathname, file = path === "/" ? "/index.html" : path;
    const json = (status, body) => answer.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    const fault = (status, message, hint = "") => json(status, { error: { message, hint } });
    answer.setHeader("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'");
    if (/^\/[a-z]+\.(html|css|js)$/.test(file)) return answer.setHeader("Content-Type", TYPES[file.split(".")[1]]).end(readFileSync(join(DIST, file)));
    if (path === "/v1/session") return json(200, { server: "hub", org: "unlp", version: "0", user: this.session ? "ada" : null, role: this.session ? this.role : null, may: this.session ? MAY[this.role] : [] });
    let text = "";
    for await (const part of ask) text += part;
    const body = text ? JSON.parse(text) : null;
    if (path === "/v1/login") return body.password === "correct" ? ((this.session = true), json(200, { user: "ada", role: this.role })) : fault(401, "no such user, or another password");
    if (!this.session) return fault(401, "not logged in");
    if (path === "/v1/events") {
      answer.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" }).write(":\n\n");
      this.streams.add(answer);
      return ask.socket.on("close", () => this.streams.delete(answer));
    }
    if (ask.method === "GET") {
      const told = this.get(path, url.searchParams);
      return told ? json(200, told) : fault(404, "there is no such thing");
    }
    this.sent.push([ask.method, path, body]);
    if (path === "/v1/policy/check") return json(200, /cap: x/.test(body.text) ? { faults: [{ line: 11, column: 27, text: "'x' is no power: write 1200 W" }], diff: [] } : { faults: [], diff: ["~ unlp/f1/lab1: cap 900 W (budget), Mon-Fri 18:00-23:00; was: cap 800 W"] });
    const order = path.match(/^\/v1\/areas\/(.+)\/switches\/(.+)$/);
    if (order) {
      const id = createHash("sha1").update(String(this.sent.length)).digest("hex").slice(0, 8);
      setTimeout(() => {
        const area = this.areas.find((a) => a.area === order[1]);
        area.switches.find((s) => s.name === order[2]).on = body.on;
        this.tell("state", { area: area.area, switches: area.switches.map((s) => ({ ...s, may: this.role !== "viewer" && !s.always_on })) });
        this.tell("switch", { id, area: order[1], name: order[2], on: body.on, state: "done", text: "" });
      }, 600);
      return json(202, { id });
    }
    return json(200, path === "/v1/tokens" ? { token: "tide-1-0123456789abcdef" } : { number: 8 });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const hub = await new MadeHub(Number(process.argv[3] ?? 1000)).listen(Number(process.argv[2] ?? 8080));
  hub.run();
  console.log(hub.url);
}
