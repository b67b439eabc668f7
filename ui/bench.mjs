// SPDX-License-Identifier: Apache-2.0
// How long the page's frames take with 500 jobs on 512 cores, and with 1,000 areas of which each changes every second.
// The data are made up, by a server in this process that answers as tided does, and by that of test/made-hub.mjs; page
// and browser are the real ones. usage, in ui/: node bench.mjs [SECONDS]
// A frame is the time between two calls of requestAnimationFrame; a task is what keeps the page's thread busy, in CPU
// time, which other programs on the machine lengthen little.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { loadavg } from "node:os";
import { launch, openPage } from "./test/bed.mjs";
import { MadeHub } from "./test/made-hub.mjs";

const JOBS = 500, CORES = 512, AREAS = 1000, ALLOCATIONS = 16; // 8,000 allocations: as many as tided tells at once
const SECONDS = Number(process.argv[2] ?? 15);
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript" };

let seed = 1;
const random = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;

const threads = Array.from({ length: JOBS }, () => 1);
function list() {
  threads[random(JOBS)] = 1 + random(2);
  let core = 0;
  return threads.map((n, i) => {
    const first = core % CORES;
    core += n;
    return {
      id: `j${i + 1}`, name: `training-${i + 1}`, owner: `user${i % 20}`, state: i % 25 === 24 ? "queued" : "running", pids: [1000 + i],
      cores: i % 25 === 24 ? "" : `${first}${n > 1 && first + n <= CORES ? `-${first + n - 1}` : ""}`, allowed: n, target: n, active: n, max: 8, oversubscribed: false,
      malleable: true, adopted: false, kept: false, submitted: true, preemptible: true, priority: 0, class: 0, weight: 100, min: 1, limit: null, request: null,
      memory: null, memory_used: 1e9, deadline: null, placement: "shared", pinned: null, pinned_by: null, place: i % 25 === 24 ? i : null,
      progress: { done: (Date.now() / 100 + i * 37) % 1000, total: 1000, unit: "step", rate: 10 + (i % 7) }, reason: `weight 100 of ${JOBS * 100} in ${CORES} cores among ${JOBS} jobs`,
      note: "", elapsed_s: 100, run_s: 100, wait_s: 3, backends: [{ name: "tensorflow", version: "2.15", max: 8, target: n, active: n, malleable: true, note: "" }],
    };
  });
}

function history() {
  const now = Date.now() / 1000;
  return Array.from({ length: JOBS }, (_, i) => ({
    id: `j${i + 1}`, name: `training-${i + 1}`, owner: `user${i % 20}`, state: "running", command: "python", submitted: now - 3500, begun: now - 3400, ended: i % 3 ? null : now - 60, run_s: 1, wait_s: 1,
    weight: 100, progress: null,
    allocations: Array.from({ length: ALLOCATIONS }, (_, k) => {
      const first = random(CORES - 8);
      return { time: now - 200 * k - random(190), threads: 1 + random(8), cores: i % 2 ? `0-${CORES - 1}` : `${first}-${first + random(8)}`, reason: "weight 100 of 50000" };
    }).sort((a, b) => b.time - a.time),
  }));
}

const machine = { version: "0", pid: 1, epoch: 1, uid: 0, privileged: true, policy: "equal", placement: "shared", cpus: CORES, online: `0-${CORES - 1}`, free: 0, memory: null,
  memory_counted: 0, jobs: JOBS, oversubscribed: false, weights: true, notes: [] };
const past = history();
const answers = { "/v1/session": () => ({ server: "machine", user: "root", uid: 0, version: "0" }), "/v1/machine": () => machine, "/v1/jobs": list, "/v1/history": () => past };
const server = createServer((ask, answer) => {
  const path = ask.url.split("?")[0], file = path === "/" ? "/index.html" : path;
  if (answers[path]) answer.setHeader("Content-Type", "application/json").end(JSON.stringify(answers[path]()));
  else if (path === "/v1/events") answer.writeHead(200, { "Content-Type": "text/event-stream" }).write(":\n\n");
  else if (/^\/[a-z]+\.(html|css|js)$/.test(file)) answer.setHeader("Content-Type", TYPES[file.split(".")[1]]).end(readFileSync(`dist${file}`));
  else answer.writeHead(404).end();
});
server.listen(0, "127.0.0.1");
await once(server, "listening");

