// SPDX-License-Identifier: Apache-2.0
// Takes pictures of a hub's page: usage: node energy_page.mjs LINK USER PASSWORD OUT AREA
// Prints the path of each. LINK's certificate is the hub's own, which no browser knows.
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { join } from "node:path";

const GUARD_MS = 30000;
const puppeteer = createRequire(new URL("../ui/package.json", import.meta.url))("puppeteer-core");
const [link, user, password, out, area] = process.argv.slice(2);
const chromium = [process.env.TIDE_CHROMIUM, "/usr/bin/chromium", "/usr/bin/google-chrome"].find((p) => p && existsSync(p));

const browser = await puppeteer.launch({
  executablePath: chromium, headless: true,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--ignore-certificate-errors", "--lang=en-GB"],
});
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  await page.goto(link);
  await page.waitForSelector("input[name=password]", { timeout: GUARD_MS });
  await page.type("input[name=user]", user);
  await page.type("input[name=password]", password);
  await page.click("form button[type=submit]");
  await page.waitForSelector(".link.live", { timeout: GUARD_MS });
  const views = await page.$$eval("nav a", (all) => all.map((a) => a.getAttribute("href")).filter((h) => h && h.startsWith("#")));
  for (const view of views.length ? views : [""]) {
    if (view) await page.evaluate((hash) => { location.hash = hash; }, view === "#energy" ? `#energy/${area}` : view);
    if (view === "#energy") await page.$$eval("button", (all) => all.find((b) => b.textContent === "1 h")?.click());
    await new Promise((go) => setTimeout(go, 2500));
    const path = join(out, `energy-${view.slice(1) || "page"}.png`);
    await page.screenshot({ path });
    console.log(path);
  }
} finally {
  await browser.close();
}
