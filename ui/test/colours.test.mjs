// SPDX-License-Identifier: Apache-2.0
// Colours as people with protanopia, deuteranopia and tritanopia see them: what shares a chart stays far apart, and what
// does not differs by a pattern, a dash, a mark or a word, too. Reads the sources; no browser.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const SRC = join(dirname(fileURLToPath(import.meta.url)), "../src");
const css = readFileSync(join(SRC, "style.css"), "utf8");
const sources = readdirSync(SRC, { recursive: true }).filter((name) => name.endsWith(".ts")).map((name) => [name, readFileSync(join(SRC, name), "utf8")]);

// Machado, Oliveira and Fernandes 2009, full severity, on linear RGB.
const EYES = {
  usual: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};
const times = (matrix, v) => matrix.map((row) => row.reduce((sum, x, i) => sum + x * v[i], 0));
const linear = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
function lab(rgb) {
  const f = (t) => (t > 216 / 24389 ? Math.cbrt(t) : (841 / 108) * t + 4 / 29);
  const xyz = times([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]], rgb);
  const [x, y, z] = [xyz[0] / 0.95047, xyz[1], xyz[2] / 1.08883].map(f);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}
const seen = (hex, eye) => lab(times(EYES[eye], linear(hex)).map((v) => Math.min(1, Math.max(0, v))));
/** The least difference (CIE 1976) of two colours to any of the eyes; 2.3 is just noticed by people side by side. */
const least = (a, b) => Math.min(...Object.keys(EYES).map((eye) => Math.hypot(...seen(a, eye).map((v, i) => v - seen(b, eye)[i]))));

const themes = [...css.matchAll(/\{([^}]*--ground:[^}]*)\}/g)].map(([, body]) => Object.fromEntries([...body.matchAll(/--([a-z-]+): (#[0-9a-f]{6})/g)].map(([, name, hex]) => [name, hex])));
const pairs = (all) => all.flatMap((a, i) => all.slice(i + 1).map((b) => [a, b]));

describe("colours without all cones", () => {
  test("the palettes of the light and the dark theme are found", () => {
    assert.ok(themes.length >= 2);
    for (const theme of themes) assert.ok(theme.active && theme.allowed && theme.alarm && theme.good);
    assert.notEqual(themes[0].ground, themes.at(-1).ground);
  });

  test("curves of one chart differ by at least 40, or by 20 and a dash, and from what is behind them", () => {
    let charts = 0;
    for (const [file, text] of sources)
      for (const [, curves] of text.matchAll(/curves: \[(\{.*?\})\]/gs)) {
        const drawn = [...curves.matchAll(/\{[^}]*?colour: "([a-z]+)"[^}]*\}/g)].filter(([whole]) => !/hidden: true/.test(whole)).map(([whole, colour]) => ({ colour, dash: /dash:/.test(whole) }));
        charts += drawn.length > 1 ? 1 : 0;
        for (const theme of themes) {
          for (const [a, b] of pairs(drawn)) assert.ok(least(theme[a.colour], theme[b.colour]) >= (a.dash === b.dash ? 40 : 20), `${file}: ${a.colour} and ${b.colour} differ by ${least(theme[a.colour], theme[b.colour])}`);
          for (const { colour } of drawn) assert.ok(least(theme[colour], theme.card) >= 40, `${file}: ${colour}`);
        }
      }
    assert.ok(charts >= 4, `${charts} charts`);
  });

  test("states differ by at least 15, and each has a word or a sign of its own", () => {
    for (const theme of themes)
      for (const [a, b] of pairs(["good", "faint", "alarm"])) assert.ok(least(theme[a], theme[b]) >= 15, `${a}, ${b}: ${least(theme[a], theme[b])}`);
    const [, states] = sources.map(([, text]) => text.match(/ STATES: \{[^}]*\} = \{([^}]*)\}/)).find(Boolean);
    const signs = [...states.matchAll(/\["([^"]+)", "([^"]+)"/g)];
    assert.ok(signs.length >= 3, String(signs));
    assert.equal(new Set(signs.map(([, sign]) => sign)).size, signs.length, "signs");
    assert.equal(new Set(signs.map(([, , word]) => word)).size, signs.length, "words");
  });

  test("parts of a bar of energy that look alike to somebody have patterns", () => {
    const rule = (name) => css.match(new RegExp(`^i\\.${name} \\{([^}]*)\\}`, "m"))[1];
    const parts = ["jobs", "system", "idle", "unattributed"].map((name) => ({ name, colour: rule(name).match(/--([a-z]+)/)[1], pattern: rule(name).match(/repeating-linear-gradient\(\d+deg/)?.[0] ?? "plain" }));
    for (const theme of themes)
      for (const [a, b] of pairs(parts)) assert.ok(least(theme[a.colour], theme[b.colour]) >= 20 || a.pattern !== b.pattern, `${a.name} and ${b.name}`);
  });

  test("hues of jobs: neighbours differ, all others by pattern or mark", () => {
    const text = sources.find(([name]) => name === "colour.ts")[1];
    const hues = [...text.match(/HUES = \[([^\]]*)\]/)[1].matchAll(/#[0-9a-f]{6}/g)].map(([hex]) => hex);
    const marks = text.match(/MARKS = "([^"]*)"/)[1];
    assert.equal(hues.length, 7);
    hues.slice(1).forEach((hue, i) => assert.ok(least(hue, hues[i]) >= 15, `${hues[i]} and ${hue}: ${least(hue, hues[i])}`));
    assert.equal(new Set(marks).size, marks.length);
    assert.ok(marks.length >= 62 && marks.length % hues.length !== 0, "a hue meets all marks");
  });
});
