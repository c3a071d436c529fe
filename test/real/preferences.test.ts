/**
 * Three steps of a preference job on all parameters of SmolLM2-135M-Instruct, against TRL's DPOTrainer in float32:
 * `WHETSTONE_REAL_MODEL=<directory> npx vitest run --mode real test/real/preferences`. `preferences.py` wrote the values.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/index.ts";
import { uploadPreferences, type PreferencePair } from "../../src/library/dataset/index.ts";
import { type RunningService, startService } from "../../src/service/index.ts";

interface Expected {
  readonly config: { readonly beta: number; readonly learning_rate: number; readonly epochs: number; readonly batch_size: number };
  readonly pairs: readonly PreferencePair[];
  readonly steps: readonly Readonly<Record<string, number>>[];
}

const directory = process.env["WHETSTONE_REAL_MODEL"];
if (directory === undefined) throw new Error("Expected WHETSTONE_REAL_MODEL, the directory of the model files");
const { config, pairs, steps } = JSON.parse(readFileSync(join(import.meta.dirname, "preferences.json"), "utf8")) as Expected;
const dataDir = mkdtempSync(join(tmpdir(), "whetstone-preferences-"));
const HOUR = 3_600_000;

let running: RunningService;
beforeAll(async () => {
  running = await startService({ baseModels: { smollm2: join(directory, "hf") }, dataDir, port: 0 });
});
afterAll(async () => {
  await running.close();
  rmSync(dataDir, { recursive: true, force: true });
});

test("loss, rewards, log-probabilities and gradient norm of every step agree", { timeout: HOUR }, async () => {
  await using service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
  const model = await service.models.create({ project: "real", name: "preferences", baseModel: "smollm2" });
  const { beta, learning_rate: learningRate, epochs, batch_size: batchSize } = config;
  const data = await uploadPreferences(service, { name: "pairs", train: pairs });
  const job = await model.trainPreferences(data, { beta, learningRate, epochs, batchSize });
  const found: Readonly<Record<string, number>>[] = [];
  for await (const event of job.events()) if (event.type === "gradient-step") found.push(event.metrics);
  expect(found).toHaveLength(steps.length);
  const differences: Record<string, number[]> = {};
  for (const [index, step] of steps.entries())
    for (const [name, value] of Object.entries(step))
      (differences[name] ??= []).push(Math.abs(found[index]![name]! - value) / Math.max(1, Math.abs(value)));
  console.log("differences by step", differences);
  // PyTorch computes the norm of the largest tensor in float32.
  for (const [name, values] of Object.entries(differences))
    expect(Math.max(...values), name).toBeLessThan(name === "grad_norm" ? 1e-4 : 1e-5);
});
