// SPDX-License-Identifier: Apache-2.0
// The organization's page in a real browser: a real tide-hub with its mosquitto, and areas with a real tide-power each; for
// weeks of days and for answers that overtake each other, a made-up hub.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { axe, CHROMIUM, eventually, launch, openPage, textOf, Wire } from "./bed.mjs";
import { HubBed, LACKS, login, PASSWORD } from "./hub-bed.mjs";
import { MadeHub } from "./made-hub.mjs";

const POLICY = `version: 1
org: unlp
zone: America/Argentina/Buenos_Aires
tariff:
  unit: EUR
  price: 0.12 EUR/kWh
  windows:
  - {when: "18:00-23:00", price: 0.30 EUR/kWh}
areas:
- {area: unlp/lab3, unit: lab3, name: "Laboratory 3"}
- {area: unlp/lab4, unit: lab4}
rules:
- {area: unlp, budget: 90 kWh/day}
- {area: unlp/lab3, cap: 1200 W, floor: 300 W, kind: breaker}
`;
const CAP_LINE = 14;
const SWITCH = ["[switch ac]", "kind = tasmota", "topic = ac", "command = yes"];
const VIEWS = { viewer: ["energy", "used", "units", "policy"], administrator: ["energy", "used", "units", "policy", "users", "audit"] };
const skip = !CHROMIUM ? "no chromium: scripts/setup.sh ui" : LACKS ? `not there: ${LACKS}` : false;

const go = async (page, view) => {
  await page.evaluate((v) => (location.hash = v), view);
  await page.waitForSelector(`.page.${view.split("/")[0]}:not([hidden])`);
};

