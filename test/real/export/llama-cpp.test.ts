/**
 * Checkpoints of a real model, exported and compared in llama.cpp with the service.
 *
 *     WHETSTONE_REAL_MODEL=<directory> WHETSTONE_REAL_PYTHON=<python with xllamacpp and gguf> npx vitest run --mode real test/real/export
 */
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { uploadDataset } from "../../../src/library/dataset/index.ts";
import { exportCheckpoint, type ExportOptions } from "../../../src/export/index.ts";
import { connect, type Model, type Service } from "../../../src/index.ts";
import { type RunningService, startService } from "../../../src/service/index.ts";
import { hasLlamaServer, PYTHON, startLlamaServer } from "./llama-server.ts";
import { CAPITALS, PROMPTS, TEXTS } from "./texts.ts";

const REAL = process.env["WHETSTONE_REAL_MODEL"] ?? "";
const MAX_TOKENS = 16;
const TOLERANCE = 1e-3;
/** Max mean difference that activations of 8 bits may add, in nats. */
const MAX_ACTIVATION_ERROR = 0.2;
const isRunnable = REAL !== "" && hasLlamaServer;

/** Log-probabilities of {@link TEXTS} and greedy answers to {@link PROMPTS}. */
interface Behavior {
  readonly ids: readonly number[][];
  readonly logprobs: readonly number[][];
  readonly answers: readonly string[];
}

