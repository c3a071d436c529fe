/** The real service with the embedded engine and the shipped base model, driven over its wire. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { builtProgram } from "../support/built-program.ts";
import type { HostSettings } from "./service-host.ts";

export const MODELS = "/v1/preview/models";
export const RL_JOBS = "/v1/preview/training-jobs";
export const SFT_JOBS = "/v1/preview/sft-training-jobs";
export const PREFERENCE_JOBS = "/v1/preview/preference-training-jobs";
export const ARTIFACTS = "/v1/preview/artifacts";
export const BASE = "whetstone-tiny";

/** Address of a service. */
export interface Address {
  readonly url: string;
  readonly apiKey: string;
}

/** A service's process. */
export interface ServiceProcess extends Address {
  /** `kill -9`; resolves when the process is gone. */
  readonly kill: () => Promise<void>;
  /** Resolves when the process has halted at the requested position. */
  readonly halted: () => Promise<void>;
}

/** Options for starting a service process. */
export interface ProcessOptions extends HostSettings {
  /** Port of a process that was killed. @default any free port */
  readonly port?: number;
  /** Whether several tests use the process, and its caller kills it. @default it ends with the test */
  readonly isShared?: boolean;
}

/** Returns the data of an event without values that depend on the machine: times, and the fastest number of threads. */
export function withoutTimes(data: object): object {
  return Object.fromEntries(Object.entries(data).filter(([key]) => key !== "tokens_per_second" && !key.startsWith("engine/")));
}

export interface JobEvent {
  readonly id: string;
  readonly type: string;
  readonly data: any;
}

export async function temporaryDirectory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "whetstone-integration-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** A service that several tests of a file use, with its data directory. */
export interface SharedService {
  readonly service: ServiceProcess;
  readonly dataDir: string;
  /** Ends the process and removes its data. */
  readonly end: () => Promise<void>;
}

/** Starts a service for several tests; the caller ends it. */
export async function startShared(options: ProcessOptions = {}): Promise<SharedService> {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-integration-"));
  const service = await startProcess(dataDir, { ...options, isShared: true });
  const end = async () => {
    await service.kill();
    await rm(dataDir, { recursive: true, force: true });
  };
  return { service, dataDir, end };
}

/** Max attempts to start a process on the port of a killed one: another process may use the port for a moment. */
const PORT_ATTEMPTS = 20;

/** Starts a service's process that ends with the test at the latest, unless it is shared. */
export async function startProcess(
  dataDir: string,
  { port = 0, isShared = false, ...settings }: ProcessOptions = {},
): Promise<ServiceProcess> {
  for (let attempt = 1; ; attempt++) {
    const service = await tryProcess(dataDir, port, isShared, settings);
    if (service !== null) return service;
    if (port === 0 || attempt === PORT_ATTEMPTS) throw new Error("The service's process ended before it listened");
  }
}

async function tryProcess(dataDir: string, port: number, isShared: boolean, settings: HostSettings): Promise<ServiceProcess | null> {
  const args = [await builtProgram(new URL("service-host.ts", import.meta.url)), dataDir, String(port), JSON.stringify(settings)];
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const exited = once(child, "exit");
  const kill = async () => {
    child.kill("SIGKILL");
    await exited;
  };
  if (!isShared) onTestFinished(kill);
  const lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  const first = await lines.next();
  if (first.done === true) return null;
  const halted = async () => {
    if ((await lines.next()).done === true) throw new Error("The service's process ended before it halted");
  };
  return { ...(JSON.parse(first.value) as Address), kill, halted };
}

/** Sends a request that must succeed; a string is sent unchanged. */
export async function send({ url, apiKey }: Address, method: string, path: string, body?: object | string): Promise<any> {
  const response = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${apiKey}`, ...(typeof body === "object" ? { "content-type": "application/json" } : {}) },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`Expected success from ${method} ${path}, got ${response.status}: ${await response.text()}`);
  return response.json();
}

const END = ["training_ended", "training_failed"];

/** The events of a job so far. */
export async function eventsSoFar(service: Address, jobId: string): Promise<JobEvent[]> {
  return (await send(service, "GET", `${RL_JOBS}/${jobId}/events?limit=100`)).data;
}

/** All events of a job, once it is over. */
export async function finishedEvents(service: Address, jobId: string): Promise<JobEvent[]> {
  const events: JobEvent[] = [];
  while (!END.includes(events.at(-1)?.type ?? "")) {
    const after = events.at(-1) === undefined ? "" : `&after=${events.at(-1)?.id}`;
    events.push(...(await send(service, "GET", `${RL_JOBS}/${jobId}/events?limit=100&wait=10${after}`)).data);
  }
  return events;
}

/** A committed artifact of chat examples; its URL. */
export function uploadExamples(service: Address, count: number): Promise<string> {
  const lines = Array.from({ length: count }, (_, index) => {
    const messages = [
      { role: "user", content: `Say the number ${index}` },
      { role: "assistant", content: `${index} `.repeat(1 + (index % 5)) },
    ];
    return { messages };
  });
  return uploadLines(service, "examples", lines);
}

/** A committed artifact of preference pairs; its URL. */
export function uploadPairs(service: Address, count: number): Promise<string> {
  const lines = Array.from({ length: count }, (_, index) => ({
    input: { messages: [{ role: "user", content: `Say the number ${index}` }] },
    preferred_output: [{ role: "assistant", content: `${index} `.repeat(1 + (index % 4)) }],
    non_preferred_output: [{ role: "assistant", content: `not ${index}` }],
  }));
  return uploadLines(service, "pairs", lines);
}

async function uploadLines(service: Address, name: string, lines: readonly object[]): Promise<string> {
  const version = await send(service, "POST", ARTIFACTS, { project: "demo", name });
  await send(service, "PUT", `${ARTIFACTS}/${version.id}/files/train.jsonl`, lines.map((line) => JSON.stringify(line)).join("\n"));
  return (await send(service, "POST", `${ARTIFACTS}/${version.id}/commit`)).url;
}

/**
 * Rollouts of one prompt at temperature 1, as a group; every other one is rewarded.
 *
 * @param nudge - Added to each log-probability, to simulate a sampler with other weights.
 */
export async function rollOut(
  service: Address,
  prompt: string,
  options: { readonly model?: string; readonly n?: number; readonly nudge?: number } = {},
): Promise<object> {
  const { model = BASE, n = 8, nudge = 0 } = options;
  const messages = [{ role: "user", content: prompt }];
  const request = { model, messages, n, max_tokens: 24, temperature: 1, seed: prompt.length, logprobs: true, return_token_ids: true };
  const completion = await send(service, "POST", "/v1/chat/completions", request);
  const trajectories = completion.choices.map((choice: any, index: number) => {
    const content = choice.logprobs.content.map((entry: any) => ({ ...entry, logprob: Math.min(0, entry.logprob + nudge) }));
    const turn = { ...choice, logprobs: { content }, prompt_token_ids: choice.prompt_token_ids ?? completion.prompt_token_ids };
    return { messages_and_choices: [...messages, turn], reward: index % 2 };
  });
  return { trajectories };
}
