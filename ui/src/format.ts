/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as people read them. What is unknown is a dash and never 0. */

export const UNKNOWN = "–";

// Made once: a formatter costs a hundred times what it formats.
const numbers = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const times = [new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" }), new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" })];
const dates = [new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" }), new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" })];
const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function number(value: number, digits: 0 | 1 | 2 | 3 = 0): string {
  return numbers[digits]!.format(value);
}

/** 3 significant digits: 0.123, 1.23, 12.3, 123, 1,234. What is more than nothing is never shown as 0. */
export function figure(value: number): string {
  const size = Math.abs(value);
  if (size > 0 && size < 0.01) return small.format(value);
  return number(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** "42 s", "3 min 05 s", "2 h 10 min", "4 d 3 h". */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const two = (n: number) => String(n).padStart(2, "0");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

export function clock(seconds: number, withSeconds = true): string {
  return times[withSeconds ? 1 : 0]!.format(seconds * 1000);
}

/** "24 Nov", with the year where it is another one. */
export function date(seconds: number): string {
  const another = new Date(seconds * 1000).getFullYear() !== new Date().getFullYear();
  return dates[another ? 1 : 0]!.format(seconds * 1000);
}

/** A mark of an axis whose marks are @step seconds apart: the day where one begins. */
export function mark(seconds: number, step: number): string {
  const at = new Date(seconds * 1000), begins = at.getHours() === 0 && at.getMinutes() === 0;
  return step >= 86400 || (step >= 3600 && begins) ? date(seconds) : clock(seconds, step < 60);
}

/** Marks from @from to @to on multiples of @step of the local clock, also where that is set to or from summer time. */
export function marksOf(from: number, to: number, step: number): number[] {
  const offset = (seconds: number) => new Date(seconds * 1000).getTimezoneOffset() * 60, begin = offset(from), marks: number[] = [];
  for (let t = Math.ceil((from - begin) / step) * step + begin; t <= to; t += step) {
    const at = step >= 3600 ? t + offset(t) - begin : t;
    if (at >= from && at <= to) marks.push(at);
  }
  return marks;
}

/** The time alone today, with the day before it else. */
export function moment(seconds: number): string {
  const today = new Date(seconds * 1000).toDateString() === new Date().toDateString();
  return today ? clock(seconds) : `${date(seconds)} ${clock(seconds, false)}`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${at ? figure(value) : value} ${units[at]}`;
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${number(n)} ${n === 1 ? one : many}`;
}

/** 84 W, 1.20 kW, 350 mW. */
export function watts(uw: number | null | undefined): string {
  if (uw === null || uw === undefined) return UNKNOWN;
  const w = uw / 1e6;
  return w >= 1000 ? `${figure(w / 1000)} kW` : w >= 1 || w === 0 ? `${figure(w)} W` : `${figure(w * 1000)} mW`;
}

/** Money: what is more than nothing is never shown as 0. */
export function money(value: number | null | undefined, currency: string): string {
  if (value === null || value === undefined) return UNKNOWN;
  return `${value > 0 && value < 0.001 ? "< 0.001" : figure(value)} ${currency}`;
}

/** Energy: J below a kilojoule, else Wh or kWh. */
export function energy(uj: number | null | undefined): string {
  if (uj === null || uj === undefined) return UNKNOWN;
  const j = uj / 1e6;
  if (j < 1000) return `${figure(j)} J`;
  const wh = j / 3600;
  return wh < 1000 ? `${figure(wh)} Wh` : `${figure(wh / 1000)} kWh`;
}

const parsed = new Map<string, readonly number[]>();
const PARSED_MAX = 5000;

/** The numbers of @cpus cores: those of a list as 0-3,8, else from 0 on. */
export function coreNumbers(list: string, cpus: number): readonly number[] {
  const found = parseCores(list);
  return found.length === cpus ? found : Array.from({ length: cpus }, (_, i) => i);
}

/** The numbers of a list as 0-3,8. The same text gives the same array. */
export function parseCores(text: string): readonly number[] {
  const known = parsed.get(text);
  if (known) return known;
  const found: number[] = [];
  if (parsed.size >= PARSED_MAX) parsed.clear();
  parsed.set(text, found);
  for (const part of text ? text.split(",") : []) {
    const [first, last] = part.split("-").map(Number);
    for (let core = first!; core <= (last ?? first!); core++) found.push(core);
  }
  return found;
}
