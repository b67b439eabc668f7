// SPDX-License-Identifier: Apache-2.0
// Page Machine in a real browser, with a real tided and its jobs.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Bed, CHROMIUM, eventually, launch, openPage, textOf, Wire } from "./bed.mjs";

const rowOf = (page, id) => page.$eval(`button[data-job="${id}"]`, (b) => b.closest("tr").innerText);
const click = (page, text, within = "body") => page.$eval(within, (e, t) => {
  const found = [...e.querySelectorAll("button")].find((b) => b.textContent === t);
  if (!found) throw new Error(`no button ${t}`);
  found.click();
}, text);

describe("page Machine", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let bed, browser, page, one, two, link;

  before(async () => {
    bed = await Bed.start("--cpus", "0-7", "--policy", "equal");
    one = await bed.job({ name: "first", weight: 300 }, "--max", "8");
    two = await bed.job({ name: "second" }, "--max", "8");
    one.tell("progress 250 1000 step");
    browser = await launch();
    ({ link } = await bed.dashboard());
    page = await openPage(browser, link);
  });
  after(async () => {
    await browser?.close();
    await bed?.end();
  });

  test("shows jobs, threads, cores and progress as tided tells them", async () => {
    const job = await one.get();
    await eventually(async () => (await rowOf(page, one.id)).includes(`${job.active} of ${job.target}`), "threads");
    const row = await rowOf(page, one.id);
    assert.match(row, /first/);
    assert.match(row, /25 %/);
    assert.match(row, /0-7/);
    assert.ok(row.includes(job.reason), row);
    const tiles = await textOf(page, ".tiles");
    assert.match(tiles, /Cores8/);
    assert.match(tiles, /Active threads8of 8 allowed/);
    assert.match(tiles, /Policyequal/);
    const label = await page.$eval("canvas.strip", (c) => c.getAttribute("aria-label"));
    assert.match(label, /8 cores: first 0-7; second 0-7/);
  });

  test("the strip has a colour for each job", async () => {
    const colours = await page.$eval("canvas.strip", (c) => {
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height), seen = new Map();
      for (let i = 0; i < data.length; i += 4) {
        const key = `${data[i]},${data[i + 1]},${data[i + 2]}`;
        seen.set(key, (seen.get(key) ?? 0) + 1);
      }
      return [...seen].filter(([, n]) => n > 500).map(([key]) => key);
    });
    assert.ok(colours.includes("86,180,233") && colours.includes("230,159,0"), colours.join(" "));
  });

  test("a server with a promise shows what its requests take instead of progress", async () => {
    const server = await bed.job({ name: "server", slo: "p99=50ms" }, "--max", "8");
    await page.waitForSelector(`button[data-job="${server.id}"]`);
    const telling = setInterval(() => server.tell("requests 2 40 1"), 100);
    await eventually(async () => /p99 4\d(\.\d)? of 50(\.0)? ms[^]*requests\/s/.test(await rowOf(page, server.id)), "latency");
    clearInterval(telling);
    server.peer.kill("SIGKILL");
    await page.waitForSelector(`button[data-job="${server.id}"]`, { hidden: true });
  });

  test("a job that comes is shown, and one that ends is gone", async () => {
    const third = await bed.job({ name: "third" }, "--max", "2");
    await page.waitForSelector(`button[data-job="${third.id}"]`);
    third.peer.kill("SIGKILL");
    await page.waitForSelector(`button[data-job="${third.id}"]`, { hidden: true });
  });

  test("a click tells why", async () => {
    await page.click(`button[data-job="${one.id}"]`);
    await page.waitForSelector(".changes li");
    const told = (await bed.api("GET", `/v1/jobs/${one.id}/explain`)).body.changes;
    const shown = await textOf(page, ".changes");
    assert.ok(shown.includes(told[told.length - 1].reason), shown);
    assert.equal((await page.$$(".changes li")).length, told.length);
    assert.match(await textOf(page, ".detail"), /Weight, priority, class300, 0, 0/);
  });

  test("its owner changes weight and threads, pins it and lets it go", async () => {
    const set = async (label, value) => {
      const field = await page.waitForSelector(`xpath///label[contains(., "${label}")]/input`);
      await field.click({ count: 3 });
      await field.type(String(value));
      await page.keyboard.press("Enter");
    };
    await set("Weight", 500);
    await eventually(async () => (await one.get()).weight === 500, "weight 500");
    await set("Threads", 3);
    await eventually(async () => (await one.get()).target === 3, "3 threads");
    await page.waitForFunction(() => /Threads: done/.test(document.querySelector(".says").textContent));
    await click(page, "Automatic", ".detail");
    await eventually(async () => (await one.get()).pinned === null, "automatic");
    await click(page, "Pin to its cores", ".detail");
    await eventually(async () => (await one.get()).kept, "pinned");
    await page.waitForFunction(() => [...document.querySelectorAll(".detail button")].some((b) => b.textContent === "Unpin"));
    await click(page, "Unpin", ".detail");
    await eventually(async () => !(await one.get()).kept, "unpinned");
    const shows = (text) => page.waitForFunction((t) => [...document.querySelectorAll(".detail button")].some((b) => b.textContent === t), {}, text);
    await click(page, "Pause", ".detail");
    await eventually(async () => (await one.get()).state === "paused", "paused");
    await shows("Resume");
    await click(page, "Resume", ".detail");
    await eventually(async () => (await one.get()).state === "running", "running");
    await shows("Pause");
  });

  test("a value that tided refuses is told with its reason, and nothing changes", async () => {
    await page.$eval(".detail form input", (e) => e.removeAttribute("max"));
    const field = await page.$(".detail form input");
    await field.click({ count: 3 });
    await field.type("99999");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /Threads: .*(threads|outside|between|at most)/.test(document.querySelector(".says").textContent));
    assert.notEqual((await one.get()).target, 99999);
    assert.ok(page.complaints.every((c) => /400/.test(c)), page.complaints.join("\n")); // the browser's own word about the status
    page.complaints.length = 0;
    await page.keyboard.press("Escape");
  });

  test("what a program says of itself is text and never part of the page", async () => {
    two.tell("progress 1 10 <b>&x</b>");
    await page.waitForFunction((id) => document.querySelector(`button[data-job="${id}"]`).closest("tr").innerText.includes("<b>"), {}, two.id);
    assert.equal(await page.$("td b"), null);
  });

  test("a user who may not change a job sees no controls", { skip: process.getuid() === 0 ? false : "needs root" }, async () => {
    const other = await openPage(browser, (await bed.dashboard("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")).link);
    await other.click(`button[data-job="${one.id}"]`);
    await other.waitForSelector(".changes li");
    assert.match(await textOf(other, ".controls"), /only root and administrators may change it/);
    assert.equal(await other.$(".detail input"), null);
    const status = await other.evaluate((id) => fetch(`/v1/jobs/${id}`, { method: "PATCH", body: '{"threads":1}' }).then((a) => a.status), one.id);
    assert.equal(status, 403); // tided decides, whatever the page shows
    await other.browserContext().close();
  });

  test("nothing was logged as an error, nothing was asked for elsewhere", () => {
    assert.deepEqual(page.complaints, []);
  });
});

