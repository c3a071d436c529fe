/**
 * Shapes that the graphs of models declare, compared with the tensors of a run. The runtime reuses a buffer for values of the same declared
 * shape, so a named dimension has one size in a graph.
 */
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { type Graph, liveNodes } from "../../../../src/engine/onnx/graph/graph.ts";
import { writeOnnx } from "../../../../src/engine/onnx/graph/index.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { cpu } from "../../../../src/engine/onnx/runtime/device.ts";
import { loadRuntime, Program, type Tensors } from "../../../../src/engine/onnx/runtime/program.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { ROOT } from "../../../project/files.ts";
import { Harness, params } from "../sample/harness.ts";

/** Models with every kind of norm, positions and window, and one with rows longer than a query block. */
const MODELS = [
  ...["qwen2", "qwen3", "olmo2", "gemma3", "granite4-nope", "phi3-longrope", "smollm3-window"].map(
    (family) => `test/oracle/families/${family}/model`,
  ),
  "models/whetstone-tiny",
];

const tokensOf = (seed: number, length: number) => Int32Array.from({ length }, (_, t) => 1 + ((seed * 7 + t * 5) % 30));

/** Groups of rows with a shared prompt, and rows alone; short and, if the context permits, longer than a query block. */
function rowsFor(contextLength: number): Row[] {
  const row = (prompt: number, own: number, index: number): Row => {
    const tokens = Int32Array.from([...tokensOf(3, prompt), ...tokensOf(index, own)]);
    return { tokens, weights: Float32Array.from(tokens, (_, t) => Number(t > 0 && t >= prompt)) };
  };
  const long = Math.min(150, contextLength - 20);
  return [row(20, 9, 1), row(20, 14, 2), row(20, 11, 3), row(0, 13, 4), row(0, long, 5)];
}

/** Runs a graph with all of its values as outputs, and returns the values with another type or shape than declared. */
async function wrongValues(graph: Graph, feeds: Tensors): Promise<string[]> {
  const lowered = cpu.lower(graph, { packed: [], stored: undefined });
  const values = liveNodes(lowered)
    .flatMap(({ outputs }) => outputs)
    .filter(({ name }) => name !== "");
  const { nodes, inputs, constants, directNames } = lowered;
  const open = { nodes, inputs, constants, directNames, outputs: new Map(values.map((value) => [value.name, value])) } as unknown as Graph;
  const { InferenceSession } = await loadRuntime();
  const session = await InferenceSession.create(writeOnnx(open, "open"), { graphOptimizationLevel: "disabled", logSeverityLevel: 3 });
  const results = await session.run(Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]!])));
  await session.release();
  const sizes = new Map<string, number>();
  return values.flatMap(({ name, shape, dtype }) => {
    const { dims, type } = results[name]!;
    const isRight = shape.every((dim, axis) => {
      if (typeof dim === "string" && !sizes.has(dim)) sizes.set(dim, dims[axis]!);
      return dims[axis] === (typeof dim === "string" ? sizes.get(dim) : dim);
    });
    return isRight && dims.length === shape.length && type === dtype
      ? []
      : [`${name}: ${dtype} [${shape.join()}], got ${type} [${dims.join()}]`];
  });
}

test.each(MODELS)("%s: training and sampling compute the declared shapes", async (directory) => {
  const graphs = new Map<Program, { readonly graph: Graph; readonly name: string }>();
  const checked: string[] = [];
  const wrong: string[] = [];
  const { compile } = Program;
  const { run } = Program.prototype;
  const compiling = vi.spyOn(Program, "compile").mockImplementation(async (graph, name, options) => {
    const program = await compile.call(Program, graph, name, options);
    graphs.set(program, { graph, name });
    return program;
  });
  const running = vi.spyOn(Program.prototype, "run").mockImplementation(async function (this: Program, feeds, fetches) {
    const compiled = graphs.get(this);
    if (compiled !== undefined) {
      graphs.delete(this);
      checked.push(compiled.name);
      wrong.push(...(await wrongValues(compiled.graph, feeds)).map((text) => `${compiled.name}: ${text}`));
    }
    return run.call(this, feeds, fetches);
  });
  onTestFinished(() => {
    compiling.mockRestore();
    running.mockRestore();
  });
  const base = { id: "base", directory: join(ROOT, directory) };
  const { contextLength } = await readModelConfig(base.directory);
  const trainer = new Trainer({ threads: 1 });
  const { signal } = new AbortController();
  for (const lora of [undefined, { rank: 2 }]) {
    const id = await trainer.createModel(base, { seed: 1, ...(lora === undefined ? {} : { lora }) });
    await trainer.forwardBackward(id, rowsFor(contextLength), { kind: "cross-entropy" }, signal);
    const { sampler, run: sample } = await start();
    await sampler.addPolicy("p", base, lora === undefined ? null : trainer.weights(id));
    await Promise.all([5, 21, 40].map((length) => sample(tokensOf(length, length))));
    await trainer.unload(id);
  }
  expect(wrong).toEqual([]);
  expect(new Set(checked)).toEqual(new Set(["train-cross-entropy", "prompt", "decode"]));
});

async function start() {
  const harness = new Harness();
  return { sampler: harness.sampler, run: (prompt: Int32Array) => harness.run(prompt, params(1, { maxTokens: 3 })) };
}
