/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The looks of jobs. Seven hues that people with any colour blindness tell apart (Okabe and Ito), four
 * patterns, and the mark of `tide top`: nothing is told by colour alone. A job has the same look on every
 * page and after every reload, since it follows from its id.
 */

const HUES = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#f0e442", "#3d8fd1"];
const MARKS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
export const PATTERNS = 4;
const TILE = 8;

export interface Look {
  colour: string;
  pattern: number; // 0: plain, 1: diagonals, 2: dots, 3: bars
  mark: string;
}

export function numberOf(id: string): number {
  const n = Number(id.replace(/^\D+/, ""));
  return Number.isFinite(n) && n >= 0 ? n : 0;
}

/** Made anew each time: a page that is open for a week sees more jobs than it should keep. */
export function lookOf(id: string): Look {
  const n = numberOf(id);
  return {
    colour: HUES[(n + HUES.length - 1) % HUES.length]!,
    pattern: Math.floor((n + HUES.length - 1) / HUES.length + PATTERNS - 1) % PATTERNS,
    mark: MARKS[n % MARKS.length]!,
  };
}

const INK = "rgba(0, 0, 0, 0.42)";

function paintPattern(c: CanvasRenderingContext2D, pattern: number): void {
  c.fillStyle = c.strokeStyle = INK;
  c.lineWidth = 1.6;
  c.beginPath();
  if (pattern === 1) {
    for (const x of [-TILE / 2, TILE / 2]) {
      c.moveTo(x, TILE);
      c.lineTo(x + TILE, 0);
    }
    c.stroke();
  } else if (pattern === 2) {
    c.arc(TILE / 2, TILE / 2, 1.7, 0, 2 * Math.PI);
    c.fill();
  } else if (pattern === 3) {
    c.moveTo(TILE / 2, 0);
    c.lineTo(TILE / 2, TILE);
    c.stroke();
  }
}

const tiles = new Map<string, HTMLCanvasElement>();

function tileOf(look: Look): HTMLCanvasElement {
  const key = `${look.colour}${look.pattern}`;
  let tile = tiles.get(key);
  if (!tile) {
    tile = document.createElement("canvas");
    tile.width = tile.height = TILE;
    const c = tile.getContext("2d")!;
    c.fillStyle = look.colour;
    c.fillRect(0, 0, TILE, TILE);
    paintPattern(c, look.pattern);
    tiles.set(key, tile);
  }
  return tile;
}

const urls = new Map<HTMLCanvasElement, string>();

function urlOf(look: Look): string {
  const tile = tileOf(look);
  let url = urls.get(tile);
  if (!url) urls.set(tile, (url = tile.toDataURL()));
  return url;
}

/** The fill of a job's part of a picture. */
export function fillOf(c: CanvasRenderingContext2D, id: string): string | CanvasPattern {
  const look = lookOf(id);
  return look.pattern === 0 ? look.colour : (c.createPattern(tileOf(look), "repeat") ?? look.colour);
}

/** A small square of the job's look with its mark, for tables. */
export function swatch(id: string): HTMLElement {
  const look = lookOf(id), span = document.createElement("span");
  span.className = "swatch";
  span.setAttribute("aria-hidden", "true");
  span.textContent = look.mark;
  span.style.backgroundColor = look.colour;
  if (look.pattern) span.style.backgroundImage = `url(${urlOf(look)})`;
  return span;
}
