// SPDX-License-Identifier: Apache-2.0
// Things that the page must never say: figures of another time or another job, 0 for what nobody knows, controls for those who
// are refused. A real browser; made-up servers, for states that real ones have seldom or late.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { build } from "esbuild";
import { CHROMIUM, eventually, launch, openPage, textOf } from "./bed.mjs";
import { MadeHub } from "./made-hub.mjs";
import { job, MadeServer, refusal } from "./made-server.mjs";

const skip = CHROMIUM ? false : "no chromium: scripts/setup.sh ui";
let browser;

const go = async (page, view) => {
  await page.evaluate((v) => (location.hash = v), view);
  await page.waitForSelector(`.page.${view.split("/")[0]}:not([hidden])`);
};

/** Runs a test on a page before a made-up server; @first: a script that runs before the page's own. */
const made = async (server, run, first) => {
  await server.listen();
  try {
    if (!first) return await run(await openPage(browser, server.url), server);
    const page = await openPage(browser, "data:text/html,<p class=login>");
    await page.evaluateOnNewDocument(first);
    await page.goto(server.url);
    await page.waitForSelector(".link.live");
    return await run(page, server);
  } finally {
    for (const context of browser.browserContexts()) if (context !== browser.defaultBrowserContext()) await context.close();
    server.close();
  }
};

const serverOf = (more) => Object.assign(new MadeServer(), more);
const detail = (page) => page.$eval(".detail", (e) => e.innerText);
const open = (page, id) => page.$eval(`button[data-job="${id}"]`, (b) => b.click());
/** How many pixels of a canvas have the colour of job j1. */
const drawn = (page, canvas) => page.$eval(canvas, (c) => {
  const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
  let n = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i] === 86 && data[i + 1] === 180 && data[i + 2] === 233) n++;
  return n;
});