describe("the organization's page", { skip }, () => {
  let bed, browser, page, lab3;
  const row = (path, on = page) => on.$eval(`.area[data-area="${path}"]`, (e) => [...e.querySelectorAll(".label, .watts, .unseen")].map((x) => x.textContent).join(", ")).catch(() => "");
  const tile = (name, on = page) => on.$$eval(".one .tile", (all, n) => all.find((t) => t.querySelector("h3").textContent === n && !t.hidden)?.innerText ?? "", name);
  const enter = async (user, options) => {
    const other = await openPage(browser, bed.link, options);
    await login(other, user);
    await other.waitForSelector(".link.live");
    return other;
  };
  /** Complaints but those that the browser itself logs of an expected status. */
  const complaints = (on, ...expected) => on.complaints.filter((c) => !expected.some((status) => c.includes(`status of ${status}`)));

  before(async () => {
    bed = await HubBed.start(POLICY, { ada: "administrator", grace: "operator", alan: "viewer" });
    lab3 = await bed.area("lab3", SWITCH);
    lab3.relay("ac", true);
    await bed.area("lab4");
    browser = await launch();
    page = await openPage(browser, bed.link);
  });
  after(async () => {
    await browser?.close();
    await bed?.end();
  });

  test("nothing is told before a login, and a wrong password is refused with a reason", async () => {
    assert.equal(await page.evaluate(() => fetch("/v1/areas").then((a) => a.status)), 401);
    assert.equal(await page.$("nav"), null);
    await login(page, "ada", "not the password");
    await page.waitForFunction(() => document.querySelector(".login .says").textContent.length > 5);
    assert.deepEqual(complaints(page, 401), []);
    assert.deepEqual(await axe(page), []);
    page.complaints.length = 0;
  });

  test("an administrator logs in by keys alone; scripts cannot read the cookie", async () => {
    await page.$eval(".login input[name=user]", (e) => (e.value = ""));
    await login(page, "ada");
    await page.waitForSelector(".link.live");
    assert.equal(await page.evaluate(() => document.cookie), "");
    assert.deepEqual(await page.$$eval("nav a", (all) => all.map((a) => a.textContent.toLowerCase())), VIEWS.administrator);
  });

  test("the tree shows each area's power with its bounds, and sums", async () => {
    await eventually(async () => /(8\d\d|79\d) W, , 7\d\d W to 8\d\d W/.test(await row("unlp/lab3")), "800 W ± 5 %");
    assert.match(await row("unlp/lab3"), /^Laboratory 3,.*connected/);
    await eventually(async () => /1\.[56]\d kW/.test(await row("unlp")), "the sum of two areas");
  });

  test("what a plug tells is on the page at once, without a reload", async () => {
    await page.click('.area[data-area="unlp/lab3"]');
    await page.evaluate(() => (globalThis.kept = true));
    lab3.watts = 1000;
    await eventually(async () => /1\.0\d kW|99\d W/.test(await tile("Power now")), "1 kW");
    assert.equal(await page.evaluate(() => globalThis.kept), true);
    lab3.watts = 800;
  });

  test("the area's cap names the line of the policy, which the page shows", async () => {
    await page.click('.area[data-area="unlp/lab3"]');
    await eventually(async () => /1\.20 kW/.test(await tile("Cap")), "the cap");
    assert.match(await tile("Cap"), new RegExp(`\\b${CAP_LINE}\\b`));
    await page.$$eval(".one .plainlink", (all) => all.find((b) => /Which lines/.test(b.textContent)).click());
    await page.waitForSelector(`a[href="#policy/${CAP_LINE}"]`);
    await page.click(`a[href="#policy/${CAP_LINE}"]`);
    await page.waitForSelector(".source .named");
    assert.match(await textOf(page, ".source .named"), /unlp\/lab3, cap: 1200 W/);
    await go(page, "energy");
  });

  test("an area over time: power, cap as a step, prices of the tariff; what is unknown is no 0", async () => {
    await page.click('.area[data-area="unlp/lab3"]');
    await page.$$eval(".one .buttons button", (all) => all.find((b) => b.textContent === "1 h").click());
    await page.waitForFunction(() => /tariff/.test(document.querySelector(".one .chart ~ p").textContent) && !/Nothing is known/.test(document.querySelector(".one .chart ~ p").textContent), { timeout: 60000 });
    const drawn = (red, green, blue) => page.$eval(".one canvas", (c, rgb) => {
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      let n = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i] === rgb[0] && data[i + 1] === rgb[1] && data[i + 2] === rgb[2]) n++;
      return n;
    }, [red, green, blue]);
    await eventually(async () => (await drawn(0x00, 0x72, 0xb2)) > 5, "the curve of power");
    await eventually(async () => (await drawn(0xb3, 0x33, 0x0b)) > 50, "the cap");
  });

  test("the budget of the day, and how much of it is used, in the tree and on the area's page", async () => {
    await page.click('.area[data-area="unlp"]');
    await eventually(async () => /\d+(\.\d+)? %.*of (90|324)/s.test(await tile("Budget of today")), "the tile");
    await eventually(async () => /\d+(\.\d+)? % of today's budget/.test(await row("unlp")), "the tree");
    await page.click('.area[data-area="unlp/lab3"]');
  });

  test("what was used is told by area, user and day", async () => {
    await go(page, "used");
    await page.waitForFunction(() => [...document.querySelectorAll(".page.used .buttons button")].some((x) => x.textContent === "today"));
    await page.$$eval(".page.used .buttons button", (all) => all.find((x) => x.textContent === "today").click()); // no day is over here
    const to = Date.now(), kwh = 3.6e12;
    const record = (user, seq, uj) => ({ point: `user:${user}`, seq, from: to - 60000, to, mono: 1e9, uj, low: uj, high: uj, basis: "modelled", gap: 0 });
    lab3.report("energy", { v: 1, boot: 77, records: [record("grace", 1, 2 * kwh), record("alan", 2, kwh)] });
    const known = (by, key) => page.evaluate((b, k) => fetch(`/v1/energy?by=${b}&from=${Date.now()}&to=${Date.now() + 1}`).then((a) => a.json()).then(({ rows }) => rows.some((r) => r.key === k)), by, key);
    for (const [by, key] of [["user", "alan"], ["area", "unlp/lab3"]]) await eventually(() => known(by, key), `the hub has the energy of ${key}`); // the page asks once a minute
    for (const [by, first] of [["area", /Laboratory 3/], ["day", /^20\d\d-\d\d-\d\d/], ["user", /^grace\s+2\.\d* kWh/], ["user", /^alan\s+1\.\d* kWh/]]) {
      await page.$$eval(".page.used .buttons button", (all, b) => all.find((x) => x.textContent === b).click(), by);
      await page.waitForFunction((source) => [...document.querySelectorAll(".page.used tbody tr")].some((r) => new RegExp(source).test(r.innerText) && /J|Wh/.test(r.innerText)), {}, first.source);
    }
  });

  test("units: who is connected, until when the certificate is good; one that ends is lost", async () => {
    await go(page, "units");
    const unit = (name) => page.$eval(`tr[data-unit="${name}"]`, (r) => r.innerText).catch(() => "");
    await eventually(async () => /connected/.test(await unit("lab4")) && /\d+ d/.test(await unit("lab4")), "lab4 is connected");
    const area = bed.areas[1];
    await bed.stop(area.unit);
    await eventually(async () => /lost/.test(await unit("lab4")), "lab4 is lost");
    await go(page, "energy");
    await eventually(async () => /lost/.test(await row("unlp/lab4")), "the tree says so");
    area.start();
    await eventually(async () => /connected/.test(await row("unlp/lab4")), "it is back");
  });

  test("a token for a new unit is shown once, and a unit is revoked after a question", async () => {
    await go(page, "units");
    await page.$eval(".units form input", (e) => (e.value = "lab5"));
    await page.$eval(".units form", (f) => f.requestSubmit());
    await page.waitForFunction(() => document.querySelector(".token").textContent.length > 20);
    await page.$eval('button[aria-label="Revoke lab4"]', (b) => b.click());
    await page.waitForSelector("dialog[open]");
    await page.$$eval("dialog[open] button", (all) => all.find((b) => b.textContent === "Revoke").click());
    await page.waitForFunction(() => /revoked/.test(document.querySelector('tr[data-unit="lab4"]').innerText));
    await page.$eval('button[aria-label="Admit lab4"]', (b) => b.click());
    await page.waitForFunction(() => /lab4 is admitted/.test(document.querySelector(".units .says").textContent));
  });

  test("a viewer sees no switch button and no users, and the hub refuses both", async () => {
    const viewer = await enter("alan");
    assert.deepEqual(await viewer.$$eval("nav a", (all) => all.map((a) => a.textContent.toLowerCase())), VIEWS.viewer);
    await viewer.waitForSelector('.area[data-area="unlp/lab3"]');
    await viewer.click('.area[data-area="unlp/lab3"]');
    await viewer.waitForSelector('tr[data-switch="ac"]');
    assert.equal(await viewer.$("tr[data-switch] button"), null);
    const ask = (method, path, body) => viewer.evaluate((m, p, b) => fetch(p, { method: m, ...(b ? { body: b } : {}), headers: { "Content-Type": "application/json" } }).then((a) => a.status), method, path, body);
    assert.equal(await ask("POST", "/v1/areas/unlp/lab3/switches/ac", '{"on":false,"for_s":60}'), 403);
    assert.equal(await ask("GET", "/v1/users"), 403);
    assert.equal(await ask("PUT", "/v1/policy", '{"text":"","number":1}'), 403);
    await go(viewer, "policy");
    await viewer.waitForFunction(() => /unlp\/lab3/.test(document.querySelector(".source").textContent));
    assert.equal(await viewer.$("textarea"), null);
    assert.deepEqual(complaints(viewer, 403), []);
    await viewer.browserContext().close();
  });

  test("an operator switches, is asked first, and sees the outcome", async () => {
    const operator = await enter("grace");
    await operator.waitForSelector('.area[data-area="unlp/lab3"]');
    await operator.click('.area[data-area="unlp/lab3"]');
    const state = () => operator.$eval('tr[data-switch="ac"]', (r) => r.innerText);
    await eventually(async () => /\bon\b/.test(await state()), "the page knows that it is on");
    const button = await operator.waitForSelector('tr[data-switch="ac"] button');
    await button.focus();
    await operator.keyboard.press("Enter");
    await operator.waitForSelector("dialog[open]");
    assert.match(await textOf(operator, "dialog[open] h2"), /Turn ac of unlp\/lab3 off\?/);
    assert.deepEqual(await axe(operator), []);
    await operator.keyboard.press("Escape");
    await operator.waitForSelector("dialog[open]", { hidden: true });
    assert.deepEqual(lab3.orders, []); // nothing was ordered
    await operator.$eval('tr[data-switch="ac"] button', (e) => e.click());
    await operator.waitForSelector("dialog[open]");
    await operator.$$eval("dialog[open] button", (all) => all.find((b) => b.textContent === "Turn off").click());
    await eventually(() => lab3.orders.at(-1) === "ac OFF", "the plug is told");
    await operator.waitForFunction(() => /done/.test(document.querySelector('tr[data-switch="ac"]').innerText) && /\boff\b/.test(document.querySelector('tr[data-switch="ac"]').innerText));
    assert.deepEqual(complaints(operator), []);
    await operator.browserContext().close();
  });

  test("a policy is checked with line and column, compared, and applied", async () => {
    await go(page, "policy");
    await page.waitForFunction(() => /unlp\/lab3/.test(document.querySelector("textarea").value));
    const write = (from, to) => page.$eval("textarea", (e, a, b) => {
      e.value = e.value.replace(a, b);
      e.dispatchEvent(new Event("input"));
    }, from, to);
    await write("cap: 1200 W", "cap: 1200 X");
    await page.waitForSelector(".faults button");
    assert.match(await textOf(page, ".faults"), new RegExp(`${CAP_LINE}:\\d+ .*1200 X`));
    await page.click(".faults button");
    assert.equal(await page.$eval("textarea", (e) => e.value.slice(0, e.selectionStart).split("\n").length), CAP_LINE);
    assert.equal(await page.$eval(".policy button.primary", (b) => b.disabled), true);
    await write("cap: 1200 X", "cap: 1100 W");
    await page.waitForFunction(() => !document.querySelector(".policy button.primary").disabled);
    assert.match(await textOf(page, ".diff"), /~ unlp\/lab3: cap 1100 W.*1200 W/);
    const doubtful = "rules:\n- {area: unlp/nowhere, cap: 5 W, kind: breaker}\n";
    await write("rules:\n", doubtful);
    await page.waitForFunction(() => /unlp\/nowhere/.test(document.querySelector(".faults").textContent) && !document.querySelector(".policy button.primary").disabled);
    assert.match(await textOf(page, ".policy"), /1 doubt, and it can be applied all the same/);
    await write(doubtful, "rules:\n");
    await page.waitForFunction(() => !document.querySelector(".faults button") && !document.querySelector(".policy button.primary").disabled);
    const before = (await textOf(page, ".policy .small")).match(/Number (\d+)/)[1];
    await page.click(".policy button.primary");
    await page.waitForSelector("dialog[open]");
    await page.$$eval("dialog[open] button", (all) => all.find((b) => b.textContent === "Apply").click());
    await page.waitForFunction((n) => Number(document.querySelector(".policy .small").textContent.match(/Number (\d+)/)?.[1]) > Number(n), {}, before);
    await go(page, "energy/unlp/lab3");
    await eventually(async () => /1\.10 kW/.test(await tile("Cap")), "the new cap");
  });

  test("an administrator adds a user, changes the role, removes it; the audit log has it", async () => {
    await go(page, "users");
    await page.waitForFunction(() => /alan/.test(document.querySelector(".users tbody").innerText));
    await page.$$eval(".users form label input", (all, p) => all.forEach((e, i) => (e.value = ["mary", p][i])), PASSWORD);
    await page.$eval(".users form", (f) => f.requestSubmit());
    await page.waitForSelector('select[aria-label="Role of mary"]');
    await page.select('select[aria-label="Role of mary"]', "operator");
    await page.waitForFunction(() => /mary is operator now/.test(document.querySelector(".users .says").textContent));
    await page.click('.users input[name="keep_tokens"]');
    await page.select('select[aria-label="Role of mary"]', "viewer");
    await page.waitForFunction(() => /mary is viewer now/.test(document.querySelector(".users .says").textContent));
    await page.$eval('button[aria-label="Remove mary"]', (b) => b.click());
    await page.waitForSelector("dialog[open]");
    await page.$$eval("dialog[open] button", (all) => all.find((b) => b.textContent === "Remove").click());
    await page.waitForFunction(() => !/mary/.test(document.querySelector(".users tbody").innerText));
    await go(page, "audit");
    await page.waitForFunction(() => ["user.add", "user.role", "user.remove", "login"].every((what) => document.querySelector(".audit tbody").innerText.includes(what)));
    const changes = await page.$$eval(".audit tbody tr", (all) => all.map((row) => row.innerText).filter((text) => /user\.role/.test(text) && /mary/.test(text)));
    assert.deepEqual(changes.map((text) => /tokens kept/.test(text)), [true, false]); // the latest first
  });

  test("who was shrunk for a cap: machines and jobs for the administrator, machines for all, and nobody after it", async () => {
    const jobs = [{ node: "pc1", job: "bert", user: "alan", cores: 3 }, { node: "pc1", job: "cnn", user: "grace", cores: 2 }];
    const rows = (on, table) => on.$eval(".page.energy .one", (one, label) => {
      const card = [...one.querySelectorAll(".card")].find((c) => c.querySelector("h2")?.textContent === "Shrunk for the cap");
      if (!card || card.hidden) return "hidden";
      const body = [...card.querySelectorAll("table")].find((t) => (t.getAttribute("aria-label") ?? t.caption?.textContent) === label);
      return body && body.offsetParent ? [...body.tBodies[0].rows].map((r) => [...r.cells].map((c) => c.textContent).join(" ")).sort().join(", ") : "none";
    }, table);
    const machines = "Machines whose jobs have fewer cores", ofJobs = "Jobs that have fewer cores";
    lab3.report("shrunk", { v: 1, nodes: [{ node: "pc1", jobs: 2, cores: 5 }, { node: "pc2", jobs: 1, cores: 1 }], jobs });
    await go(page, "energy/unlp/lab3");
    await eventually(async () => (await rows(page, machines)) === "pc1 2 5, pc2 1 1", "the machines");
    await eventually(async () => (await rows(page, ofJobs)) === "bert alan pc1 3, cnn grace pc1 2", "the jobs");
    const other = await enter("alan");
    await go(other, "energy/unlp/lab3");
    await eventually(async () => (await rows(other, machines)) === "pc1 2 5, pc2 1 1", "the machines for a viewer");
    await eventually(async () => (await rows(other, ofJobs)) === "bert alan pc1 3", "a viewer's own job alone");
    lab3.report("shrunk", { v: 1, nodes: [], jobs: [] });
    await eventually(async () => (await rows(page, machines)) === "hidden" && (await rows(other, machines)) === "hidden", "nobody is shrunk");
    await other.close();
  });

  test("keys alone: from the first stop through the tree to an area's switch", async () => {
    await go(page, "energy");
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Find an area");
    await page.keyboard.type("lab4");
    await page.keyboard.press("ArrowDown");
    const chosen = () => page.$eval(".tree", (t) => document.getElementById(t.getAttribute("aria-activedescendant"))?.dataset.area);
    await eventually(async () => (await chosen()) === "unlp/lab4", "the area that was found");
    await page.keyboard.press("ArrowLeft");
    await eventually(async () => (await chosen()) === "unlp", "what it lies in");
    await page.focus(".areas input");
    await page.keyboard.press("Escape");
    await page.focus(".tree");
    await page.keyboard.press("ArrowLeft");
    await eventually(async () => (await page.$('.area[data-area="unlp/lab3"]:not([hidden])')) === null, "it is closed");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    await eventually(async () => (await chosen()) === "unlp/lab3", "the first in it");
    await page.keyboard.press("Enter");
    await page.waitForSelector('[data-switch="ac"] button');
    for (let i = 0; i < 30; i++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(() => document.activeElement.closest("[data-switch]") !== null)) return;
    }
    assert.fail("no switch was reached");
  });

  for (const view of VIEWS.administrator)
    for (const scheme of ["light", "dark"])
      test(`${view}: axe finds nothing serious, ${scheme}`, async () => {
        await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
        await go(page, view);
        await page.waitForFunction((v) => document.querySelector(`.page.${v}`).innerText.length > 20, {}, view);
        assert.deepEqual(await axe(page), []);
      });

  test("every view fits 320 pixels", async () => {
    const phone = await enter("ada", { width: 320, height: 700 });
    for (const view of VIEWS.administrator) {
      await go(phone, view);
      await phone.waitForFunction((v) => document.querySelector(`.page.${v}`).innerText.length > 20, {}, view);
      assert.equal(await phone.evaluate(() => document.documentElement.scrollWidth), 320, view);
    }
    assert.deepEqual(complaints(phone), []);
    await phone.browserContext().close();
  });

  test("nothing was logged as an error, nothing was asked for elsewhere", () => assert.deepEqual(complaints(page), []));
});

