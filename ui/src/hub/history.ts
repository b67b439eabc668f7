/* SPDX-License-Identifier: Apache-2.0 */
/* An area over time, as curves: power with its band, gaps as gaps, the cap as a step, and the tariff's windows. Pure. */
import { amount, AreaEnergy } from "./model";

export interface Curves { times: number[]; low: (number | null)[]; high: (number | null)[]; mid: (number | null)[]; cap: (number | null)[] }
export interface Price { from: number; to: number; amount: number }

const GAP_SHARE = 0.5; // a stretch of which less is known is a gap

/** Step functions of the answer at any of the times: the last value that began before. */
function stepAt<T extends { from_ms: number }>(steps: readonly T[], ms: number): T | null {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle]!.from_ms <= ms) low = middle + 1;
    else high = middle;
  }
  return low ? steps[low - 1]! : null;
}

/** In seconds and watts. Each stretch is a step that ends where it does, so that a hole between two stays one. */
export function curvesOf(told: AreaEnergy, from: number, to: number, capNow: number | null): Curves {
  const now = Date.now(); // a stretch that has not ended yet is not known yet
  const known = told.stretches.filter((s) => s.from_ms + told.step_ms <= now && amount(s.mid_uj) !== null && s.basis !== "unknown" && s.gap_ms < told.step_ms * GAP_SHARE);
  const at = new Map(known.map((s) => [s.from_ms, s]));
  const marks = new Set<number>();
  for (const s of known) {
    marks.add(s.from_ms);
    marks.add(Math.min(s.from_ms + told.step_ms, to * 1000));
  }
  for (const cap of told.caps ?? []) if (cap.from_ms >= from * 1000 && cap.from_ms <= to * 1000) marks.add(cap.from_ms);
  marks.add(from * 1000).add(to * 1000);
  const times = [...marks].sort((a, b) => a - b), curves: Curves = { times: [], low: [], high: [], mid: [], cap: [] };
  for (const ms of times) {
    const s = at.get(ms) ?? stepAt(known, ms), covers = s !== null && ms < s.from_ms + told.step_ms;
    const watts = (uj: number | null) => (uj === null || !covers ? null : uj / 1000 / Math.max(1, told.step_ms - s.gap_ms));
    curves.times.push(ms / 1000);
    curves.low.push(s ? watts(amount(s.low_uj)) : null);
    curves.high.push(s ? watts(amount(s.high_uj)) : null);
    curves.mid.push(s ? watts(amount(s.mid_uj)) : null);
    const cap = told.caps ? stepAt(told.caps, ms)?.uw ?? null : ms >= now - told.step_ms ? capNow : null;
    curves.cap.push(cap === null ? null : cap / 1e6);
  }
  return curves;
}

export function pricesOf(told: AreaEnergy, from: number, to: number): Price[] {
  const prices: Price[] = [];
  (told.prices ?? []).forEach((price, i, all) => {
    const value = amount(price.amount), end = Math.min(to, (all[i + 1]?.from_ms ?? Infinity) / 1000), begin = Math.max(from, price.from_ms / 1000);
    if (value !== null && end > begin) prices.push({ from: begin, to: end, amount: value });
  });
  return prices;
}