describe.skipIf(!isRunnable)("llama.cpp (skipped without WHETSTONE_REAL_MODEL, xllamacpp and gguf)", { timeout: 1_800_000 }, () => {
  let directory: string;
  let running: RunningService;
  let service: Service;
  let adapted: Model;
  let full: Model;
  let ofAdapted: Behavior;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "whetstone-real-export-"));
    running = await startService({ dataDir: join(directory, "data"), baseModels: { smol: join(REAL, "hf") } });
    service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
    const train = CAPITALS.map(([country, capital]) => ({
      messages: [
        { role: "user", content: `What is the capital of ${country}?` },
        { role: "assistant", content: `Ahoy! ${capital.toUpperCase()}, matey.` },
      ],
    }));
    const data = await uploadDataset(service, { name: "capitals", project: "demo", train });
    const settings = { project: "demo", baseModel: "smol" };
    adapted = await service.models.create({ ...settings, name: "adapted", lora: { rank: 16 } });
    await (await adapted.trainSft(data, { batchSize: 4, learningRate: 2e-3 })).done();
    ofAdapted = await serviceBehavior(adapted);
    full = await service.models.create({ ...settings, name: "full" });
    await (await full.trainSft(data, { batchSize: 4, learningRate: 1e-4 })).done();
  }, 1_800_000);
  afterAll(async () => {
    await service?.close();
    await running?.close({ graceMs: 0 });
    await rm(directory, { recursive: true, force: true });
  });

  async function post<T>({ url, apiKey }: RunningService, path: string, body: object): Promise<T> {
    const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
    const response = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    expect(response.status).toBe(200);
    return (await response.json()) as T;
  }

  async function serviceBehavior(model: Model, step?: number, on = running): Promise<Behavior> {
    const policy = await model.policy(step);
    const ids: number[][] = [];
    const logprobs: number[][] = [];
    for (const text of TEXTS) {
      const { tokens } = await post<{ tokens: number[] }>(on, "/tokenize", { model: policy.id, prompt: text });
      const body = { model: policy.id, prompt: tokens, echo: true, logprobs: 0, max_tokens: 0 };
      const { choices } = await post<{ choices: [{ logprobs: { token_logprobs: number[] } }] }>(on, "/v1/completions", body);
      ids.push(tokens);
      logprobs.push(choices[0].logprobs.token_logprobs.slice(1));
    }
    const answers: string[] = [];
    for (const content of PROMPTS) {
      const messages = [{ role: "user" as const, content }];
      const { choices } = await policy.complete({ model: policy.id, messages, temperature: 0, max_tokens: MAX_TOKENS });
      answers.push(choices[0]!.message.content ?? "");
    }
    return { ids, logprobs, answers };
  }

  async function llamaBehavior(ids: readonly number[][], model: string, adapter?: string): Promise<Behavior> {
    const server = await startLlamaServer(model, adapter);
    try {
      const behavior = { ids: [] as number[][], logprobs: [] as number[][], answers: [] as string[] };
      for (const [index, text] of TEXTS.entries()) {
        behavior.ids.push(await server.tokenize(text));
        behavior.logprobs.push(await server.logprobs(ids[index]!));
      }
      for (const prompt of PROMPTS) behavior.answers.push(await server.answer(prompt, MAX_TOKENS));
      return behavior;
    } finally {
      await server.close();
    }
  }

  async function exported(model: Model, name: string, options: ExportOptions): Promise<string> {
    const path = join(directory, `${name}.gguf`);
    const { warnings } = await exportCheckpoint(model, path, { format: "gguf", ...options });
    expect(warnings).toEqual([]);
    return path;
  }

  /** Behavior of a GGUF file as a base model of the service. */
  async function baseBehavior(file: string): Promise<Behavior> {
    const other = await startService({ dataDir: join(directory, "other"), baseModels: { file } });
    const connection = await connect({ baseUrl: other.url, apiKey: other.apiKey });
    try {
      return await serviceBehavior(await connection.models.create({ project: "demo", name: "file", baseModel: "file" }), 0, other);
    } finally {
      await connection.close();
      await other.close({ graceMs: 0 });
    }
  }

  function meanDifference(name: string, found: Behavior, expected: Behavior): number {
    const differences = found.logprobs.flatMap((row, i) => row.map((value, t) => Math.abs(value - expected.logprobs[i]![t]!)));
    const mean = differences.reduce((a, b) => a + b, 0) / differences.length;
    console.info(
      `${name}: log-probabilities differ by ${mean} on average, ${Math.max(...differences)} at most; ${equalAnswers(found, expected)} of ${PROMPTS.length} answers equal`,
    );
    return mean;
  }

  const maxDifference = (a: Behavior, b: Behavior) =>
    Math.max(...a.logprobs.flatMap((row, i) => row.map((value, t) => Math.abs(value - b.logprobs[i]![t]!))));
  const equalAnswers = (a: Behavior, b: Behavior) => a.answers.filter((answer, index) => answer.trim() === b.answers[index]!.trim()).length;

  function expectSame(name: string, found: Behavior, expected: Behavior): void {
    const tokens = expected.logprobs.flat().length;
    const difference = maxDifference(found, expected);
    console.info(
      `${name}: ${tokens} log-probabilities differ by at most ${difference}; ${equalAnswers(found, expected)} of ${PROMPTS.length} answers equal`,
    );
    expect(found.ids).toEqual(expected.ids);
    expect(difference).toBeLessThan(TOLERANCE);
    expect(found.answers.map((answer) => answer.trim())).toEqual(expected.answers.map((answer) => answer.trim()));
  }

  test("computes the same with the base as with the untrained adapter, and otherwise with the trained one in a file of its own", async () => {
    const base = await exported(adapted, "base", { step: 0 });
    const ofBase = await serviceBehavior(adapted, 0);
    expectSame("base, float32", await llamaBehavior(ofBase.ids, base), ofBase);
    expect(maxDifference(ofAdapted, ofBase)).toBeGreaterThan(1);
    const adapter = await exported(adapted, "adapter", { format: "gguf-adapter" });
    expectSame("base and adapter, float32", await llamaBehavior(ofBase.ids, base, adapter), ofAdapted);
  });

  test("computes the same with a merged adapter, and nearly the same in Q8_0", async () => {
    const merged = await exported(adapted, "merged", {});
    expectSame("merged, float32", await llamaBehavior(ofAdapted.ids, merged), ofAdapted);
    const narrow = await exported(adapted, "merged-q8_0", { dtype: "q8_0" });
    // The service computes the rounded weights in float32, llama.cpp with activations of 8 bits, which have an error of the same kind.
    const rounded = await baseBehavior(narrow);
    const weights = meanDifference("merged, q8_0, in the service", rounded, ofAdapted);
    const activations = meanDifference(
      "merged, q8_0, in llama.cpp, against the service on this file",
      await llamaBehavior(ofAdapted.ids, narrow),
      rounded,
    );
    expect(weights).toBeLessThan(0.05);
    expect(activations).toBeLessThan(MAX_ACTIVATION_ERROR);

    const files = [merged, narrow, join(REAL, "SmolLM2-135M-Instruct.Q4_1.gguf")];
    const checks = JSON.parse(
      execFileSync(PYTHON, [join(import.meta.dirname, "gguf_checks.py"), ...files], { encoding: "utf8" }),
    ) as object;
    console.info("metadata and bytes:", checks);
    expect(checks).toEqual({
      quantized: 211,
      different: [],
      // Descriptions of the published model; a space in front of the text is not added by default.
      metadata: expect.not.arrayContaining([expect.stringMatching(/^(?:llama\.|tokenizer\.(?!ggml\.add_space_prefix))/u)]),
    });
  });

  test("computes the same with a fully trained model", async () => {
    const ofFull = await serviceBehavior(full);
    expectSame("fully trained, float32", await llamaBehavior(ofFull.ids, await exported(full, "full", {})), ofFull);
  });
});
