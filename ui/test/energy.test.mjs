// SPDX-License-Identifier: Apache-2.0
// Page Energy in a real browser: a real tided on a tree of powercap counters, which the test moves on.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { axe, Bed, CHROMIUM, eventually, launch, openPage, textOf } from "./bed.mjs";
import { PowerTree } from "./tree.mjs";

const WATTS = 60;

const show = async (page) => {
  await page.evaluate(() => (location.hash = "energy"));
  await page.waitForSelector(".page.energy:not([hidden])");
};

async function world(...lines) {
  const bed = Bed.make();
  const config = join(bed.dir, "tide.conf"), root = join(bed.dir, "root");
  mkdirSync(root);
  writeFileSync(config, ["[daemon]", `power-root=${root}`, ...lines, ""].join("\n"));
  const tree = lines.includes("power=none") ? null : new PowerTree(root, WATTS);
  bed.options = ["--cpus", "0-3", "--policy", "equal", "--config", config];
  await bed.startDaemon();
  return { bed, tree };
}

describe("page Energy", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let bed, tree, browser, page, job;

  before(async () => {
    ({ bed, tree } = await world("tariff=0.25 EUR/kWh", "power-model=points:10,60"));
    job = await bed.job({ name: "busy" }, "--max", "4");
    browser = await launch();
    page = await openPage(browser, (await bed.dashboard()).link);
    await show(page);
  });
  after(async () => {
    tree?.end();
    await browser?.close();
    await bed?.end();
  });

  const power = async () => (await bed.api("GET", "/v1/power")).body;
  const tile = (name) => page.$$eval(".energy .tile", (all, n) => all.find((t) => t.querySelector("h3").textContent === n).innerText, name);

  test("shows the machine's power as its source tells it, with basis", async () => {
    await eventually(async () => (await power()).power.uw > 0, "tided knows the power");
    await eventually(async () => /\d W.*measured/s.test(await tile("Power now")), "the page shows it");
    const shown = Number((await tile("Power now")).match(/([\d.]+) W/)[1]);
    assert.ok(shown > WATTS / 2 && shown < WATTS * 2, String(shown));
    assert.match(await tile("Power now"), /measured/);
  });

  test("says since when the chart of power is", async () => {
    assert.equal(await textOf(page, ".page.energy .card:nth-of-type(1) > header"), "Powersince this page was opened");
  });

  test("shows the parts, which are those of tided, and unknown ones as a dash", async () => {
    await page.waitForFunction(() => document.querySelectorAll(".page.energy table.jobs")[0].rows.length === 5);
    const rows = await page.$$eval(".page.energy .card:nth-of-type(1) table.jobs tbody tr", (all) => all.map((r) => [...r.cells].map((c) => c.textContent)));
    assert.deepEqual(rows.map((r) => r[0]), ["jobs", "system", "idle", "unattributed"]);
    const { parts } = await power();
    for (const [name, , energy, , basis] of rows) {
      assert.equal(basis, parts[name].basis);
      assert.equal(energy === "–", parts[name].uj === null);
    }
    assert.ok(rows.some((r) => / J|Wh/.test(r[2])));
  });

  test("shows the source, and that it is used", async () => {
    await page.waitForFunction(() => /psys/.test([...document.querySelectorAll(".page.energy table.jobs")].at(-1).innerText));
    assert.match(await page.$$eval(".page.energy table.jobs", (all) => all.at(-1).innerText), /powercap.*yes/s);
  });

  test("what was used is told by day, job, user and part, as tided tells it", async () => {
    for (const key of ["job", "user", "part", "day"]) {
      await page.$$eval(".energy .buttons button", (all, k) => all.find((b) => b.textContent === k).click(), key);
      const { body } = await bed.api("GET", `/v1/energy?by=${key}`);
      const names = body.rows.map((row) => row.name || row.key);
      await page.waitForFunction((wanted) => {
        const table = [...document.querySelectorAll(".page.energy .card")].find((c) => c.querySelector("h2").textContent === "Used").querySelector("tbody");
        const shown = [...table.rows].map((r) => r.cells[0].innerText.split("\n").at(-1).trim());
        return wanted.every((name) => shown.some((s) => s.endsWith(name)));
      }, {}, names);
    }
    assert.match(await page.$$eval(".page.energy .card", (all) => all.map((c) => c.innerText).join("\n")), /EUR/);
  });

  test("an administrator sets a cap, sees it, and lifts it", async (t) => {
    const cap = async () => (await bed.api("GET", "/v1/power/cap")).body;
    if ((await bed.api("GET", "/v1/power/cap")).status === 404) return t.skip("this tided has no caps");
    const field = await page.$(".energy form input[type=number]");
    await field.type("500");
    await page.keyboard.press("Enter");
    await eventually(async () => (await cap()).uw === 500e6, "the cap is set");
    await eventually(async () => /500 W/.test(await tile("Power cap")), "the page shows it");
    await page.$$eval(".energy button", (all) => all.find((b) => b.textContent === "Lift it").click());
    await eventually(async () => typeof (await cap()).uw !== "number", "the cap is lifted");
    return eventually(async () => /none/.test(await tile("Power cap")), "the page shows that");
  });

  test("who was shrunk for the cap is told with tided's reason, until when it stands too", async () => {
    await page.$eval(".energy form input[type=datetime-local]", (field) => {
      const at = new Date(Date.now() + 3600e3 - new Date().getTimezoneOffset() * 60e3);
      field.value = at.toISOString().slice(0, 16);
    });
    const field = await page.$(".energy form input[type=number]");
    await field.click({ count: 3 });
    await field.type(String(WATTS / 2));
    await page.keyboard.press("Enter");
    const shrunk = await eventually(async () => {
      const j = await job.get();
      return j.reason.includes("power cap") && j.target < 4 && j;
    }, "the job is shrunk");
    await page.waitForFunction((reason) => [...document.querySelectorAll(".page.energy .card")].some((c) => !c.hidden && /Shrunk for the cap/.test(c.innerText) && c.innerText.includes(reason)), {}, shrunk.reason);
    assert.match(await tile("Power cap"), /until \d\d:\d\d/);
    await page.$$eval(".energy button", (all) => all.find((b) => b.textContent === "Lift it").click());
    await page.waitForFunction(() => [...document.querySelectorAll(".page.energy .card")].every((c) => c.hidden || !/Shrunk for the cap/.test(c.innerText)));
  });

  for (const scheme of ["light", "dark"])
    test(`with a source of power axe finds nothing serious, ${scheme}`, async () => {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      assert.match(await tile("Power now"), /\d W/);
      assert.deepEqual(await axe(page), []);
    });

  test("with a source of power the page fits a phone of 400 pixels", async () => {
    const phone = await openPage(browser, (await bed.dashboard()).link, { width: 400, height: 800 });
    await show(phone);
    await phone.waitForFunction(() => [...document.querySelectorAll(".energy .tile")].some((t) => /\d W/.test(t.innerText)) && document.querySelector(".page.energy canvas").clientWidth > 0);
    assert.equal(await phone.evaluate(() => document.documentElement.scrollWidth), 400);
    await phone.browserContext().close();
  });

  // 404: parts that this tided lacks, which the page then leaves out.
  test("nothing was logged as an error", () => assert.ok(page.complaints.every((c) => /404/.test(c)), page.complaints.join("\n")));
});

describe("page Energy without a source", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  test("says that nothing is known, and never 0", async () => {
    const { bed } = await world("power=none");
    const browser = await launch();
    try {
      const page = await openPage(browser, (await bed.dashboard()).link);
      await show(page);
      await page.waitForFunction(() => /unknown/.test(document.querySelector(".energy .tile").innerText));
      const tiles = await textOf(page, ".energy .tiles");
      assert.match(tiles, /Power now–/);
      assert.doesNotMatch(tiles, /\b0 W/);
    } finally {
      await browser.close();
      await bed.end();
    }
  });
});
