// SPDX-License-Identifier: Apache-2.0
// The files for Grafana and Prometheus: against Grafana's schema, by promtool, and against the metrics that there are.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const UI = join(dirname(fileURLToPath(import.meta.url)), "..");
const DIST = join(UI, "../dist");
const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "threadtide");
const PROMTOOL = ["/usr/bin/promtool", join(CACHE, "prometheus/usr/bin/promtool")].find((p) => existsSync(p));
const DASHBOARDS = readdirSync(join(DIST, "grafana")).filter((name) => name.endsWith(".json"));
const SPECIAL = { $instance: "a", $__range: "1h" };

/** Numbers and texts stand for Grafana's enums, whose values they are. */
const PLAIN = `
import type { Dashboard } from "@grafana/schema";
type Plain<T> = T extends string ? \`\${T}\` : T extends number | boolean | null | undefined ? T
  : T extends readonly (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
export const dashboard: Plain<Dashboard> = `;

/** The complaints of the schema's type checker about a dashboard; "" is good. */
function complaints(text) {
  const folder = mkdtempSync(join(tmpdir(), "tide-grafana-"));
  try {
    symlinkSync(join(UI, "node_modules"), join(folder, "node_modules"));
    writeFileSync(join(folder, "dashboard.ts"), `${PLAIN}${text};\n`);
    execFileSync(join(UI, "node_modules/.bin/tsc"), ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext",
      "--moduleResolution", "bundler", "dashboard.ts"], { cwd: folder, encoding: "utf8", stdio: "pipe" });
    return "";
  } catch (error) {
    return error.stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function sources(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? sources(path) : name.endsWith(".c") ? [readFileSync(path, "utf8")] : [];
  });
}

const panels = (board) => board.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
const expressions = (board) => panels(board).flatMap((panel) => (panel.targets ?? []).map((target) => target.expr));

describe("files for Grafana and Prometheus", () => {
  for (const name of DASHBOARDS) {
    const text = readFileSync(join(DIST, "grafana", name), "utf8"), board = JSON.parse(text);

    test(`${name} fits Grafana's schema`, () => assert.equal(complaints(text), ""));

    test(`${name}: panels do not overlap, and each has a number of its own`, () => {
      const seen = new Set(), ids = panels(board).map((panel) => panel.id);
      assert.equal(new Set(ids).size, ids.length);
      for (const { gridPos: { x, y, w, h }, title } of board.panels)
        for (let i = x; i < x + w; i++)
          for (let j = y; j < y + h; j++) {
            assert.ok(i < 24 && !seen.has(`${i}/${j}`), `${title} at ${i}, ${j}`);
            seen.add(`${i}/${j}`);
          }
    });

    test(`${name}: Prometheus reads every expression`, { skip: PROMTOOL ? false : "no promtool: scripts/setup.sh ui" }, () => {
      const folder = mkdtempSync(join(tmpdir(), "tide-promtool-")), rules = join(folder, "rules.yml");
      const all = expressions(board).map((expr) => Object.entries(SPECIAL).reduce((text, [what, by]) => text.replaceAll(what, by), expr));
      assert.ok(all.length > 5);
      writeFileSync(rules, JSON.stringify({ groups: [{ name: "all", rules: all.map((expr, i) => ({ record: `panel_${i}`, expr })) }] }));
      execFileSync(PROMTOOL, ["check", "rules", rules], { stdio: "pipe" });
      rmSync(folder, { recursive: true });
    });
  }

  test("the schema's check finds what is wrong", () => {
    const text = readFileSync(join(DIST, "grafana", DASHBOARDS[0]), "utf8");
    assert.match(complaints(text.replace('"schemaVersion"', '"shemaVersion"')), /shemaVersion/);
    assert.match(complaints(text.replace('"gridPos": {', '"gridPos": { "z": 1,')), /z"?' does not exist/);
  });

  test("every metric that is asked for is one that our programs tell", () => {
    const code = sources(join(UI, "../src")).join("\n");
    const texts = [...DASHBOARDS.flatMap((name) => expressions(JSON.parse(readFileSync(join(DIST, "grafana", name), "utf8")))),
      ...[...readFileSync(join(DIST, "prometheus/threadtide.rules.yml"), "utf8").matchAll(/expr: (.*)/g)].map((m) => m[1])];
    const names = new Set(texts.flatMap((text) => [...text.matchAll(/(?<![:\w])(?:tide|kepler)_\w+(?!:)/g)].map((m) => m[0].replace(/_bucket$/, ""))));
    assert.ok(names.size >= 8);
    for (const name of names) assert.ok(code.includes(name), `no program tells ${name}`);
  });

  test("the rules are valid, and raise the alerts that they should", { skip: PROMTOOL ? false : "no promtool: scripts/setup.sh ui" }, () => {
    const run = (...words) => execFileSync(PROMTOOL, words, { cwd: join(DIST, "prometheus"), encoding: "utf8", stdio: "pipe" });
    assert.match(run("check", "rules", "threadtide.rules.yml"), /SUCCESS: \d+ rules found/);
    assert.match(run("test", "rules", "threadtide.rules.test.yml"), /SUCCESS/);
  });
});