const hiddenAndSeen = async (page, server) => {
  const hide = (hidden) => page.evaluate((h) => {
    Object.defineProperty(document, "hidden", { get: () => h, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await eventually(() => server.streams.size === 1, "the stream is open");
  await hide(true);
  await eventually(() => server.streams.size === 0, "it is closed");
  await hide(false);
  await eventually(() => server.streams.size === 1, "it is open again");
};

describe("a machine that is made up", { skip }, () => {
  before(async () => (browser = await launch()));
  after(() => browser?.close());

  test("cores whose numbers do not begin with 0 are shown with their jobs", () => {
    const server = serverOf({ jobs: [job("j1", { cores: "12-13" })] }), now = Date.now() / 1000;
    Object.assign(server.machine, { online: "8,10,12-13" });
    server.answers["/v1/history"] = [{ id: "j1", name: "j1-name", owner: "ada", state: "running", command: "", submitted: now - 60, begun: now - 60, ended: null, run_s: 60, wait_s: 0, weight: 100,
      allocations: [{ time: now - 60, threads: 2, cores: "12-13", reason: "" }], progress: null }];
    return made(server, async (page) => {
      await eventually(async () => (await drawn(page, "canvas.strip")) > 500, "the strip has the job's colour");
      await go(page, "time");
      await eventually(async () => (await drawn(page, "canvas.gantt")) > 100, "the history has the job's colour");
    });
  });

  test("what is not told of a job is not what was told of the one before", () => {
    const server = serverOf({ jobs: [job("j1", { power_uw: 12e6, power_basis: "measured", energy_uj: 5e6, energy_low_uj: 4e6, energy_high_uj: 6e6, energy_basis: "measured" }), job("j2")] });
    return made(server, async (page) => {
      await open(page, "j1");
      assert.match(await detail(page), /12\.0 W \(measured\)/);
      await open(page, "j2");
      assert.match(await detail(page), /j2-name/);
      assert.doesNotMatch(await detail(page), /Power|Energy|12\.0 W/);
    });
  });

  test("of a job that has ended nothing is said as if it were so now", () => made(serverOf({ jobs: [job("j1"), job("j2")] }), async (page, server) => {
    await open(page, "j1");
    assert.match(await detail(page), /2 active, 2 allowed/);
    server.jobs = server.jobs.slice(1);
    await page.waitForFunction(() => /has ended/.test(document.querySelector(".detail .says").textContent));
    assert.match(await detail(page), /State\s+ended/);
    assert.doesNotMatch(await detail(page), /active|equal share/);
    assert.equal(await page.$(".detail fieldset"), null);
    server.jobs = [job("j1"), ...server.jobs]; // a tided that was away for a moment
    await page.waitForSelector(".detail fieldset");
    assert.doesNotMatch(await detail(page), /has ended/);
  }));

  test("threads that nobody tells are a dash, and not counted as none", () => made(serverOf({ jobs: [job("j1"), job("j2", { state: "rigid", active: 0, target: 0, max: 0 })] }), async (page) => {
    const row = await page.$eval('button[data-job="j2"]', (b) => b.closest("tr").cells[2].innerText);
    assert.equal(row.trim(), "–");
    assert.match(await textOf(page, ".tiles"), /Active threads2of 2 allowed; unknown of 1 job/);
  }));

  test("events that never cease do not keep the page from looking", () => made(new MadeServer(), async (page, server) => {
    await eventually(() => server.streams.size > 0, "the stream is open");
    let events = 0;
    const looks = server.count("/v1/jobs"), flood = setInterval(() => server.tell("job-changed", events++), 40);
    try {
      await eventually(() => events >= 100, "a hundred events");
      assert.ok(server.count("/v1/jobs") - looks >= 5, String(server.count("/v1/jobs") - looks));
    } finally {
      clearInterval(flood);
    }
  }));

  test("a page that nobody sees keeps no stream open, and opens one when it is seen", () => made(new MadeServer(), hiddenAndSeen));

  test("a history that is refused is asked for seldom, and comes when it is there again", () => {
    const server = new MadeServer();
    server.answers["/v1/history"] = refusal(503, "history.db cannot be read");
    return made(server, async (page) => {
      await go(page, "time");
      await page.waitForFunction(() => /cannot be read/.test(document.querySelector(".page.time").innerText));
      const looks = server.count("/v1/jobs"), before = server.count("/v1/history");
      await eventually(() => server.count("/v1/jobs") >= looks + 5, "five looks");
      assert.ok(server.count("/v1/history") - before <= 3, String(server.count("/v1/history") - before));
      server.answers["/v1/history"] = [];
      await page.waitForFunction(() => /No job ran in this window/.test(document.querySelector(".page.time").innerText));
    });
  });

  test("a history that is cut says what is missing, and which window has it", () => {
    const server = new MadeServer(), now = Date.now() / 1000;
    server.answers["/v1/history"] = Array.from({ length: 1000 }, (_, i) => ({ id: `j${i}`, name: "", owner: "ada", state: "ended", command: "", submitted: now - 5, begun: now - 5, ended: now - 4, run_s: 1, wait_s: 0,
      weight: 100, allocations: [], progress: null }));
    return made(server, async (page) => {
      await go(page, "time");
      await page.waitForFunction(() => /newest 1,000 jobs of this window: earlier ones are missing. Choose a shorter window/.test(document.querySelector(".page.time").innerText));
    });
  });

  test("a job of which the oldest changes are missing is said, and a shorter window asked for what it lacks", () => {
    const server = new MadeServer(), now = Date.now() / 1000;
    const last = () => new URLSearchParams(server.asked.filter((asked) => asked.startsWith("/v1/history")).at(-1).split("?")[1]);
    server.answers["/v1/history"] = [{ id: "j1", name: "cnn", owner: "ada", state: "running", command: "", submitted: now - 500, begun: now - 500, ended: null, run_s: 500, wait_s: 0, weight: 100, progress: null, cut: true,
        allocations: [{ time: now - 20, threads: 1, cores: "0", reason: "b" }, { time: now - 30, threads: 2, cores: "0-1", reason: "a" }] }];
    return made(server, async (page) => {
      await go(page, "time");
      await page.waitForFunction(() => /1 job changed more often than is told at once: older changes are missing/.test(document.querySelector(".page.time").innerText));
      assert.match(await textOf(page, "table.decisions"), /– → 2/);
      assert.equal(last().get("until"), null); // to now and on
      await page.click('button[aria-label="Earlier"]');
      await eventually(() => last().get("until"), "the window's end is asked for");
      assert.ok(Number(last().get("until")) < now && Number(last().get("since")) < Number(last().get("until")));
    });
  });

  const POWER = { time: 1000, power: { uw: 60e6, low_uw: 60e6, high_uw: 60e6, basis: "measured" }, energy: { uj: 1, low_uj: 1, high_uj: 1, basis: "measured", gap_ms: 0 }, jobs: [], load: {},
    parts: Object.fromEntries(["jobs", "system", "idle", "unattributed"].map((name) => [name, { uj: 0, low_uj: 0, high_uj: 0, basis: "measured" }])) };

  for (const governs of [true, false])
    test(`${governs ? "who governs sees" : "who does not govern sees no"} controls and cap, and whose history it is`, () => {
      const server = new MadeServer();
      server.machine.governs = governs;
      server.answers["/v1/power"] = POWER;
      return made(server, async (page) => {
        await open(page, "j1");
        assert.equal((await page.$(".detail fieldset")) !== null, governs);
        await go(page, "time");
        await page.waitForFunction((words) => document.querySelector(".page.time").innerText.includes(words), {}, governs ? "No job ran in this window." : "No job of yours ran in this window. Your jobs alone: administrators see everybody's.");
        await go(page, "energy");
        await page.waitForFunction(() => /60\.0 W/.test(document.querySelector(".page.energy .tiles").innerText));
        assert.equal(await page.$eval(".page.energy form", (form) => form.closest(".card").hidden), !governs);
        await page.$$eval(".page.energy .buttons button", (all) => all.find((b) => b.textContent === "job").click());
        const asked = server.count("/v1/energy");
        await eventually(async () => /Your jobs alone/.test(await textOf(page, ".page.energy")) === !governs && server.count("/v1/energy") >= asked, "whose jobs");
      });
    });

  test("an owner without a name in /etc/passwd is known by number", () => made(serverOf({ jobs: [job("j1", { owner: "1000" })], machine: { ...new MadeServer().machine, governs: false } }), async (page) => {
    await open(page, "j1");
    assert.ok(await page.$(".detail fieldset"));
  }));

  test("a part's power is right where figures come once in ten seconds", () => {
    const server = new MadeServer();
    let looks = 0;
    server.answers["/v1/power"] = () => { // two seconds pass with each look; jobs draw 20 W
      const uj = 20e6 * 10 * Math.floor(looks / 5);
      return { ...POWER, time: 1000 + 2 * looks++, parts: { ...POWER.parts, jobs: { uj, low_uj: uj, high_uj: uj, basis: "measured" } } };
    };
    return made(server, async (page) => {
      await go(page, "energy");
      const seen = new Set();
      await eventually(async () => {
        const row = await page.$eval(".page.energy table.jobs tbody", (body) => body.rows[0]?.cells[1].textContent);
        if (row) seen.add(row);
        return looks > 17;
      }, "three figures");
      assert.deepEqual([...seen], ["–", "20.0 W"]);
    });
  });

  test("power that is refused is told, with when it was known last", () => {
    const server = new MadeServer();
    server.answers["/v1/power"] = { ...POWER, time: Date.now() / 1000 };
    return made(server, async (page) => {
      await go(page, "energy");
      await page.waitForFunction(() => /60\.0 W/.test(document.querySelector(".page.energy .tiles").innerText));
      server.answers["/v1/power"] = refusal(503, "the meter is away");
      await page.waitForFunction(() => /the meter is away.*What you see is of \d\d:\d\d:\d\d/.test(document.querySelector(".page.energy").innerText));
      server.answers["/v1/power"] = POWER;
      await page.waitForFunction(() => !/the meter is away/.test(document.querySelector(".page.energy").innerText));
    });
  });

  test("a page that was lost days ago says of which day it is", () => made(new MadeServer(), async (page, server) => {
    server.cut();
    await page.waitForSelector(".link.lost");
    await page.evaluate(() => (globalThis.later = 3 * 86400e3));
    await page.waitForFunction(() => /What you see is of \d+ [A-Z]\w+ (\d{4} )?\d\d:\d\d/.test(document.querySelector(".banner").textContent));
  }, () => {
    globalThis.later = 0;
    const Real = Date;
    globalThis.Date = class extends Real {
      constructor(...words) {
        if (words.length) super(...words);
        else super(Real.now() + globalThis.later);
      }
    };
  }));
});

describe("a cluster that may not be read", { skip }, () => {
  before(async () => (browser = await launch()));
  after(() => browser?.close());

  test("has dashes, and no 0", () => {
    const server = serverOf({ session: { server: "cluster", user: "eve", version: "0" } });
    server.answers["/v1/cluster"] = { time_ms: Date.now(), trainings: null, nodes: null, problems: ["trainings: forbidden"] };
    return made(server, async (page) => {
      const tiles = await textOf(page, ".page.cluster .tiles");
      assert.match(tiles, /Trainings–the trainings cannot be read/);
      assert.match(tiles, /Nodes with a power cap–the nodes cannot be read/);
      assert.doesNotMatch(tiles, /\d/);
    });
  });
});

describe("a hub that is made up", { skip }, () => {
  before(async () => (browser = await launch()));
  after(() => browser?.close());

  const LAB = "unlp/f1/lab1";
  const mark = (page) => page.$eval(`.area[data-area="${LAB}"] .mark`, (e) => e.className.split(" ")[1]).catch(() => "");

  test("without a stream of events the list is fetched instead", () => {
    class Silent extends MadeHub {
      answer(ask, answer) {
        if (ask.url !== "/v1/events") return super.answer(ask, answer);
        return answer.writeHead(429, { "Content-Type": "application/json" }).end('{"error":{"message":"there are too many streams of events","hint":""}}');
      }
    }
    const hub = new Silent();
    return made(hub, async (page) => {
      await eventually(async () => (await mark(page)) === "connected", "the first list");
      hub.areas.find((a) => a.area === LAB).state = "lost";
      await eventually(async () => (await mark(page)) === "lost", "a later list");
    });
  });

  test("a page that nobody sees keeps no stream open for long, and opens one when it is seen", () => made(new MadeHub(), hiddenAndSeen));

  test("events that were missed leave no hole unsaid", () => {
    const hub = new MadeHub();
    return made(hub, async (page) => {
      await eventually(() => hub.streams.size > 0, "the stream is open");
      await go(page, "units");
      const past = () => page.$$eval(".page.units .card", (all) => all.at(-1).querySelector("tbody").innerText);
      hub.tell("event", { time_ms: Date.now(), type: "started", unit: "f1-lab1", area: LAB, text: "tide-power began" });
      await eventually(async () => /tide-power began/.test(await past()), "an event");
      assert.doesNotMatch(await past(), /missed/);
      hub.tell("missed", {});
      await eventually(async () => /^.*Events were missed[^]*tide-power began/.test(await past()), "the hole, above it");
    });
  });

  test("a window of the policy that ends is seen without an event", () => {
    const hub = new MadeHub(), lab = hub.areas.find((a) => a.area === LAB);
    Object.assign(lab, { cap_uw: 1200e6, next_ms: Date.now() + 15000 });
    return made(hub, async (page) => {
      await go(page, `energy/${LAB}`);
      const cap = () => page.$$eval(".one .tile", (all) => all.find((t) => t.querySelector("h3").textContent === "Cap").innerText);
      await eventually(async () => /1\.20 kW/.test(await cap()), "the cap");
      Object.assign(lab, { cap_uw: 800e6, next_ms: null });
      await eventually(async () => /800 W/.test(await cap()), "the next cap");
    });
  });

  test("sums that are not whole yet say so", () => {
    class Filling extends MadeHub {
      usedIn(...words) {
        return { ...super.usedIn(...words), filling: true };
      }
    }
    return made(new Filling(), async (page) => {
      await go(page, "used");
      await page.waitForFunction(() => /not whole yet/.test(document.querySelector(".page.used p.small").textContent));
    });
  });

  test("of what nothing is known there is no sum, and no 0", () => {
    class Dark extends MadeHub {
      usedOf(by, from, to) {
        return super.usedOf(by, from, to).map((row) => (row.key === LAB ? { ...row, uj: "0", low_uj: "0", high_uj: "0", cost: 0, basis: "unknown", gap_ms: to - from } : { ...row, basis: "measured" }));
      }
    }
    return made(new Dark(), async (page) => {
      await go(page, "used");
      const row = await eventually(() => page.$$eval(".page.used tbody tr", (all, lab) => all.map((r) => [...r.cells].map((c) => c.textContent)).find((cells) => cells[0].includes(lab)), `(${LAB})`), "the row");
      assert.deepEqual(row.slice(1, 5), ["–", "", "–", "–"]);
    });
  });

  test("no policy is none, and of no day; a fault of the whole text has no line", () => {
    class Fresh extends MadeHub {
      get(path, query) {
        return path === "/v1/policy" ? { number: 0, edition: 0, text: "", made_ms: null, valid_until_ms: null } : super.get(path, query);
      }

      answer(ask, answer) {
        if (ask.url !== "/v1/policy/check") return super.answer(ask, answer);
        return answer.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify({ faults: [{ line: null, column: null, text: "the text is too long" }], warnings: [], diff: [] }));
      }
    }
    return made(new Fresh(), async (page) => {
      await go(page, "policy");
      await page.waitForFunction(() => /No policy is in force yet/.test(document.querySelector(".page.policy .small").textContent));
      await page.type("textarea", "x");
      await page.waitForFunction(() => /the text is too long/.test(document.querySelector(".faults").textContent));
      assert.doesNotMatch(await textOf(page, ".faults"), /null/);
    });
  });

  test("a role that was refused is shown as it still is, also while the keyboard is there", () => {
    class Stern extends MadeHub {
      answer(ask, answer) {
        if (ask.method !== "PATCH") return super.answer(ask, answer);
        return answer.writeHead(409, { "Content-Type": "application/json" }).end('{"error":{"message":"the last administrator stays one","hint":""}}');
      }
    }
    return made(new Stern(), async (page) => {
      await go(page, "users");
      const role = 'select[aria-label="Role of grace"]';
      await page.waitForSelector(role);
      await page.focus(role);
      await page.select(role, "viewer");
      await page.waitForFunction(() => /stays one/.test(document.querySelector(".users .says").textContent));
      await eventually(async () => (await page.$eval(role, (select) => select.value)) === "operator", "as it was");
    });
  });

  test("the keyboard stays on a switch that was switched", () => {
    const hub = new MadeHub(), lab = hub.areas.find((a) => a.area === LAB);
    return made(hub, async (page) => {
      await go(page, `energy/${LAB}`);
      const label = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
      await (await page.waitForSelector('[data-switch="ac"] button')).focus();
      assert.equal(await label(), "Turn on: ac");
      lab.switches[0].on = true;
      hub.tell("state", { area: LAB, switches: lab.switches.map((s) => ({ ...s, may: !s.always_on })) });
      await eventually(async () => (await label()) === "Turn off: ac", "the button that came for it");
    });
  });

  test("an address that is mistyped shows the areas all the same", () => made(new MadeHub(), async (page) => {
    await page.evaluate(() => (location.hash = "energy/%"));
    await page.reload();
    await page.waitForSelector(".one:not([hidden])");
    assert.deepEqual(page.complaints, []);
  }));

  test("who looks at an area in the same half minute asks the same, which the hub answers once", () => {
    class Listening extends MadeHub {
      asked = [];

      answer(ask, answer) {
        this.asked.push(ask.url);
        return super.answer(ask, answer);
      }
    }
    const hub = new Listening();
    return made(hub, async (page) => {
      await page.waitForSelector(".one:not([hidden])");
      const url = await eventually(() => hub.asked.find((asked) => /\/energy\?from=/.test(asked)), "the history is asked for"), query = new URL(url, hub.url).searchParams;
      for (const end of ["from", "to"]) assert.equal(Number(query.get(end)) % 30000, 0, url);
    });
  });

  test("a reader in another zone is told of whose clock the windows are", () => made(new MadeHub(), async (page) => {
    await page.emulateTimezone("Asia/Tokyo");
    await page.reload();
    await page.waitForSelector(".one:not([hidden]) .plainlink");
    await page.$$eval(".one .plainlink", (all) => all.find((b) => /Which lines/.test(b.textContent)).click());
    await page.waitForFunction(() => /of the clock of UTC, these times of Asia\/Tokyo/.test(document.querySelector(".one").innerText));
  }));
});

describe("figures and marks", () => {
  let format;

  before(async () => {
    process.env.TZ = "Europe/Berlin";
    const { outputFiles: [{ text }] } = await build({ entryPoints: [new URL("../src/format.ts", import.meta.url).pathname], bundle: true, format: "esm", write: false });
    format = await import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`);
  });

  test("what is more than nothing is never 0", () => {
    assert.equal(format.figure(0.000278), "0.000278");
    assert.equal(format.figure(0.0123), "0.012");
    assert.equal(format.figure(0), "0");
  });

  test("a day of another year says which", () => {
    const year = new Date().getFullYear(), at = (y) => new Date(y, 2, 3, 4, 5).getTime() / 1000;
    assert.equal(format.date(at(year)), "3 Mar");
    assert.equal(format.moment(at(year - 1)), `3 Mar ${year - 1} 04:05`);
  });

  test("days begin at midnight also behind the end of summer time, and each is marked once", () => {
    const from = Date.UTC(2025, 9, 20) / 1000, marks = format.marksOf(from, from + 14 * 86400, 86400);
    assert.deepEqual([...new Set(marks.map((at) => new Date(at * 1000).getHours()))], [0]);
    assert.deepEqual(marks.map((at) => new Date(at * 1000).getDate()), [21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 1, 2, 3].slice(0, marks.length));
    assert.ok(marks.length >= 13);
    assert.match(format.mark(marks[6], 7200), /27 Oct/);
  });
});
