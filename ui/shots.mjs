// SPDX-License-Identifier: Apache-2.0
// Takes the pictures of docs/pictures: a real tided with jobs that report progress, in chromium.
// usage, in ui/: TIDE_BUILD_DIR=../build node shots.mjs [OUT]
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Bed, launch, openPage } from "./test/bed.mjs";
import { PowerTree } from "./test/tree.mjs";

const out = process.argv[2] ?? "../docs/pictures";
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));
const press = (page, text) => page.$$eval(".page:not([hidden]) .buttons button", (all, t) => all.find((b) => b.textContent === t).click(), text);

mkdirSync(out, { recursive: true });
const bed = Bed.make(), root = join(bed.dir, "root");
mkdirSync(root);
const tree = new PowerTree(root, 60, (t) => 8 * Math.sin(t / 4) + 3 * Math.sin(t * 1.7));
writeFileSync(join(bed.dir, "tide.conf"), `[daemon]\npower-root=${root}\n`);
bed.options = ["--cpus", "0-15", "--policy", "equal", "--config", join(bed.dir, "tide.conf")];
await bed.startDaemon();
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
  await sleep(15000);
  await page.screenshot({ path: join(out, "dashboard-energy.png") });
  await page.setViewport({ width: 400, height: 860 });
  await page.keyboard.press("1");
  await sleep(1000);
  await page.screenshot({ path: join(out, "dashboard-phone.png") });
  if (page.complaints.length) console.log(page.complaints);
} finally {
  tree.end();
  await browser.close();
  await bed.end();
}
