/** A whole service on port 0 with the scripted engine, and small values to send to it. */
import { existsSync, readdirSync } from "node:fs";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { RequestRecord, RunningService } from "../../src/service/index.ts";
import { openStore } from "../../src/service/store/sqlite.ts";
import * as testing from "../../src/testing/index.ts";
import type { ScriptedEngine, ScriptedEngineOptions, TestLogLine, TestServiceOptions } from "../../src/testing/index.ts";
import { choice, group } from "../learner/helpers.ts";
import { testDatabase } from "../support/postgres.ts";
import { modelFiles, writeModel } from "../tokenizer/fixture.ts";

export { choice, group };

export const CONTEXT = 128;
export const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // Tests look into answers of every shape.
  readonly body: any;
}

export interface CallInit {
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
  /** null = no key is sent. */
  readonly key?: string | null;
}

export interface TestService {
  readonly service: RunningService;
  readonly engine: ScriptedEngine;
  readonly log: readonly TestLogLine[];
  readonly requests: readonly RequestRecord[];
  /** A string body is sent as it is. */
  readonly call: (method: string, path: string, body?: unknown, init?: CallInit) => Promise<Answer>;
  /** The same for calls that must succeed: the body alone. */
  readonly ok: (method: string, path: string, body?: unknown, init?: CallInit) => Promise<any>;
}

export async function temporaryDirectory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "whetstone-service-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** A base model named `tiny`, with a tokenizer that the test removes. */
export async function testBase(contextLength = CONTEXT): Promise<NonNullable<ScriptedEngineOptions["bases"]>> {
  const directory = await writeModel();
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const config = modelFiles()["config.json"] as { vocab_size: number };
  return [{ id: "tiny", directory, vocabularySize: config.vocab_size, contextLength, parameters: 1 }];
}

let emptyDatabase: Promise<string> | undefined;

/** Puts the tables of the SQLite database into a data directory: their creation takes a third of the time of a service's first start. */
async function addTables(dataDir: string): Promise<void> {
  emptyDatabase ??= createEmptyDatabase();
  await copyFile(await emptyDatabase, join(dataDir, "whetstone.db"));
}

/** Creates the database that is copied, once for each process of the test runner, and returns its path. */
async function createEmptyDatabase(): Promise<string> {
  const path = join(await mkdtemp(join(tmpdir(), "whetstone-database-")), "whetstone.db");
  const store = await openStore(path);
  await store.destroy();
  return path;
}

/** Starts a service that ends with the test. */
export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const dataDir = options.dataDir ?? (await temporaryDirectory());
  const all = { ...testDatabase(dataDir), ...options, dataDir };
  if (options.dataDir === undefined && all.database === undefined) await addTables(dataDir);
  const service = await testing.startTestService({
    ...all,
    engine: { ...options.engine, bases: options.engine?.bases ?? (await testBase()) },
  });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const { engine, log, requests } = service;
  const call: TestService["call"] = async (method, path, body, init = {}) => {
    const isRaw = typeof body === "string" || body instanceof Uint8Array || body instanceof ReadableStream;
    const key = init.key === undefined ? service.apiKey : init.key;
    const response = await fetch(service.url + path, {
      method,
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(isRaw || body === undefined ? {} : { "content-type": "application/json" }),
        ...init.headers,
      },
      ...(body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify(body), duplex: "half" }),
      ...(init.signal === undefined ? {} : { signal: init.signal }),
    } as RequestInit);
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      // An answer to HEAD has the headers alone.
      body: text !== "" && response.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text,
    };
  };
  return {
    service,
    engine,
    log,
    requests,
    call,
    async ok(method, path, body, init) {
      const answer = await call(method, path, body, init);
      if (answer.status !== 200) {
        const logged = log.filter(({ level }) => level === "error").map((line) => `\n${JSON.stringify(line)}`);
        throw new Error(`Expected 200 from ${method} ${path}, got ${answer.status}: ${JSON.stringify(answer.body)}${logged.join("")}`);
      }
      return answer.body;
    },
  };
}

/** Directory of a checkpoint. On Postgres, its name ends with the fencing token of the job that made it. */
export function statePath(dataDir: string, modelId: string, step: number): string {
  const parent = join(dataDir, "checkpoints", modelId);
  const names = existsSync(parent) ? readdirSync(parent) : [];
  return join(parent, names.find((name) => name.replace(/-\d+$/u, "") === String(step)) ?? String(step));
}

