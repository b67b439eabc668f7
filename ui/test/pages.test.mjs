// SPDX-License-Identifier: Apache-2.0
// Every page: by keys alone, on a phone, for axe, in both themes; and page Time with a real history.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { axe, Bed, CHROMIUM, eventually, launch, openPage, textOf, Wire } from "./bed.mjs";

const PAGES = ["machine", "time", "energy"];

describe("every page", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let bed, browser, page, jobs;

  const show = async (name, on = page) => {
    await on.evaluate((n) => (location.hash = n), name);
    await on.waitForSelector(`.page.${name}:not([hidden])`);
  };

  before(async () => {
    bed = await Bed.start("--cpus", "0-3", "--policy", "equal");
    jobs = [await bed.job({ name: "alpha" }, "--max", "4"), await bed.job({ name: "beta" }, "--max", "4")];
    await bed.pool("real-threads", 2);
    const gone = await bed.job({ name: "past" }, "--max", "2");
    gone.peer.kill("SIGKILL");
    jobs[0].tell("progress 5 10 epoch");
    // waits: more memory is asked for than is there
    await bed.api("PATCH", `/v1/jobs/${jobs[1].id}`, { weight: 300 });
    await eventually(async () => (await bed.api("GET", "/v1/history?since=1")).body.some((j) => j.name === "past" && j.ended), "a past job");
    browser = await launch();
    page = await openPage(browser, (await bed.dashboard()).link);
  });
  after(async () => {
    await browser?.close();
    await bed?.end();
  });

  test("Time shows past and present jobs, and each decision with its reason", async () => {
    await show("time");
    await page.waitForFunction(() => /past/.test(document.querySelector(".decisions tbody").innerText));
    const label = await page.$eval("canvas.gantt", (c) => c.getAttribute("aria-label"));
    for (const name of ["alpha", "beta", "real-threads", "past"]) assert.ok(label.includes(name), label);
    const history = (await bed.api("GET", "/v1/history?since=1")).body;
    const decisions = history.reduce((n, j) => n + j.allocations.length, 0);
    await eventually(async () => (await page.$$(".decisions tbody tr")).length >= Math.min(100, decisions), "all decisions");
    const reason = history.find((j) => j.name === "alpha").allocations[0].reason;
    assert.ok((await textOf(page, ".decisions")).includes(reason), reason);
  });

  test("Time zooms by dragging and goes back to now", async () => {
    await show("time");
    const box = await (await page.$("canvas.gantt")).boundingBox();
    const before = await textOf(page, ".window");
    await page.mouse.move(box.x + 300, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 500, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction((b) => document.querySelector(".window").textContent !== b && !/now/.test(document.querySelector(".window").textContent), {}, before);
    await page.$$eval(".buttons button", (all) => all.find((b) => b.textContent === "Now").click());
    await page.waitForFunction(() => /now/.test(document.querySelector(".window").textContent));
    for (const span of ["1 month", "1 min", "10 min"]) {
      await page.$$eval(".buttons button", (all, s) => all.find((b) => b.textContent === s).click(), span);
      await page.waitForFunction((s) => [...document.querySelectorAll('.buttons [aria-pressed="true"]')].some((b) => b.textContent === s), {}, span);
    }
  });

  test("Time draws the jobs", async () => {
    await show("time");
    const drawn = () => page.$eval("canvas.gantt", (c) => {
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      let n = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i] === 86 && data[i + 1] === 180 && data[i + 2] === 233) n++;
      return n;
    });
    await page.$$eval(".buttons button", (all) => all.find((b) => b.textContent === "1 min").click());
    await eventually(async () => (await drawn()) > 100, "the first job's colour");
    await page.$$eval(".buttons button", (all) => all.find((b) => b.textContent === "jobs").click());
    await eventually(async () => (await drawn()) > 100, "the first job's colour, a row for each job");
  });

  test("Time draws threads as a step curve, and a mark for each decision", async () => {
    for (const threads of [1, 4, 1]) { // of both, so that their sum changes, too
      for (const job of jobs) await bed.api("PATCH", `/v1/jobs/${job.id}`, { threads });
      await new Promise((done) => setTimeout(done, 5000)); // many pixels of a minute
    }
    await show("time");
    await page.$$eval(".buttons button", (all) => all.find((b) => b.textContent === "1 min").click());
    /** For each column of a canvas the rows that hold the colour: [first, last], or null. */
    const columns = (selector, rgb, height) => page.$eval(selector, (c, [red, green, blue], most) => {
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      return Array.from({ length: c.width }, (_, x) => {
        const rows = [];
        for (let y = 0; y < Math.min(c.height, most ?? c.height); y++) {
          const i = (y * c.width + x) * 4;
          if (Math.abs(data[i] - red) + Math.abs(data[i + 1] - green) + Math.abs(data[i + 2] - blue) < 12 && data[i + 3] > 250) rows.push(y);
        }
        return rows.length ? [rows[0], rows.at(-1)] : null;
      });
    }, rgb, height);
    const ink = await page.evaluate(() => {
      const of = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((v) => parseInt(v, 16));
      return { curve: of("--allowed"), text: of("--text") };
    });
    const steps = async () => {
      const drawn = (await columns(".page.time .chart canvas, .page.time .uplot canvas", ink.curve)).filter(Boolean);
      const flat = drawn.filter(([first, last]) => last - first < 6);
      return { drawn: drawn.length, levels: new Set(flat.map(([first]) => first)).size, jumps: drawn.length - flat.length };
    };
    const found = await eventually(async () => {
      const now = await steps();
      return now.drawn > 60 && now.levels >= 2 && now;
    }, "the curve of threads with two levels");
    assert.ok(found.levels <= 8, `a step curve has a few levels, a slope has one for each column: ${JSON.stringify(found)}`);
    assert.ok(found.jumps >= 1 && found.jumps <= 24, JSON.stringify(found));
    const marks = (await columns("canvas.gantt", ink.text, 10)).filter(Boolean).length;
    assert.ok(marks >= 6, `two triangles at least, ${marks} columns`);
  });

  test("Machine tells a job's predicted end", async () => {
    jobs[0].tell("progress 5 10 epoch");
    await show("machine");
    for (let done = 6; done < 10; done++) { // a rate needs more than one report
      await new Promise((after) => setTimeout(after, 1200));
      jobs[0].tell(`progress ${done} 100 epoch`);
    }
    await page.waitForFunction((id) => /ends \d\d:\d\d.*, in \d+/.test(document.querySelector(`button[data-job="${id}"]`).closest("tr").innerText), { timeout: 30000 }, jobs[0].id);
  });

  test("keys alone open a page, a job, and close it", async () => {
    await show("time");
    await page.keyboard.press("1");
    await page.waitForSelector(".page.machine:not([hidden])");
    const focused = () => page.evaluate(() => document.activeElement?.dataset?.job ?? "");
    await page.evaluate(() => document.activeElement?.blur());
    for (let i = 0; i < 40 && (await focused()) === ""; i++) await page.keyboard.press("Tab");
    assert.equal(await focused(), jobs[0].id);
    await page.keyboard.press("ArrowDown");
    assert.equal(await focused(), jobs[1].id);
    await page.keyboard.press("Enter");
    await page.waitForSelector(".detail:not([hidden])");
    assert.ok(await page.evaluate(() => document.querySelector(".detail").contains(document.activeElement)));
    assert.match(await textOf(page, ".detail h2"), /beta/);
    await page.keyboard.press("Escape");
    await page.waitForSelector(".detail", { hidden: true });
    assert.equal(await focused(), jobs[1].id);
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await page.keyboard.press("2");
    await page.waitForSelector(".page.time:not([hidden])");
    await page.focus("canvas.gantt");
    const before = await textOf(page, ".window");
    await page.keyboard.press("ArrowLeft");
    await page.waitForFunction((b) => document.querySelector(".window").textContent !== b, {}, before);
    await page.keyboard.press("0");
  });

  test("the first stop of the keyboard skips to the page", async () => {
    await page.evaluate(() => document.activeElement?.blur());
    await page.evaluate(() => getSelection().removeAllRanges());
    const skip = await page.$(".skip");
    await skip.focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  });

  for (const name of PAGES)
    for (const scheme of ["light", "dark"])
      test(`${name}: axe finds nothing serious, ${scheme}`, async () => {
        await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
        await show(name);
        if (name === "machine") {
          await page.click(`button[data-job="${jobs[0].id}"]`);
          await page.waitForSelector(".changes li");
        }
        assert.deepEqual(await axe(page), []);
        if (name === "machine") await page.keyboard.press("Escape");
      });

  for (const name of PAGES)
    test(`${name}: fits a phone of 400 pixels`, async () => {
      const phone = await openPage(browser, (await bed.dashboard()).link, { width: 400, height: 800 });
      await show(name, phone);
      const wide = () => phone.evaluate(() => document.documentElement.scrollWidth);
      await phone.waitForFunction(() => document.querySelector(".page:not([hidden]) canvas, .page:not([hidden]) .tile b").clientWidth > 0);
      assert.equal(await wide(), 400);
      if (name === "machine") {
        await phone.click(`button[data-job="${jobs[0].id}"]`);
        await phone.waitForSelector(".changes li");
        assert.equal(await wide(), 400);
      }
      assert.deepEqual(phone.complaints.filter((c) => !/404/.test(c)), []);
      await phone.browserContext().close();
    });

  test("the theme is kept", async () => {
    const theme = () => page.$eval("html", (e) => e.dataset.theme);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("t");
    await page.keyboard.press("t");
    assert.equal(await theme(), "dark");
    await page.reload();
    await page.waitForSelector(".link.live");
    assert.equal(await theme(), "dark");
  });

  test("nothing was logged as an error, nothing was asked for elsewhere", () => {
    assert.deepEqual(page.complaints.filter((c) => !/404/.test(c)), []);
  });
});

