// SPDX-License-Identifier: Apache-2.0
// Shared by the browser's tests: a real tided in a directory of its own, jobs (the fake peer and the pool of
// tests/component), tide-dashboard before it, a proxy that is slow or gone when told to, and chromium.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

const GUARD_MS = 30000;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const BUILD = resolve(process.env.TIDE_BUILD_DIR ?? "../build");
export const CHROMIUM = [process.env.TIDE_CHROMIUM, "/usr/bin/chromium", "/usr/bin/google-chrome"].find((p) => p && existsSync(p));

/** check() until it is true; its last value. */
export async function eventually(check, what = check.toString()) {
  const end = Date.now() + GUARD_MS;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${GUARD_MS} ms: ${what}`);
    await new Promise((go) => setTimeout(go, 50));
  }
}

export class Bed {
  dir = mkdtempSync(join(tmpdir(), "tide-ui-"));
  processes = [];

  /** Without a daemon yet: set .options, then startDaemon(). */
  static make() {
    const bed = new Bed();
    chmodSync(bed.dir, 0o755); // other users look at the system's daemon, too
    mkdirSync(join(bed.dir, "tide"), { mode: 0o755 });
    return bed;
  }

  static async start(...options) {
    const bed = Bed.make();
    bed.options = options;
    await bed.startDaemon();
    return bed;
  }

  async startDaemon() {
    this.tided = this.spawn("tided", ["--dir", join(this.dir, "tide"), ...this.options], { TIDE_CLAIMS_DIR: join(this.dir, "claims") });
    await eventually(() => this.api("GET", "/v1/machine").then((answer) => answer.status === 200, () => false), "tided answers");
  }

  spawn(program, args, env = {}, stdio = ["ignore", "ignore", "inherit"]) {
    const child = spawn(program.includes("/") || program === "setpriv" ? program : join(BUILD, program), args, { stdio, env: { ...process.env, TIDE_DIR: join(this.dir, "tide"), ...env } });
    this.processes.push(child);
    return child;
  }

  api(method, path, body) {
    return new Promise((done, failed) => {
      const ask = request({ socketPath: join(this.dir, "tide/api.sock"), method, path }, (answer) => {
        let text = "";
        answer.on("data", (part) => (text += part)).on("end", () => done({ status: answer.statusCode, body: text ? JSON.parse(text) : null }));
      });
      ask.on("error", failed).end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** A job whose process speaks the agent's protocol; tell("progress 5 10 step") and such. */
  async job(request = {}, ...options) {
    const peer = this.spawn(join(BUILD, "tests/component/fake_peer"), options, { TIDE_SOCKET: join(this.dir, "tide/agent.sock") }, ["pipe", "pipe", "inherit"]);
    const { body } = await this.api("POST", "/v1/jobs", { pid: peer.pid, ...request });
    if (!body.token) throw new Error(JSON.stringify(body));
    const words = createInterface(peer.stdout);
    const welcome = once(words, "line");
    peer.stdin.write(`go ${body.token} ${body.id} ${body.name}\n`);
    await welcome;
    await eventually(async () => (await this.api("GET", `/v1/jobs/${body.id}`)).body.state === "running", "the job runs");
    return { ...body, peer, tell: (line) => peer.stdin.write(`${line}\n`), get: async () => (await this.api("GET", `/v1/jobs/${body.id}`)).body };
  }

  /** A program of real threads under `tide run`. */
  async pool(name, threads) {
    const child = this.spawn("tide", ["run", "--name", name, "--", join(BUILD, "tests/component/pool"), String(threads)]);
    await eventually(async () => (await this.api("GET", `/v1/jobs/${name}`)).body.state === "running", `${name} runs`);
    return child;
  }

  /** @as: words before the command, as in setpriv's. */
  async dashboard(...as) {
    const [program, ...args] = [...as, join(BUILD, "tide-dashboard"), "--no-open"];
    const child = this.spawn(program, args, {}, ["ignore", "pipe", "inherit"]);
    const [link] = await once(createInterface(child.stdout), "line");
    return { child, link };
  }

  /** An inventory of other beds, {name: bed}, and of `gone` ones; `ssh` to one runs `tide dial` there. The words before tide-dashboard. */
  neighbours(beds, ...gone) {
    const names = [...Object.keys(beds), ...gone];
    for (const folder of ["config/tide", "bin"]) mkdirSync(join(this.dir, folder), { recursive: true });
    writeFileSync(join(this.dir, "config/tide/fleet"), names.map((name) => `${name} ssh://ana@${name}\n`).join(""));
    writeFileSync(join(this.dir, "bin/ssh"), `#!/bin/sh\nfor host; do\n  case $host in\n${Object.entries(beds).map(([name, bed]) =>
      `  ${name}) TIDE_DIR=${bed.dir}/tide exec ${join(BUILD, "tide")} dial ;;\n`).join("")}  esac\ndone\n` +
      "echo 'ssh: connect to host: No route to host' >&2\nexit 255\n");
    chmodSync(join(this.dir, "bin/ssh"), 0o755);
    return ["/usr/bin/env", `PATH=${join(this.dir, "bin")}:${process.env.PATH}`, `XDG_CONFIG_HOME=${join(this.dir, "config")}`];
  }

  async stopDaemon() {
    const ended = once(this.tided, "exit");
    this.tided.kill("SIGTERM");
    await ended;
  }

  async end() {
    for (const child of this.processes.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "exit");
      child.kill(child === this.tided ? "SIGTERM" : "SIGKILL");
      await ended;
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A wire to a port that can be slow (ms for each piece) or cut. */
export class Wire {
  static async to(port) {
    const wire = new Wire();
    wire.delay = 0;
    wire.isCut = false;
    wire.open = new Set();
    wire.server = createServer((near) => {
      if (wire.isCut) return near.destroy();
      const far = connect(port, "127.0.0.1");
      for (const [from, to] of [[near, far], [far, near]]) {
        wire.open.add(from);
        from.on("data", (data) => setTimeout(() => to.destroyed || to.write(data), wire.delay));
        from.on("close", () => { wire.open.delete(from); to.destroy(); }).on("error", () => to.destroy());
      }
      return undefined;
    });
    wire.server.listen(0, "127.0.0.1");
    await once(wire.server, "listening");
    wire.port = wire.server.address().port;
    return wire;
  }

  cut() {
    this.isCut = true;
    for (const end of this.open) end.destroy();
  }

  async close() {
    this.cut();
    this.server.close();
    await once(this.server, "close");
  }
}

export async function launch() {
  return puppeteer.launch({
    executablePath: CHROMIUM, headless: true, acceptInsecureCerts: true, // a hub's own authority has signed its certificate
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-prefers-reduced-motion", "--lang=en-GB"],
  });
}

/** A new page; what its console and network complain of gathers in page.complaints. */
export async function openPage(browser, link, { width = 1280, height = 900, scheme = "light" } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.complaints = [];
  // The tests themselves read canvases back, which chromium warns of.
  page.on("console", (m) => /^(error|warn)/.test(m.type()) && !/willReadFrequently/.test(m.text()) && page.complaints.push(m.text()));
  page.on("pageerror", (e) => page.complaints.push(e.message));
  page.on("request", (r) => /^(https?:\/\/127\.0\.0\.1|data:)/.test(r.url()) || page.complaints.push(`asks for ${r.url()}`));
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(link);
  await page.waitForSelector(".link.live, .login", { timeout: GUARD_MS });
  return page;
}

/** Serious and critical findings of axe; at least ten rules have passed. */
export async function axe(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  if (found.passes.length <= 10) throw new Error(`axe looked at nothing: ${found.passes.length} rules`);
  return found.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html).join(" ")}`);
}

export const textOf = (page, selector) => page.$eval(selector, (e) => e.textContent);
