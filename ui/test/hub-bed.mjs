// SPDX-License-Identifier: Apache-2.0
// A real organization for the page's tests: tide-hub with its mosquitto, and areas, each a tide-power with plugs that speak
// to a mosquitto of the area's own.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { BUILD, eventually } from "./bed.mjs";

const TOOLS = ["mosquitto", "mosquitto_pub", "mosquitto_sub", "openssl"];
const AS_ROOT = process.getuid() === 0 ? ["--user", "root"] : [];
export const PASSWORD = "a long enough password";
export const POWER = [join(BUILD, "tide-power"), join(BUILD, "src/unit/tide-power")].find((path) => existsSync(path));

const there = (tool) => ["/usr/bin", "/usr/sbin", "/usr/local/bin"].some((dir) => existsSync(join(dir, tool)));
export const LACKS = [!POWER && "tide-power", ...TOOLS.filter((tool) => !there(tool))].filter(Boolean).join(", ");

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

const listens = (port) => new Promise((done) => {
  const socket = connect(port, "127.0.0.1", () => { socket.destroy(); done(true); }).on("error", () => done(false));
});

export class HubBed {
  dir = mkdtempSync(join(tmpdir(), "tide-ui-hub-"));
  state = join(this.dir, "state");
  policy = join(this.dir, "policy.yaml");
  processes = [];
  said = "";

  static async start(policy, users) {
    const bed = new HubBed();
    writeFileSync(bed.policy, policy);
    bed.port = await freePort();
    bed.broker = bed.spawn(join(BUILD, "tide-hub"), ["broker", "--state", bed.state, "--port", String(bed.port), "--address", "127.0.0.1", "--host", "127.0.0.1", ...AS_ROOT]);
    await eventually(() => listens(bed.port), "the hub's broker listens");
    for (const [name, role] of Object.entries(users)) bed.user(name, role);
    bed.web = await freePort();
    await bed.serve();
    return bed;
  }

  spawn(program, args, options = {}, own = false) {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
    if (!own) for (const out of [child.stdout, child.stderr]) out.on("data", (text) => (this.said += text));
    this.processes.push(child);
    return child;
  }

  run(...args) {
    return execFileSync(join(BUILD, "tide-hub"), args, { encoding: "utf8", input: "", stdio: ["pipe", "pipe", "pipe"] });
  }

  user(name, role) {
    execFileSync(join(BUILD, "tide-hub"), ["user", "add", name, "--role", role, "--state", this.state], { input: `${PASSWORD}\n`, stdio: ["pipe", "ignore", "pipe"] });
  }

  async serve() {
    this.hub = this.spawn(join(BUILD, "tide-hub"), ["serve", "--state", this.state, "--broker", `127.0.0.1:${this.port}`, "--listen", `127.0.0.1:${this.web}`, "--policy", this.policy]);
    await eventually(() => {
      if (this.hub.exitCode !== null) throw new Error(this.said);
      return listens(this.web);
    }, "the hub's page is served");
    this.link = `https://127.0.0.1:${this.web}/`;
  }

  async stop(child) {
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    await ended;
    this.processes.splice(this.processes.indexOf(child), 1);
  }

  /** An area with a plug; @lines: what its tide-power.conf has besides. */
  async area(name, lines = []) {
    const folder = join(this.dir, name), port = await freePort(), file = (end) => join(folder, `${name}.${end}`);
    mkdirSync(folder);
    execFileSync("openssl", ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file("key"), "-out", file("csr"), "-subj", `/CN=${name}`], { stdio: "ignore" });
    writeFileSync(file("crt"), this.run("unit", "sign", name, file("csr"), "--state", this.state));
    writeFileSync(join(folder, "mosquitto.conf"), `listener ${port} 127.0.0.1\nallow_anonymous true\n${AS_ROOT.length ? "user root\n" : ""}`);
    const seal = [join(this.state, "trust/seal.pub"), join(this.state, "seal.pub")].find((path) => existsSync(path));
    writeFileSync(join(folder, "tide-power.conf"), ["[unit]", `name = ${name}`, `state-dir = ${folder}`, "[local]", `broker = 127.0.0.1:${port}`,
      "[uplink]", `broker = 127.0.0.1:${this.port}`, `ca = ${this.state}/trust/ca.crt`, `cert = ${file("crt")}`, `key = ${file("key")}`, ...(seal ? [`seal = ${seal}`] : []),
      "[meter wall]", "kind = tasmota", "topic = wall", "covers = area", "error = 5 %", ...lines, ""].join("\n"));
    const area = { name, port, kwh: 10, watts: 800 };
    this.spawn("mosquitto", ["-c", join(folder, "mosquitto.conf")]);
    await eventually(() => listens(port), "the area's broker listens");
    area.start = () => (area.unit = this.spawn(POWER, ["--config", join(folder, "tide-power.conf")]));
    area.tell = (topic, text) => execFileSync("mosquitto_pub", ["-h", "127.0.0.1", "-p", String(port), "-t", topic, "-m", text]);
    /** Sends a report as the unit would by its machines; null: nothing. */
    area.report = (what, told) => execFileSync("mosquitto_pub", ["-h", "127.0.0.1", "-p", String(this.port), "--cafile", `${this.state}/trust/ca.crt`, "--cert", file("crt"), "--key", file("key"),
      "-q", "1", "-t", `tide/1/${name}/up/${what}`, "-m", JSON.stringify(told)]);
    // Its relays answer as Tasmota's do: an order and an empty question are both followed by how it is.
    area.relays = {};
    area.orders = [];
    area.relay = (topic, on) => area.tell(`stat/${topic}/POWER`, (area.relays[topic] = on) ? "ON" : "OFF");
    createInterface(this.spawn("mosquitto_sub", ["-h", "127.0.0.1", "-p", String(port), "-t", "cmnd/+/POWER", "-F", "%t %p"], { stdio: ["ignore", "pipe", "ignore"] }, true).stdout).on("line", (line) => {
      const [, topic, order] = line.match(/^cmnd\/(.+)\/POWER ?(.*)$/) ?? [];
      if (!topic || !(topic in area.relays)) return;
      if (order) area.orders.push(`${topic} ${order}`);
      area.relay(topic, order ? order === "ON" : area.relays[topic]);
    });
    area.turn = () => {
      const now = performance.now();
      area.kwh += (area.watts * (now - (area.turned ?? now))) / 3.6e9;
      area.turned = now;
      area.tell("tele/wall/SENSOR", JSON.stringify({ Time: new Date().toISOString().slice(0, 19), ENERGY: { Power: area.watts, Total: Number(area.kwh.toFixed(6)) } }));
    };
    area.timer = setInterval(() => {
      try {
        area.turn();
      } catch { /* its broker has ended */ }
    }, 1000);
    (this.areas ??= []).push(area);
    area.start();
    return area;
  }

  log() {
    return this.said;
  }

  read(...path) {
    return readFileSync(join(this.dir, ...path), "utf8");
  }

  async end() {
    for (const area of this.areas ?? []) clearInterval(area.timer);
    for (const child of this.processes.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      const late = setTimeout(() => child.kill("SIGKILL"), 10000);
      await ended;
      clearTimeout(late);
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Logs in by the form, with keys alone. */
export async function login(page, user, password = PASSWORD) {
  await page.waitForSelector(".login input");
  await page.type(".login input[name=user]", user);
  await page.keyboard.press("Tab");
  await page.keyboard.type(password);
  await page.keyboard.press("Enter");
}
