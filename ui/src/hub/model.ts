/* SPDX-License-Identifier: Apache-2.0 */
/* The hub's answers as in docs/openapi-hub.yaml. Watts are µW; energies in µJ may be decimal strings. */

export type Amount = number | string;

/** @units that add up to it, of which @silent tell nothing now. */
export interface PowerBand { low_uw: number; mid_uw: number; high_uw: number; basis: string; units?: number; silent?: number }
export interface Switch { name: string; on: boolean; known: boolean; always_on: boolean; may: boolean }
export interface Shrunk { node: string; jobs: number; cores: number }
export interface ShrunkJob { node: string; job: string; user: string; cores: number }

export interface Area {
  area: string; name: string | null; parent: string | null; unit: string | null;
  state: "connected" | "lost" | "never"; since_ms: number | null;
  power: PowerBand | null;
  cap_uw: number | null; cap_by: string | null; kind: string | null; floor_uw: number | null; next_ms: number | null;
  budget: { day_uj: Amount; used_uj: Amount } | null;
  price: { amount: Amount; unit: string; until_ms: number | null } | null;
  carbon_g: number | null; lease_uw: number | null; absent_s: number | null;
  switches: Switch[]; shrunk: Shrunk[];
}

export interface Areas { org: string | null; zone: string | null; now_ms: number; currency: string | null; areas: Area[] }

export interface Stretch { from_ms: number; low_uj: Amount | null; mid_uj: Amount | null; high_uj: Amount | null; basis: string; gap_ms: number; cost: Amount | null }
export interface AreaEnergy {
  area: string; step_ms: number; stretches: Stretch[];
  caps?: { from_ms: number; uw: number | null; by?: string | null }[];
  prices?: { from_ms: number; amount: Amount | null }[];
}

export interface ExplainLine { what: string; line: number | null; text: string }
export interface Explained { area: string; at_ms: number; zone?: string | null; lines: ExplainLine[]; next_ms: number | null }

export interface UsedRow { key: string; uj: Amount | null; low_uj: Amount | null; high_uj: Amount | null; basis?: string; cost: Amount | null; gap_ms: number }

/** @number 0: there is none. */
export interface Policy { number: number; text: string; made_ms: number | null; valid_until_ms: number | null }
/** @line null: it is of the whole text. */
export interface Fault { line: number | null; column: number | null; text: string }
export interface Checked { faults: Fault[]; warnings?: Fault[]; diff?: string[] }

export interface Unit {
  name: string; area: string | null; state: "connected" | "lost" | "never"; version: string | null; policy: number | null;
  certificate_until_ms: number | null; revoked: boolean; two_of_a_name?: boolean;
}

export interface User { user: string; role: string; created_ms?: number | null; last_ms?: number | null }
export interface Audit { id?: number; time_ms: number; user: string | null; what: string; target?: string | null; outcome?: string | null; from?: string | null }

export interface SwitchOutcome { id: string | number; area: string; name: string; on?: boolean; state: "ordered" | "done" | "refused" | "expired" | "disobeyed"; text?: string }

/** null stays null: what is unknown is never 0. */
export const amount = (value: Amount | null | undefined): number | null =>
  value === null || value === undefined || value === "" || Number.isNaN(Number(value)) ? null : Number(value);

/** Each part of a path is escaped, its slashes are kept. */
export const areaPath = (area: string, more = ""): string => `/v1/areas/${area.split("/").map(encodeURIComponent).join("/")}${more}`;

export const depthOf = (area: string): number => area.split("/").length - 1;