const WATCH = () => {
  globalThis.frames = [];
  globalThis.watching = true;
  let last = performance.now();
  const next = (now) => {
    if (!globalThis.watching) return;
    globalThis.frames.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
};

const browser = await launch();
const rows = [];
const wait = () => new Promise((go) => setTimeout(go, 100));

/** CPU time of each task of the page's own thread, in ms. */
function tasksOf(events) {
  const main = new Set(events.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => `${e.pid}/${e.tid}`));
  return events.filter((e) => /RunTask$/.test(e.name) && e.tdur !== undefined && main.has(`${e.pid}/${e.tid}`)).map((e) => e.tdur / 1000);
}

async function measure(page, name, during) {
  await new Promise((go) => setTimeout(go, 3000));
  await page.tracing.start({ categories: ["-*", "toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline", "__metadata"] });
  await page.evaluate(WATCH);
  const end = Date.now() + SECONDS * 1000;
  while (Date.now() < end) await during();
  const frames = await page.evaluate(() => {
    globalThis.watching = false;
    return globalThis.frames.slice(1);
  });
  const tasks = tasksOf(JSON.parse(Buffer.from(await page.tracing.stop()).toString()).traceEvents);
  frames.sort((a, b) => a - b);
  rows.push({ page: name, frames: frames.length, "median ms": frames[frames.length >> 1].toFixed(1), "p99 ms": frames[Math.floor(frames.length * 0.99)].toFixed(1),
    "longest ms": frames.at(-1).toFixed(1), "over 100 ms": frames.filter((f) => f > 100).length, "longest task, CPU ms": tasks.reduce((a, b) => Math.max(a, b), 0).toFixed(1), "tasks over 50 ms": tasks.filter((t) => t > 50).length, load: loadavg()[0].toFixed(1) });
}

async function machineViews() {
  const page = await openPage(browser, `http://127.0.0.1:${server.address().port}/`, { width: 1600, height: 1000 });
  await measure(page, "Machine", wait);
  await page.evaluate(() => (location.hash = "time"));
  await page.$$eval(".page.time .buttons button", (all) => all.find((b) => b.textContent === "1 h").click());
  await measure(page, "Time, following now", wait);
  const zoom = async (key) => {
    await page.focus("canvas.gantt");
    await page.keyboard.press(key);
    await wait();
  };
  let turn = 0;
  const next = () => zoom(["+", "ArrowLeft", "-", "ArrowRight"][turn++ % 4]);
  await measure(page, "Time, zooming and moving", next);
  await page.$$eval(".page.time .buttons button", (all) => all.find((b) => b.textContent === "jobs").click());
  await measure(page, "Time, a row for each job", next);
  await page.browserContext().close();
}

async function hubViews() {
  const hub = (await new MadeHub(AREAS).listen()).run();
  const page = await openPage(browser, hub.url, { width: 1600, height: 1000 });
  await page.waitForSelector(".area[aria-selected=true]");
  await measure(page, "Areas", wait);
  await page.focus(".tree");
  await measure(page, "Areas, walking the tree ten times a second", async () => {
    await page.keyboard.press("ArrowDown");
    await wait();
  });
  let turn = 0;
  await page.focus(".areas input");
  await measure(page, "Areas, searching and scrolling", async () => {
    await page.$eval(".areas input", (e, text) => {
      e.value = text;
      e.dispatchEvent(new Event("input"));
    }, ["", "lab", "lab1", "faculty 2"][turn++ % 4]);
    await page.$eval(".tree", (e, share) => (e.scrollTop = e.scrollHeight * share), (turn % 10) / 10);
    await wait();
  });
  await page.evaluate(() => (location.hash = "used"));
  await measure(page, "Used, 200 rows", wait);
  await page.browserContext().close();
  hub.close();
}

try {
  await machineViews();
  await hubViews();
} finally {
  await browser.close();
  server.close();
  server.closeAllConnections();
}
console.table(rows);
