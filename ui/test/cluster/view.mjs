// SPDX-License-Identifier: Apache-2.0
// View Cluster in a real browser, before a real control plane: tests/kube/test_page.py starts both, and names the
// link and the training in the environment.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { eventually, launch, openPage, textOf } from "../bed.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { TIDE_CLUSTER_LINK: LINK, TIDE_CLUSTER_TRAINING: TRAINING, TIDE_CLUSTER_SHOT: SHOT } = process.env;

describe("view Cluster", () => {
  let browser, page;

  before(async () => {
    browser = await launch();
    page = await openPage(browser, LINK);
    await page.waitForSelector(".page.cluster tbody button.name");
  });
  after(() => browser?.close());

  const api = () => page.evaluate(() => fetch("/v1/cluster").then((answer) => answer.json()));
  const row = (name) => page.$$eval(".page.cluster tbody tr", (all, n) => [...all.find((r) => r.cells[0].textContent === n).cells].map((c) => c.textContent), name);

  test("shows a training as the API server has it", async () => {
    const told = (await api()).trainings.find((t) => `${t.namespace}/${t.name}` === TRAINING);
    await eventually(async () => (await row(TRAINING))[3] === "2/2 (1 to 4)", "two workers are shown");
    const shown = await row(TRAINING);
    assert.equal(shown[1], told.phase);
    assert.match(shown[7], /Pinned/);
    assert.equal(Number(shown[4].replace(/\D/g, "")) > 0, true, shown[4]);
  });

  test("draws its sizes over time, and says them to who cannot see", async () => {
    await page.$$eval("button.name", (all, n) => all.find((b) => b.textContent === n).click(), TRAINING);
    await page.waitForFunction((n) => document.querySelector(".page.cluster h2:not(:only-child)").textContent.endsWith(n), {}, TRAINING);
    const label = await page.$eval(".chart", (c) => c.getAttribute("aria-label"));
    assert.match(label, /at most 4 workers, now 2$/);
    const painted = await page.$eval(".chart canvas", (c) => new Set(c.getContext("2d").getImageData(0, 0, c.width, c.height).data).size);
    assert.ok(painted > 8, String(painted));
    await page.$$eval(".card header button", (all) => all.find((b) => b.textContent === "All trainings").click());
    await page.waitForFunction(() => document.querySelector('.card header button[aria-pressed="true"]'));
  });

  test("shows what is free on each node, in cores and in watts", async () => {
    const { nodes } = await api();
    for (const node of nodes) {
      await eventually(async () => Number((await row(node.name))[4]) * 1000 === (await api()).nodes.find((n) => n.name === node.name).free_mcpu, `${node.name} is shown`);
    }
    assert.equal((await row("page-2"))[5], "80.0 W, 1.00 cores; draws 55.5 W, 24.5 W free");
    assert.equal((await row("page-0"))[5], "no cap");
    assert.match(await textOf(page, ".tiles"), /Nodes with a power cap1of/);
    await page.type('input[type="search"]', "page-1");
    await page.waitForFunction(() => [...document.querySelectorAll(".page.cluster section:last-child tbody tr")].map((r) => r.cells[0].textContent).join() === "page-1");
    await page.$eval('input[type="search"]', (field) => { field.value = ""; field.dispatchEvent(new Event("input")); });
  });

  test("axe finds nothing serious, in both themes and on a phone", async () => {
    for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 360]]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await page.setViewport({ width, height: 900 });
      await page.waitForFunction((s) => document.documentElement.dataset.theme === s, {}, scheme);
      if (SHOT && width === 1280) await page.screenshot({ path: `${SHOT}-${scheme}.png`, fullPage: true });
      await page.evaluate(AXE);
      const found = await page.evaluate(() => globalThis.axe.run());
      assert.deepEqual(found.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes[0].html}`), []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `no sideways scrolling at ${width}`);
    }
    assert.deepEqual(page.complaints, []);
  });
});
