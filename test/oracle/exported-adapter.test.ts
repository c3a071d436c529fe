/** An adapter that was trained and saved here, against what Hugging Face PEFT computes with the same files. */
import { cp, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOnnxEngine } from "../../src/engine/index.ts";
import { readSafetensors } from "../support/safetensors.ts";
import type { Engine, Row } from "../../src/engine/port.ts";

interface Expected {
  readonly rows: number[][];
  readonly logprobs: number[][];
  /** The distribution after the last token of each row. */
  readonly last: number[][];
  /** Largest change of a log-probability by the adapter. */
  readonly change: number;
}

const ADAPTER = join(import.meta.dirname, "exported-adapter");
const LORA = { rank: 4, alpha: 6 };
let engine: Engine;
let scratch: string;
let expected: Expected;

beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), "whetstone-exported-"));
  engine = await createOnnxEngine({ baseModels: { llama3: join(import.meta.dirname, "families/llama3/model") }, trainerThreads: 1 });
  if (process.env["WHETSTONE_WRITE_ADAPTER"] === "1") await cp(await trainAndSave(), ADAPTER, { recursive: true });
  expected = JSON.parse(await readFile(join(ADAPTER, "expected.json"), "utf8").catch(() => "null")) as Expected;
});
afterAll(async () => {
  await engine.close();
  await rm(scratch, { recursive: true, force: true });
});

const rowOf = (tokens: readonly number[]): Row => ({
  tokens: Int32Array.from(tokens),
  weights: Float32Array.from(tokens, (_, t) => (t === 0 ? 0 : 1 / tokens.length)),
});

/** Some steps on some rows, then the files that the service's archive has. */
async function trainAndSave(): Promise<string> {
  const model = await engine.createModel({ base: "llama3", lora: LORA, seed: 5 });
  const rows = [0, 1, 2].map((start) => rowOf(Array.from({ length: 16 }, (_, t) => (start + 7 * t + t * t) % 48)));
  for (let step = 0; step < 6; step++) {
    await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
    await engine.optimStep(model, { learningRate: 0.03, maxGradNorm: 1 });
  }
  const directory = await mkdtemp(join(scratch, "saved-"));
  await engine.saveState(model, directory);
  await engine.unload(model);
  for (const name of ["optimizer.safetensors", "state.json"]) await rm(join(directory, name));
  return directory;
}

test("PEFT loads it and computes the same log-probabilities", async () => {
  expect(expected.change).toBeGreaterThan(0.1);
  const model = await engine.createModel({ base: "llama3", lora: LORA, from: ADAPTER, seed: 0 });
  // One token more, so that the distribution after the last token is asked for too: over all of the vocabulary, one row each.
  for (const [index, tokens] of expected.rows.entries()) {
    const [logprobs] = await engine.forward(model, [rowOf(tokens)]);
    tokens.forEach((_, t) => expect(Math.abs(logprobs![t]! - expected.logprobs[index]![t]!)).toBeLessThan(1e-4));
    const next = expected.last[index]!.map((_, id) => rowOf([...tokens, id]));
    const after = await engine.forward(model, next);
    after.forEach((row, id) => expect(Math.abs(row.at(-1)! - expected.last[index]![id]!)).toBeLessThan(1e-4));
  }
  await engine.unload(model);
});

test("it is what training makes today", async () => {
  const [made, kept] = await Promise.all(
    [trainAndSave(), ADAPTER].map(async (path) => readSafetensors(join(await path, "adapter_model.safetensors"))),
  );
  expect([...made!.tensors.keys()]).toEqual([...kept!.tensors.keys()]);
  for (const [name, { shape, data }] of kept!.tensors) {
    expect(made!.tensors.get(name)?.shape).toEqual(shape);
    made!.tensors.get(name)!.data.forEach((value, at) => expect(Math.abs(value - data[at]!), name).toBeLessThan(1e-4));
  }
});
