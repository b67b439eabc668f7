// SPDX-License-Identifier: Apache-2.0
// Takes the pictures of docs/pictures in chromium: a real tided with jobs that report progress; a real tide-hub with its
// mosquitto and areas, each a tide-power with a plug. usage, in ui/: TIDE_BUILD_DIR=../build node shots.mjs [OUT [WHAT]]
// WHAT: machine, machines, hub, or made (1,000 areas of made-up data); all when it is absent.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Bed, launch, openPage } from "./test/bed.mjs";
import { HubBed, login } from "./test/hub-bed.mjs";
import { MadeHub } from "./test/made-hub.mjs";
import { PowerTree } from "./test/tree.mjs";

const out = process.argv[2] ?? "../docs/pictures";
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));
const press = (page, text) => page.$$eval(".page:not([hidden]) .buttons button", (all, t) => all.find((b) => b.textContent === t).click(), text);

async function machineShots() {
  const bed = Bed.make(), root = join(bed.dir, "root");
  mkdirSync(root);
  let threads = 0; // what the machine draws follows the jobs
  const tree = new PowerTree(root, 22, (t) => 3 * threads + 2 * Math.sin(t / 4) + Math.sin(t * 1.7));
  writeFileSync(join(bed.dir, "tide.conf"), `[daemon]\npower-root=${root}\npower-model=points:22,70\ntariff=0.12 EUR/kWh\n`);
  bed.options = ["--cpus", "0-15", "--policy", "equal", "--config", join(bed.dir, "tide.conf")];
  await bed.startDaemon();
  const follow = setInterval(async () => {
    const { body } = await bed.api("GET", "/v1/jobs");
    threads = body.reduce((sum, job) => sum + job.active, 0);
  }, 500);
  const browser = await launch();
  try {
    const jobs = [];
    for (const [name, weight, max] of [["resnet50", 200, 8], ["bert-fine-tune", 100, 8], ["lstm", 100, 2], ["mnist", 100, 4]])
      jobs.push(await bed.job({ name, weight }, "--max", String(max)));
    const { link } = await bed.dashboard();
    const page = await openPage(browser, link, { width: 1280, height: 860 });
    for (let i = 0; i < 40; i++) {
      jobs[0].tell(`progress ${340 + 3 * i} 1200 step`);
      jobs[1].tell(`progress ${20 + i} 100 epoch`);
      jobs[2].tell(`progress ${700 + 6 * i} 1000 batch`);
      if (i === 8) jobs.push(await bed.job({ name: "gan", weight: 100 }, "--max", "4"));
      if (i === 16) await bed.api("PATCH", "/v1/jobs/gan", { weight: 400 });
      if (i === 24) jobs[3].peer.kill("SIGKILL");
      if (i === 30) await bed.api("PATCH", "/v1/jobs/bert-fine-tune", { weight: 300 });
      await sleep(600);
    }
    await page.screenshot({ path: join(out, "dashboard-machine.png") });
    await page.click('button[data-job="j1"]');
    await page.waitForSelector(".changes li");
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    await sleep(500);
    await page.screenshot({ path: join(out, "dashboard-why.png") });
    await page.keyboard.press("Escape");
    await page.keyboard.press("2");
    await press(page, "1 min");
    await sleep(1500);
    await page.screenshot({ path: join(out, "dashboard-time.png") });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    await page.keyboard.press("3");
    await sleep(8000);
    await page.type(".energy form input[type=number]", "55");
    await page.keyboard.press("Enter");
    await sleep(12000);
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: join(out, "dashboard-energy.png") });
    await page.setViewport({ width: 400, height: 860 });
    await page.keyboard.press("1");
    await sleep(1000);
    await page.screenshot({ path: join(out, "dashboard-phone.png") });
    if (page.complaints.length) console.log(page.complaints);
  } finally {
    clearInterval(follow);
    tree.end();
    await browser.close();
    await bed.end();
  }
}

/** Three machines behind an `ssh` that runs here, one of which is not reached. */
async function machinesShot() {
  const here = await Bed.start("--cpus", "0-15"), beds = { lab1: await Bed.start("--cpus", "0-31"), lab2: await Bed.start("--cpus", "0-7", "--policy", "response") };
  const browser = await launch();
  try {
    for (const [bed, names] of [[beds.lab1, ["resnet50", "bert-fine-tune", "gan"]], [beds.lab2, ["lstm", "mnist"]]])
      for (const name of names) await bed.job({ name }, "--max", "16");
    const { link } = await here.dashboard(...here.neighbours(beds, "lab3"));
    const page = await openPage(browser, link, { width: 1280, height: 620 });
    await page.evaluate(() => (location.hash = "machines"));
    await page.waitForFunction(() => /2 of 3 machines/.test(document.querySelector("main").innerText));
    await sleep(500);
    await page.screenshot({ path: join(out, "dashboard-machines.png") });
    if (page.complaints.length) console.log(page.complaints);
  } finally {
    await browser.close();
    for (const bed of [...Object.values(beds), here]) await bed.end();
  }
}