describe("a bad connection to the hub", { skip }, () => {
  let bed, browser, wire, page;
  const shows = (name) => page.waitForFunction((n) => document.querySelector(".link").classList.contains(n), { timeout: 30000 }, name);

  before(async () => {
    bed = await HubBed.start(POLICY, { ada: "administrator" });
    await bed.area("lab3");
    browser = await launch();
    wire = await Wire.to(bed.web);
    page = await openPage(browser, `https://127.0.0.1:${wire.port}/`);
    await login(page, "ada");
    await page.waitForSelector('.area[data-area="unlp/lab3"]');
  });
  after(async () => {
    await browser?.close();
    await wire?.close();
    await bed?.end();
  });

  test("a slow one says so, and of when the page is", async () => {
    wire.delay = 3000;
    await shows("slow");
    assert.match(await textOf(page, ".banner"), /slow: what you see is of \d\d:\d\d:\d\d/);
    wire.delay = 0;
    await shows("live");
  });

  test("a lost one keeps what was seen, and comes back by itself with what changed meanwhile", async () => {
    wire.cut();
    await shows("lost");
    assert.match(await textOf(page, ".banner"), /connection is lost.*What you see is of/);
    assert.ok(await page.$('.area[data-area="unlp/lab3"]'));
    bed.areas[0].watts = 500;
    wire.isCut = false;
    await shows("live");
    await page.waitForFunction(() => /5\d\d W|49\d W/.test(document.querySelector('.area[data-area="unlp/lab3"]').textContent), { timeout: 30000 });
  });

  for (const view of VIEWS.administrator)
    test(`${view}: slow and lost are told, what was seen stays, and it comes back`, async () => {
      await go(page, view);
      await page.waitForFunction((v) => document.querySelector(`.page.${v}`).innerText.length > 20, {}, view);
      wire.delay = 3000;
      await shows("slow");
      wire.delay = 0;
      await shows("live");
      const before = (await textOf(page, `.page.${view}`)).length;
      wire.cut();
      await shows("lost");
      assert.ok((await textOf(page, `.page.${view}`)).length > before / 2, "the page is not emptied");
      wire.isCut = false;
      await shows("live");
    });

  test("a hub that ends and comes back is found again, and the session is still good", async () => {
    await bed.stop(bed.hub);
    await shows("lost");
    await bed.serve();
    await shows("live");
  });

  test("the end of the session is told, and what to do", async () => {
    await page.evaluate(() => fetch("/v1/logout", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }));
    await shows("ended");
    assert.match(await textOf(page, ".banner"), /log in/);
    await page.reload();
    await page.waitForSelector(".login");
  });
});

