/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the page's own server, and what docs/openapi.yaml says of the answers. */

/** Any program's account of itself and of the user for whom it answers (a hub: null until somebody logs in). */
export interface Session { server: "machine" | "hub" | "cluster"; at?: string; user: string | null; uid?: number; version: string; views?: string[]; org?: string; role?: string | null; may?: string[] }

export interface Progress { done: number; total: number; unit: string; rate: number }

/** Requests that a server tells; null: it tells none. */
export interface Latency { source: string; promise_us: number | null; p99_us: number | null; rate: number; in_flight: number; kept: number | null }

export interface Job {
  id: string; name: string; owner: string;
  state: "held" | "queued" | "paused" | "running" | "moldable" | "rigid" | "starting";
  pids: number[]; cores: string; allowed: number; target: number; active: number; max: number;
  oversubscribed: boolean; malleable: boolean; adopted: boolean; kept: boolean; submitted: boolean; held?: boolean; preemptible: boolean;
  priority: number; class: number; weight: number; min: number; limit: number | null; request: number | null;
  memory: number | null; memory_used: number | null; devices?: string | null; devices_held?: string | null; deadline: number | null;
  placement: string; pinned: number | null; pinned_by: string | null; place: number | null;
  latency: Latency | null;
  progress: Progress; reason: string; note: string; elapsed_s: number; run_s: number; wait_s: number;
  backends: { name: string; version: string; target: number; active: number; max: number; malleable: boolean; note: string }[];
  power_uw?: number | null; power_basis?: string | null; energy_uj?: number | null; energy_low_uj?: number | null; energy_high_uj?: number | null; energy_basis?: string | null;
}

export interface Machine {
  version: string; pid: number; epoch: number; uid: number; privileged: boolean; policy: string; placement: string; cpus: number;
  online: string; free: number; memory: number | null; memory_counted: number; jobs: number; oversubscribed: boolean;
  weights: boolean; notes: string[];
  governs?: boolean; // this page's user may change everybody's jobs, the policy and power caps; an older tided does not say
}

export interface Change { time: number; from: number; to: number; cores: string; reason: string; latency_us: number }

export interface Explanation {
  id: string; name: string; changes: Change[];
  speedup: { table: number[]; parallel: number; contention: number; confidence: number; counts: number; resize_us: number } | null;
}

export interface Allocation { time: number; threads: number; cores: string; reason: string }

export interface PastJob {
  id: string; name: string; owner: string; state: string; command: string; submitted: number; begun: number | null;
  ended: number | null; run_s: number; wait_s: number; weight: number; allocations: Allocation[]; progress: Progress | null;
  cut?: boolean; // older allocations of the asked time are missing
}

export interface Changed { changed: boolean; from: number; to: number; status: "done" | "pending" | "partial"; reason: string; note?: string }

/** A refusal or a fault: @status 0 when there was no answer at all. */
export class Problem extends Error {
  constructor(readonly status: number, message: string, readonly hint = "") {
    super(message);
  }
}

const TIMEOUT_MS = 15000;

/** The machine that this page shows, a name of the inventory; "": the one where its server runs. */
export const AT = new URLSearchParams(location.search).get("at") ?? "";

/** The page of a machine of the inventory; "": of the server's own. */
export const pageOf = (name: string): string => (name ? `/?at=${encodeURIComponent(name)}` : "/");

/** Where a request goes to: those for the shown machine to its daemon, the others to the page's own server. */
export const far = (path: string): string => (AT ? path.replace(/^\/v1\/(?!session|fleet)/, `/v1/at/${encodeURIComponent(AT)}/`) : path);

async function request(method: string, path: string, body: unknown, timeout: number): Promise<Response> {
  try {
    return await fetch(far(path), {
      method, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(timeout),
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
    });
  } catch (error) {
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new Problem(0, late ? "no answer in time" : "no connection");
  }
}

async function read<T>(answer: Response): Promise<T> {
  const text = await answer.text().catch(() => {
    throw new Problem(0, "the answer was cut off");
  });
  let body: unknown;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    if (answer.ok) throw new Problem(answer.status, "the answer is no JSON");
    throw new Problem(answer.status, text.trim() || answer.statusText);
  }
  if (answer.ok) return body as T;
  const error = (body as { error?: { message?: string; hint?: string } } | null)?.error;
  throw new Problem(answer.status, error?.message || answer.statusText, error?.hint);
}

export async function get<T>(path: string, timeout = TIMEOUT_MS): Promise<T> {
  return read<T>(await request("GET", path, undefined, timeout));
}

export async function send<T>(method: "PATCH" | "DELETE" | "PUT" | "POST", path: string, body?: unknown): Promise<T> {
  return read<T>(await request(method, path, body, TIMEOUT_MS));
}

export const jobPath = (id: string, more = ""): string => `/v1/jobs/${encodeURIComponent(id)}${more}`;