describe("page Machine of a machine that is full", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let bed, browser, page, job;
  const tile = (name) => page.$$eval(".tile", (all, n) => {
    const found = all.find((t) => t.querySelector("h3").textContent === n);
    return `${found.innerText.replace(/\s+/g, " ")}${found.classList.contains("alarm") ? " (alarm)" : ""}`;
  }, name);
  /** Place, job, state and why of those that wait, a line each. */
  const waiting = () => page.$eval(".jobs.waiting", (table) => (table.closest(".card").hidden ? "" : [...table.tBodies[0].rows]
    .map(({ cells: [place, job, state, , why] }) => [place, job.querySelector("button > span:last-child"), state, why].map((e) => e.textContent).join(", ")).join("\n")));

  before(async () => {
    bed = await Bed.start("--cpus", "0-3", "--policy", "fcfs/strict");
    job = await bed.job({ name: "first", request: 4 }, "--max", "8");
    browser = await launch();
    page = await openPage(browser, (await bed.dashboard()).link);
  });
  after(async () => {
    await browser?.close();
    await bed?.end();
  });

  test("submitted jobs wait in their order with tided's reason, and are gone from the list when they end", async () => {
    assert.equal(await waiting(), "");
    const runners = ["second", "third"].map(() => bed.spawn("/bin/sleep", ["600"])), jobs = [];
    for (const [i, name] of ["second", "third"].entries()) jobs.push((await bed.api("POST", "/v1/jobs", { name, pid: runners[i].pid, queue: true, request: 2 })).body);
    await eventually(async () => {
      const told = (await Promise.all(jobs.map(({ id }) => bed.api("GET", `/v1/jobs/${id}`)))).map(({ body }) => body);
      return (await waiting()) === told.map(({ name, reason }, i) => `${i + 1}, ${name}, queued, ${reason}`).join("\n");
    }, "two jobs wait");
    assert.match(await tile("Jobs"), /^Jobs 1 2 waiting$/);
    for (const runner of runners) runner.kill("SIGKILL");
    await eventually(async () => (await waiting()) === "", "nobody waits");
  });

  test("more threads than cores are oversubscription, and an alarm", async () => {
    await eventually(async () => (await tile("Oversubscription")) === "Oversubscription none no more threads than cores", "none before");
    job.tell("local 6 0");
    await eventually(async () => (await tile("Oversubscription")) === "Oversubscription +2 2 threads above the cores (alarm)", "two threads above the cores");
  });

  test("nothing was logged as an error", () => assert.deepEqual(page.complaints, []));
});