describe("a bad connection, each page", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let bed, browser, wire, page;
  const shows = (name) => page.waitForFunction((n) => document.querySelector(".link").classList.contains(n), { timeout: 30000 }, name);

  before(async () => {
    bed = await Bed.start("--cpus", "0-3", "--policy", "equal");
    await bed.job({ name: "steady" }, "--max", "4");
    browser = await launch();
    const { link } = await bed.dashboard();
    wire = await Wire.to(Number(new URL(link).port));
    page = await openPage(browser, link.replace(/:\d+/, `:${wire.port}`));
    await shows("live");
  });
  after(async () => {
    await browser?.close();
    await wire?.close();
    await bed?.end();
  });

  for (const name of PAGES)
    test(`${name}: slow and lost are told, what was seen stays, and it comes back`, async () => {
      await page.evaluate((n) => (location.hash = n), name);
      await page.waitForSelector(`.page.${name}:not([hidden])`);
      await page.waitForFunction((n) => document.querySelector(`.page.${n}`).innerText.length > 20, {}, name);
      wire.delay = 3000;
      await shows("slow");
      assert.match(await textOf(page, ".banner"), /slow: what you see is of \d\d:\d\d:\d\d/);
      wire.delay = 0;
      await shows("live");
      const before = (await textOf(page, `.page.${name}`)).length;
      wire.cut();
      await shows("lost");
      assert.match(await textOf(page, ".banner"), /connection is lost.*What you see is of/);
      assert.ok((await textOf(page, `.page.${name}`)).length > before / 2, "the page is not emptied");
      wire.isCut = false;
      await shows("live");
      assert.equal(await page.$eval(".banner", (e) => e.hidden), true);
    });
});