describe("names in the tree of areas", { skip: !CHROMIUM && skip }, () => {
  for (const width of [1280, 1024, 920])
    test(`are told in full on a page ${width} pixels wide`, () => made(new MadeHub(), async (page) => {
      await page.setViewport({ width, height: 900 });
      const named = await eventually(async () => {
        const all = await page.$$eval(".area:not([hidden]) .label", (labels) => labels.map((l) => ({ name: l.textContent, fits: l.clientWidth > 0 && l.scrollWidth <= l.clientWidth })));
        return all.some(({ name }) => name === "Laboratory 11") && all;
      }, "the tree shows a laboratory");
      assert.deepEqual(named.filter(({ fits }) => !fits), []);
      assert.ok(await page.$eval(".tree", (tree) => tree.scrollWidth <= tree.clientWidth), "no row is wider than the tree");
    }));
});

/** It is eight in the morning; each area has drawn 1 kW all the time. */
class AtEight extends MadeHub {
  midnight = Date.now() - 8 * 3600e3;

  usedOf(by, from, to) {
    const row = (key, ms) => ({ key, uj: String(Math.round(ms * 1e6)), low_uj: String(Math.round(ms * 1e6)), high_uj: String(Math.round(ms * 1e6)), cost: null, gap_ms: 0 });
    const until = Math.min(to, Date.now());
    if (by !== "day") return this.areas.slice(0, 3).map((a) => row(a.area, until - from));
    return super.usedOf(by, from, to).map(({ key }, i) => row(key, Math.min(until - from - i * 86400e3, 86400e3)));
  }
}