export const MODELS = "/v1/preview/models";
export const RL_JOBS = "/v1/preview/training-jobs";
export const SFT_JOBS = "/v1/preview/sft-training-jobs";
export const PREFERENCE_JOBS = "/v1/preview/preference-training-jobs";
export const ARTIFACTS = "/v1/preview/artifacts";

export function createModel({ ok }: TestService, name = "reverse"): Promise<{ id: string }> {
  return ok("POST", MODELS, { project: "demo", name, base_model: "tiny" });
}

/** A group that can be trained. */
export function goodGroup() {
  return group({ reward: 1, choices: [choice([1, 2, 3], [4, 5])] }, { reward: 0, choices: [choice([1, 2, 3], [6])] });
}

/** A committed artifact version with these files; its URL. */
export async function uploadArtifact(
  { ok }: TestService,
  files: Readonly<Record<string, string | Uint8Array>>,
  name = "data",
): Promise<string> {
  const version = await ok("POST", ARTIFACTS, { project: "demo", name });
  for (const [path, contents] of Object.entries(files)) await ok("PUT", `${ARTIFACTS}/${version.id}/files/${path}`, contents);
  return (await ok("POST", `${ARTIFACTS}/${version.id}/commit`)).url;
}

/** Examples of one turn, each with another answer. */
export function chatExamples(count: number): { readonly messages: { readonly role: "user" | "assistant"; readonly content: string }[] }[] {
  return Array.from({ length: count }, (_, index) => ({
    messages: [
      { role: "user", content: `hello ${index}` },
      { role: "assistant", content: `world ${index}` },
    ],
  }));
}

/** The same as chat lines. */
export function chatLines(count: number): string {
  return chatExamples(count)
    .map((example) => JSON.stringify(example))
    .join("\n");
}

/** Lines with preference pairs, each with other answers. */
export function preferenceLines(count: number): string {
  const message = (role: string, content: string) => [{ role, content }];
  return Array.from({ length: count }, (_, index) => ({
    input: { messages: message("user", `hello ${index}`) },
    preferred_output: message("assistant", `world ${index}`),
    non_preferred_output: message("assistant", `nobody there ${index}`),
  }))
    .map((line) => JSON.stringify(line))
    .join("\n");
}

/** The body of an RL job that can be trained. */
export function rlBody(modelId: string) {
  return { model_id: modelId, trajectory_groups: [goodGroup()] };
}

/** Asks for an RL job that can be trained; its id. */
export async function startRlJob({ ok }: TestService, modelId: string, init?: CallInit): Promise<string> {
  return ((await ok("POST", RL_JOBS, rlBody(modelId), init)) as { id: string }).id;
}

/** Asks for an SFT job on so many chat lines; its id. */
export async function startSftJob(service: TestService, modelId: string, examples: number, settings: object = {}): Promise<string> {
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(examples) });
  return ((await service.ok("POST", SFT_JOBS, { model_id: modelId, training_data_url: url, ...settings })) as { id: string }).id;
}

/** A data directory and base models that several services have one after the other. */
export async function restartable(options: TestServiceOptions = {}): Promise<{
  readonly dataDir: string;
  readonly bases: NonNullable<ScriptedEngineOptions["bases"]>;
  /** Starts the next of them, on an engine of its own. */
  readonly start: (engine?: ScriptedEngineOptions) => Promise<TestService>;
}> {
  const [dataDir, bases] = [await temporaryDirectory(), await testBase()];
  return { dataDir, bases, start: (engine = {}) => startTestService({ ...options, dataDir, engine: { ...engine, bases } }) };
}

/** All events of a job that has ended. */
export async function finishedEvents({ ok }: TestService, jobId: string): Promise<{ id: string; type: string; data: any }[]> {
  const events: { id: string; type: string; data: any }[] = [];
  for (let turn = 0; turn < 100; turn++) {
    const after = events.at(-1) === undefined ? "" : `&after=${events.at(-1)?.id}`;
    const page = await ok("GET", `${RL_JOBS}/${jobId}/events?limit=100&wait=10${after}`);
    events.push(...page.data);
    if (["training_ended", "training_failed"].includes(events.at(-1)?.type ?? "") && !page.has_more) return events;
  }
  throw new Error(`Job ${jobId} did not end`);
}