describe("a bad connection", { skip: CHROMIUM ? false : "no chromium: scripts/setup.sh ui" }, () => {
  let bed, browser, wire, page, job;

  before(async () => {
    bed = await Bed.start("--cpus", "0-3", "--policy", "equal");
    job = await bed.job({ name: "steady" }, "--max", "4");
    browser = await launch();
    const { link } = await bed.dashboard();
    wire = await Wire.to(Number(new URL(link).port));
    page = await openPage(browser, link.replace(/:\d+/, `:${wire.port}`));
  });
  after(async () => {
    await browser?.close();
    await wire?.close();
    await bed?.end();
  });

  const state = () => page.$eval(".link", (e) => e.className.replace("link ", ""));
  const shows = (name) => page.waitForFunction((n) => document.querySelector(".link").classList.contains(n), {}, name);

  test("a slow one says so, and of when the page is", async () => {
    wire.delay = 3000;
    await shows("slow");
    assert.match(await textOf(page, ".banner"), /slow: what you see is of \d\d:\d\d:\d\d/);
    wire.delay = 0;
    await shows("live");
  });

  test("a lost one keeps what was seen, says of when it is, and comes back by itself", async () => {
    wire.cut();
    await shows("lost");
    assert.match(await textOf(page, ".banner"), /connection is lost.*What you see is of/);
    assert.match(await rowOf(page, job.id), /steady/);
    assert.ok(await page.evaluate(() => document.body.classList.contains("stale")));
    wire.isCut = false;
    await shows("live");
    assert.equal(await page.$eval(".banner", (e) => e.hidden), true);
  });

  test("a daemon that ends and comes back is told apart from a lost connection", async () => {
    await bed.stopDaemon();
    await page.waitForFunction(() => /no daemon/.test(document.querySelector(".banner").textContent));
    assert.equal(await state(), "lost");
    await bed.startDaemon();
    await shows("live");
  });

  test("a change while it is lost is refused aloud", async () => {
    await page.waitForSelector(`button[data-job="${job.id}"]`);
    await page.click(`button[data-job="${job.id}"]`);
    wire.cut();
    await click(page, "Automatic", ".detail");
    await page.waitForFunction(() => /no connection/.test(document.querySelector(".says").textContent));
    wire.isCut = false;
    await shows("live");
  });

  test("the end of the session is told, and what to do", async () => {
    const cookies = await page.browserContext().cookies();
    await page.browserContext().deleteCookie(...cookies);
    await shows("ended");
    assert.match(await textOf(page, ".banner"), /tide dashboard/);
  });
});