/** Runs a test on a page that looks at a made-up hub. */
const made = async (hub, run) => {
  await hub.listen();
  const browser = await launch();
  try {
    const page = await openPage(browser, hub.url);
    await page.waitForSelector(".link.live");
    await run(page);
    assert.deepEqual(page.complaints, []);
  } finally {
    await browser.close();
    hub.close();
  }
};

describe("what was used, beside what was used before", { skip: !CHROMIUM && skip }, () => {
  const press = (page, name) => page.$$eval(".page.used .buttons button", (all, n) => all.find((b) => b.textContent === n).click(), name);
  const says = (page) => textOf(page, ".page.used p.small");

  test("a constant load is as much as before, and today is compared with nothing", () => made(new AtEight(), async (page) => {
    await go(page, "used");
    for (const [name, words] of [["yesterday", /^unlp: 24\.0 kWh; as much as in the day before \(24\.0 kWh\)\.$/], ["1 week", /^unlp: 168 kWh; as much as in the week before \(168 kWh\)\.$/],
      ["30 days", /^unlp: 720 kWh; as much as in the 30 days before \(720 kWh\)\.$/], ["today", /^unlp: 8\.\d\d kWh so far\.$/]]) {
      await press(page, name);
      await eventually(async () => words.test(await says(page)), name);
    }
  }));

  test("days: each that is over is compared with that of a week before", () => made(new AtEight(), async (page) => {
    await go(page, "used");
    await press(page, "day");
    const rows = () => page.$$eval(".page.used tbody tr", (all) => all.map((r) => [r.cells[1].textContent, r.cells[4].textContent].join(" ")));
    await eventually(async () => /^(24\.0 kWh as much,){7}8\.\d\d kWh –$/.test((await rows()).join()), "seven days and today");
    await press(page, "today");
    await eventually(async () => /^8\.\d\d kWh –$/.test((await rows()).join()), "today alone");
  }));
});

