// SPDX-License-Identifier: Apache-2.0
// Builds the page: src/ -> dist/ (three files, no other address in them). usage: node build.mjs [OUT]
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");
const MOST = 192 * 1024; // bytes of all files; a third of that on the wire

mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.ts" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome109", "firefox115", "safari16"],
  charset: "utf8",
  legalComments: "inline",
  banner: { js: "/* SPDX-License-Identifier: Apache-2.0 and MIT (uPlot, https://github.com/leeoniya/uPlot, copyright Leon Sorokin; ui/LICENSES) */" },
});
await build({ absWorkingDir: here, entryPoints: { page: "src/style.css" }, outdir: out, bundle: true, minify: true, charset: "utf8" });
copyFileSync(join(here, "src/index.html"), join(out, "index.html"));

const sizes = readdirSync(out).map((name) => [name, statSync(join(out, name)).size]);
const sum = sizes.reduce((s, [, size]) => s + size, 0);
console.log(sizes.map(([name, size]) => `${name} ${size}`).join(", "), `= ${sum} bytes`);
if (sum > MOST) {
  console.error(`build: ${sum} bytes are more than ${MOST}`);
  process.exit(1);
}
const text = sizes.map(([name]) => readFileSync(join(out, name), "utf8")).join("\n");
const elsewhere = [...text.matchAll(/(?:src|href|url\(|import|fetch)\s*[=(]?\s*["']?(https?:\/\/[^"'\s)]+)/g)].map((m) => m[1]);
if (elsewhere.length) {
  console.error(`build: the page would load ${elsewhere.join(", ")}`);
  process.exit(1);
}
