import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ADAPTER_FILE } from "../../../../src/engine/onnx/model/peft.ts";
import { writeSafetensors, type NamedTensor } from "../../../../src/engine/onnx/model/safetensors.ts";
import { readSafetensors } from "../../../support/safetensors.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import type { Row } from "../../../../src/engine/port.ts";

const FAMILY = join(import.meta.dirname, "../../../oracle/families/llama3");
const base = { id: "llama3", directory: join(FAMILY, "model") };
const lora = { rank: 3, alpha: 5 };
const signal = new AbortController().signal;
const trainer = new Trainer({ threads: 1 });
let scratch: string;
let rows: Row[];
let expected: number[][];

beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), "whetstone-peft-"));
  const oracle = JSON.parse(gunzipSync(await readFile(join(FAMILY, "expected.json.gz"))).toString());
  rows = (oracle.rows as number[][]).map((tokens) => ({
    tokens: Int32Array.from(tokens),
    weights: Float32Array.from(tokens, (_, t) => (t === 0 ? 0 : 1)),
  }));
  expected = oracle.lora.logprobs;
});
afterAll(() => rm(scratch, { recursive: true, force: true }));

const tensorsOf = async (): Promise<NamedTensor[]> => {
  const { tensors } = await readSafetensors(join(FAMILY, "adapter", ADAPTER_FILE));
  return [...tensors].map(([name, tensor]) => ({ name, ...tensor }));
};

/** A directory with these tensors alone, as PEFT saves it. */
async function foreign(tensors: readonly NamedTensor[]): Promise<string> {
  const directory = await mkdtemp(join(scratch, "adapter-"));
  await writeSafetensors(join(directory, ADAPTER_FILE), tensors, { format: "pt" });
  return directory;
}

const logprobsOf = async (from: string): Promise<number[][]> => {
  const id = await trainer.createModel(base, { lora, from, seed: 7 });
  return (await trainer.forward(id, rows, signal)).map((row) => [...row]);
};

const close = (actual: number[][], wanted: number[][]) =>
  actual.forEach((row, index) => row.forEach((value, t) => expect(value).toBeCloseTo(wanted[index]![t]!, 4)));

describe("an adapter that PEFT saved", () => {
  it("loads with PEFT's log-probabilities", async () => {
    close(await logprobsOf(join(FAMILY, "adapter")), expected);
  });

  it("may adapt only some layers; the others start as the base and can be trained", async () => {
    const all = await tensorsOf();
    const isQuery = ({ name }: NamedTensor) => name.includes("q_proj");
    const some = await foreign(all.filter(isQuery));
    const silenced = await foreign(
      all.map((tensor) =>
        isQuery(tensor) || !tensor.name.includes("lora_B") ? tensor : { ...tensor, data: new Float32Array(tensor.data.length) },
      ),
    );
    expect(await logprobsOf(some)).toEqual(await logprobsOf(silenced));
    const id = await trainer.createModel(base, { lora, from: some, seed: 7 });
    const before = Float32Array.from(trainer.weights(id).flat);
    for (let step = 0; step < 2; step++) {
      await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
      await trainer.optimStep(id, { learningRate: 0.1 });
    }
    const after = trainer.weights(id).flat;
    // Every matrix has moved, the untouched ones too: none of them was left at 0 on both sides.
    const moved = after.filter((value, index) => value !== before[index]).length;
    expect(moved).toBeGreaterThan(0.95 * before.filter((value) => value !== 0).length);
  });

  it("is rejected with the name of a tensor that does not fit, and does not change the model", async () => {
    const all = await tensorsOf();
    const [first, ...rest] = all;
    const id = await trainer.createModel(base, { lora, from: join(FAMILY, "adapter"), seed: 7 });
    for (const [tensors, message] of [
      [rest, first!.name],
      [[...rest, { ...first!, name: "base_model.model.lm_head.lora_A.weight" }], "lm_head"],
      [[...rest, { ...first!, shape: [1, first!.data.length] }], "of shape"],
    ] as const) {
      const directory = await foreign(tensors as NamedTensor[]);
      await expect(trainer.loadState(id, directory)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining(message) });
    }
    close(
      (await trainer.forward(id, rows, signal)).map((row) => [...row]),
      expected,
    );
  });
});