/** The next list tells how it was before meanwhile() began, and comes when that has ended. */
class LateList extends MadeHub {
  asked = [];

  async answer(ask, answer) {
    const { meanwhile } = this;
    this.asked.push(ask.url);
    if (ask.url !== "/v1/areas" || !meanwhile) return super.answer(ask, answer);
    this.meanwhile = null;
    const told = JSON.stringify(this.get("/v1/areas", new URLSearchParams()));
    await meanwhile();
    return answer.writeHead(200, { "Content-Type": "application/json" }).end(told);
  }

  /** A unit is lost or comes back; @told: an event says so. */
  turn(path, state, told) {
    const area = this.areas.find((a) => a.area === path);
    area.state = state;
    if (told) this.tell("state", { area: path, state });
  }
}

describe("what happens while the list of areas is on its way", { skip: !CHROMIUM && skip }, () => {
  const LAB1 = "unlp/f1/lab1", LAB2 = "unlp/f1/lab2";
  const state = (page, path) => page.$eval(`.area[data-area="${path}"] .mark`, (e) => e.className.split(" ")[1]);
  const states = async (page) => `${await state(page, LAB1)} ${await state(page, LAB2)}`;
  const first = (page) => states(page).catch(() => ""); // the page may still be loading

  test("an event that overtakes the list counts, also when the page has shown it meanwhile", () => {
    const hub = new LateList();
    return made(hub, async (page) => {
      await eventually(async () => (await first(page)) === "connected connected", "the first list");
      hub.turn(LAB2, "lost", false); // the list alone says so: it has come
      hub.meanwhile = async () => {
        hub.turn(LAB1, "lost", true);
        await eventually(async () => (await states(page)) === "lost connected", "the event is shown before the list comes");
      };
      hub.tell("missed", {});
      await eventually(async () => (await state(page, LAB2)) === "lost", "the list has come");
      assert.equal(await states(page), "lost lost");
    });
  });

  test("a policy that comes into force asks for the list behind the one that is on its way", () => {
    const hub = new LateList();
    return made(hub, async (page) => {
      hub.meanwhile = async () => {
        hub.turn(LAB2, "lost", false);
        hub.tell("policy", { number: 9 });
        await new Promise((over) => setTimeout(over, 500));
      };
      hub.tell("missed", {});
      await eventually(async () => (await states(page)) === "connected lost", "the second list");
    });
  });

  test("the first list is of when events come already", () => {
    const hub = new LateList();
    return made(hub, async () => {
      const [stream, list] = ["/v1/events", "/v1/areas"].map((path) => hub.asked.indexOf(path));
      assert.ok(stream >= 0 && stream < list, hub.asked.join(" "));
    });
  });
});