const FACULTIES = [["eng", "Engineering", ["hpc", "robotics", "signals", "ml"]], ["sci", "Sciences", ["chem", "optics", "genomics"]], ["hum", "Humanities", ["digital"]]];

async function hubShots() {
  const areas = FACULTIES.flatMap(([f, , labs]) => labs.map((lab) => [`unlp/${f}/${lab}`, `${f}-${lab}`]));
  const bed = await HubBed.start(`version: 1
org: unlp
zone: America/Argentina/Buenos_Aires
tariff:
  unit: EUR
  price: 0.12 EUR/kWh
  windows:
  - {when: "Mon-Fri 18:00-23:00", price: 0.30 EUR/kWh}
areas:
${areas.map(([area, unit]) => `- {area: ${area}, unit: ${unit}, name: "${area.split("/").pop()}"}`).join("\n")}
rules:
- {area: unlp, budget: 140 kWh/day, shape: tariff}
- {area: unlp/eng/hpc, cap: 1200 W, floor: 300 W, kind: breaker}
- {area: unlp/eng/hpc, when: "Mon-Fri 18:00-23:00", cap: 800 W, kind: budget}
- {area: unlp/eng, cap: 4 kW, kind: budget}
- {area: unlp/sci, cap: 2 kW, kind: budget}
- {room: unlp/eng/hpc, when: absent 15 min, off: [ac, lights]}
`, { ada: "administrator" });
  const browser = await launch();
  try {
    for (const [i, [, unit]] of areas.entries()) {
      const area = await bed.area(unit, SWITCHES);
      area.watts = 350 + 120 * i;
      area.wave = () => (area.watts = 350 + 120 * i + 90 * Math.sin(Date.now() / 15000 + i));
      for (const name of ["ac", "lights"]) area.relay(name, i % 2 === 0);
    }
    const waves = setInterval(() => bed.areas.forEach((area) => area.wave()), 1000);
    const page = await openPage(browser, bed.link, { width: 1280, height: 860 });
    await login(page, "ada");
    await page.waitForSelector('.area[data-area="unlp/eng/hpc"]');
    await page.click('.area[data-area="unlp/eng/hpc"]');
    await page.$$eval(".one .buttons button", (all) => all.find((b) => b.textContent === "1 h").click());
    await sleep(Number(process.env.TIDE_SHOT_S ?? 120) * 1000);
    await page.screenshot({ path: join(out, "hub-areas.png") });
    await page.$$eval(".one .plainlink", (all) => all[0].click());
    await sleep(1500);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    await page.evaluate(() => scrollTo(0, 420));
    await sleep(500);
    await page.screenshot({ path: join(out, "hub-switches.png") });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    await page.evaluate(() => (location.hash = "policy/21"));
    await page.waitForFunction(() => document.querySelector("textarea").value.length > 100);
    await page.$eval("textarea", (e) => {
      e.value = e.value.replace("cap: 800 W", "cap: 900 W");
      e.dispatchEvent(new Event("input"));
    });
    await page.waitForFunction(() => document.querySelector(".diff .other"));
    await page.screenshot({ path: join(out, "hub-policy.png") });
    for (const view of ["used", "units", "users", "audit"]) {
      await page.evaluate((hash) => (location.hash = hash), view);
      await sleep(1000);
      if (view === "used") await press(page, "today");
      await sleep(2000);
      await page.screenshot({ path: join(out, `hub-${view}.png`) });
    }
    await page.setViewport({ width: 400, height: 860 });
    await page.evaluate(() => (location.hash = "energy/unlp/eng/hpc"));
    await sleep(1500);
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: join(out, "hub-phone.png") });
    if (page.complaints.length) console.log(page.complaints);
    clearInterval(waves);
  } finally {
    await browser.close();
    await bed.end();
  }
}

const SWITCHES = ["ac", "lights"].flatMap((name) => [`[switch ${name}]`, "kind = tasmota", `topic = ${name}`, "command = yes"]);

/** 1,000 areas with a history, which nobody has measured: made-up data. */
async function madeShots() {
  const hub = (await new MadeHub(1000).listen()).run(), browser = await launch();
  try {
    const page = await openPage(browser, hub.url, { width: 1280, height: 860, scheme: "dark" });
    await page.evaluate(() => (location.hash = "energy/unlp/f1/lab1"));
    await sleep(4000);
    await page.screenshot({ path: join(out, "hub-thousand.png") });
  } finally {
    await browser.close();
    hub.close();
  }
}

mkdirSync(out, { recursive: true });
if (!process.argv[3] || process.argv[3] === "made") await madeShots();
if (!process.argv[3] || process.argv[3] === "machine") await machineShots();
if (!process.argv[3] || process.argv[3] === "machines") await machinesShot();
if (!process.argv[3] || process.argv[3] === "hub") await hubShots();
