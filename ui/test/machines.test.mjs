// SPDX-License-Identifier: Apache-2.0
// Page Machines in a real browser: real tideds behind an `ssh` that runs `tide dial` on this machine.
// tests/component/test_dashboard_machines.py has a real sshd.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { axe, Bed, CHROMIUM, eventually, launch, openPage, textOf } from "./bed.mjs";

describe("page Machines", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let here, there, browser, page, link, job;

  before(async () => {
    here = await Bed.start("--cpus", "0-1");
    there = await Bed.start("--cpus", "0-7");
    job = await there.job({ name: "far-away" }, "--max", "8");
    const words = here.neighbours({ lab1: there }, "lab2");
    rmSync(join(here.dir, "config/tide/fleet"));
    browser = await launch();
    ({ link } = await here.dashboard(...words));
    page = await openPage(browser, link);
  });
  after(async () => {
    await browser?.close();
    await there?.end();
    await here?.end();
  });

  const open = async () => {
    await page.goto(new URL("/#machines", link).href);
    await page.waitForSelector(".link.live");
  };

  test("without an inventory the page says how one is written", async () => {
    await open();
    await eventually(async () => /no inventory of machines.*~\/\.config\/tide\/fleet: lab1 ssh:/s.test(await textOf(page, "main")), "the way to an inventory");
    page.complaints.length = 0; // chromium tells of the 404
  });

  test("shows each machine, and why one is not reached", async () => {
    here.neighbours({ lab1: there }, "lab2");
    await eventually(async () => /1 of 2 machines reached/.test(await textOf(page, "main")), "machines");
    const rows = await page.$$eval("main .page:not([hidden]) section:first-child tbody tr", (all) => all.map((row) => row.innerText.replace(/\s+/g, " ")));
    assert.equal(rows.length, 2);
    assert.match(rows[0], /lab1 ssh:\/\/ana@lab1 8 0 .* 1 0 – equal reached/);
    assert.match(rows[1], /lab2 .*unreachable: ssh does not reach lab2: ssh: connect to host: No route to host/);
  });

  test("shows the jobs of all, with where they are", async () => {
    const row = await page.$eval("main .page:not([hidden]) section:last-child tbody tr", (r) => r.innerText.replace(/\s+/g, " "));
    assert.match(row, new RegExp(`far-away ${job.id} lab1 .* running 8 of 8 0-7`));
  });

  test("has nothing that stops people who cannot see or use a mouse", async () => {
    assert.deepEqual(await axe(page), []);
  });

  test("leads to the page of a machine, and back", async () => {
    await page.click('a[href="/?at=lab1"]');
    await page.waitForSelector(`button[data-job="${job.id}"]`);
    assert.match(await textOf(page, "header.top"), /lab1.*ana|ana.*lab1/);
    assert.match(await textOf(page, ".tiles"), /Cores8/);
    assert.match(await page.title(), /^lab1/);
    await page.click(`button[data-job="${job.id}"]`);
    await page.waitForSelector(".changes li");
    const more = await there.job({ name: "another" }, "--max", "2");
    await page.waitForSelector(`button[data-job="${more.id}"]`);
    for (const name of ["Time", "Energy"]) {
      await page.click(`nav a[href="#${name.toLowerCase()}"]`);
      await eventually(async () => (await page.$eval(`nav a[href="#${name.toLowerCase()}"]`, (a) => a.getAttribute("aria-current"))) !== null, name);
    }
    await page.click("a.at");
    await eventually(async () => /Cores2/.test(await textOf(page, ".tiles").catch(() => "")), "this machine again");
    assert.deepEqual(page.complaints, []);
  });

  test("a name that the inventory does not have is said to be unknown", async () => {
    const other = await page.browserContext().newPage();
    await other.goto(new URL("/?at=lab9", link).href);
    await other.waitForSelector(".banner:not([hidden])");
    assert.match(await textOf(other, ".banner"), /no machine of the inventory has this name/);
    await other.close();
  });
});
