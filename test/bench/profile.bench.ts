/**
 * Time of each compiled program on a GPU, for training steps and sampled batches in this process, without the engine's own process:
 *
 *   npm run bench -- profile [--params 27m] [--train 16:16:256,full:16:256] [--sample 32:64:32] [--steps 3] [--memory 8GB] [--vs torch]
 *     [--kernels]
 *
 * `--train` lists `rank:rows:tokens`, with `full` for every parameter; the second half of each row is trained. `--sample` lists
 * `requests:prompt:tokens`. `--memory` is the memory of the GPU, to which the kept activations of a batch are proportional. `--kernels`
 * adds the time of the GPU per kernel, which slows the runs. Choose a driver with `VK_DRIVER_FILES`.
 *
 * The listed programs have the engine's names, such as `train-cross-entropy`, `adamw`, `decode` or `gather-cache`. Further programs of a
 * name get a number in the order of their compilation: `adamw (2)`.
 */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { InferenceSession } from "onnxruntime-node";
import type { Row } from "../../src/engine/index.ts";
import { DeviceBases } from "../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../src/engine/onnx/sample/device-place.ts";
import { KeysRoom } from "../../src/engine/onnx/sample/keys-room.ts";
import { Sampler } from "../../src/engine/onnx/sample/sampler.ts";
import type { SampledEvent } from "../../src/engine/onnx/sample/request.ts";
import { DeviceTrainer } from "../../src/engine/onnx/train/device-trainer.ts";
import type { SampleInput, SampleResult } from "./sample.bench.ts";
import { deviceBudget } from "../../src/engine/onnx/train/memory-plan.ts";
import { parseBytes } from "../../src/base/util/units.ts";
import {
  hasTorch,
  hasWeights,
  measureInTurn,
  median,
  OptionError,
  printTable,
  requireContext,
  shapeName,
  short,
  wantsTorch,
  whole,
  withShape,
} from "./support.ts";
import { equalRows, type TrainInput, type TrainResult } from "./train.bench.ts";

const ADAM = { learningRate: 1e-3, beta1: 0.9, beta2: 0.99, weightDecay: 0.01, maxGradNorm: 1 };
/** Positions of the rotary tables. */
const POSITIONS = 4096;
/** Programs and kernels that are listed. */
const LISTED = 12;

/** Times in milliseconds by label. */
type Times = Map<string, number[]>;

/** Records the time of every run of every session that is created from now on; returns the times since the last call. */
function watchSessions(kernels: string | null): () => Times {
  let times: Times = new Map();
  const create = InferenceSession.create.bind(InferenceSession) as (model: Uint8Array, options: object) => Promise<InferenceSession>;
  let count = 0;
  const programsOf = new Map<string, number>();
  const watched = async (model: Uint8Array, options: object) => {
    const profile = kernels === null ? {} : { enableProfiling: true, profileFilePrefix: join(kernels, String(count++)) };
    const graph = graphName(model);
    const number = (programsOf.get(graph) ?? 0) + 1;
    programsOf.set(graph, number);
    const name = number === 1 ? graph : `${graph} (${number})`;
    const session = await create(model, { ...options, ...profile });
    const run = session.run.bind(session) as (...args: unknown[]) => ReturnType<InferenceSession["run"]>;
    session.run = async (...args: unknown[]) => {
      const startMs = performance.now();
      const results = await run(...args);
      times.set(name, [...(times.get(name) ?? []), performance.now() - startMs]);
      return results;
    };
    if (kernels !== null) sessions.push(session);
    return session;
  };
  Object.assign(InferenceSession, { create: watched });
  return () => {
    const seen = times;
    times = new Map();
    return seen;
  };
}

const sessions: InferenceSession[] = [];

/** Returns the name of the graph of an ONNX model: field 2 of the `GraphProto`, which is field 7 of the `ModelProto`. */
function graphName(model: Uint8Array): string {
  return new TextDecoder().decode(fieldOf(fieldOf(model, 7), 2));
}

/** Returns the first value of a length-delimited field of a message. */
function fieldOf(message: Uint8Array, field: number): Uint8Array {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [each, type] = reader.tag();
    if (each === field) return reader.bytes();
    reader.skip(type, each);
  }
  throw new Error(`Expected an ONNX model with a named graph, found no field ${field}`);
}

function rowsOf(count: number, length: number): { readonly rows: readonly Row[]; readonly shape: ReturnType<typeof equalRows> } {
  const shape = equalRows(count, length, length - Math.floor(length / 2));
  const weight = 1 / shape.rows.reduce((sum, { trained }) => sum + trained, 0);
  const rows = shape.rows.map(({ tokens, trained }) => ({
    tokens: Int32Array.from(tokens),
    weights: new Float32Array(tokens.length).fill(weight, tokens.length - trained),
  }));
  return { rows, shape };
}

/** Prints the programs that took longest. */
function printPrograms(times: Times): void {
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  const rows = [...times].toSorted(([, a], [, b]) => sum(b) - sum(a)).slice(0, LISTED);
  const head = ["program", "runs", "median, ms", "total, ms"];
  printTable(
    head,
    rows.map(([name, each]) => [name, String(each.length), median(each).toFixed(2), sum(each).toFixed(0)]),
  );
}

/** Prints the time of the GPU per kernel and shape, from the profiles in a directory. */
async function printKernels(directory: string): Promise<void> {
  for (const session of sessions) session.endProfiling();
  const times = new Map<string, { ms: number; runs: number }>();
  for (const file of await readdir(directory)) {
    const events = JSON.parse(await readFile(join(directory, file), "utf8")) as {
      readonly cat: string;
      readonly name: string;
      readonly dur: number;
      readonly args?: { readonly shapes?: string };
    }[];
    for (const { cat, name, dur, args } of events) {
      if (cat !== "Api") continue;
      const key = `${name.split("&").at(-1)} ${args?.shapes ?? ""}`;
      const { ms, runs } = times.get(key) ?? { ms: 0, runs: 0 };
      times.set(key, { ms: ms + dur / 1000, runs: runs + 1 });
    }
  }
  const sum = (part: "ms" | "runs") => [...times.values()].reduce((total, each) => total + each[part], 0);
  const rows = [...times].toSorted(([, a], [, b]) => b.ms - a.ms).slice(0, 3 * LISTED);
  printTable(
    ["kernel", "runs", "total on the GPU, ms"],
    [...rows, ["all kernels", { ms: sum("ms"), runs: sum("runs") }] as const].map(([name, { ms, runs }]) => [
      name,
      String(runs),
      ms.toFixed(1),
    ]),
  );
}

async function torch<T>(program: string, input: object): Promise<T> {
  return (await measureInTurn<T>([{ label: "PyTorch", program: new URL(program, import.meta.url), input }], 1))[0]![0]!;
}

/** Splits a list of three fields each, such as `16:16:256,full:16:256`. @throws OptionError for another number of fields. */
function triples(name: string, text: string, format: string): (readonly [string, string, string])[] {
  return text
    .split(",")
    .filter((item) => item !== "")
    .map((item) => {
      const [first, second, third, ...rest] = item.split(":");
      if (first === undefined || second === undefined || third === undefined || rest.length > 0)
        throw new OptionError(`Expected --${name} to list ${format}, got "${item}"`);
      return [first, second, third];
    });
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "27m" },
      train: { type: "string", default: "16:16:256,full:16:256" },
      sample: { type: "string", default: "32:64:32" },
      steps: { type: "string", default: "3" },
      memory: { type: "string", default: "8GB" },
      vs: { type: "string" },
      kernels: { type: "boolean", default: false },
    },
  });
  const steps = whole("steps", values.steps);
  const memoryBytes = parseBytes(values.memory);
  if (memoryBytes === null) throw new OptionError(`Expected --memory to be a size such as 8GB, got "${values.memory}"`);
  const params = shapeName(values.params);
  const trainTasks = triples("train", values.train, "rank:rows:tokens").map(([trained, rows, tokens]) => ({
    trained,
    rank: trained === "full" ? null : whole("train", trained),
    count: whole("train", rows),
    length: whole("train", tokens, 2),
  }));
  const sampleTasks = triples("sample", values.sample, "requests:prompt:tokens").map(([requests, prompt, tokens]) => ({
    batch: whole("sample", requests),
    prompt: whole("sample", prompt),
    tokens: whole("sample", tokens),
  }));
  for (const { length } of trainTasks) await requireContext(params, length);
  for (const { prompt, tokens } of sampleTasks) await requireContext(params, prompt + tokens);
  const withTorch = wantsTorch(values.vs) && (await hasTorch());
  const kernels = values.kernels ? await mkdtemp(join(tmpdir(), "whetstone-kernels-")) : null;
  const timesOf = watchSessions(kernels);
  try {
    await withShape(params, async (directory) => {
      const memory = new DeviceMemory(webgpu());
      const bases = new DeviceBases(memory, () => POSITIONS);
      const trainer = new DeviceTrainer(memory, bases, deviceBudget(memoryBytes));
      const base = { id: "bench", directory };
      const spec = { seed: 1, ...(hasWeights(params) ? {} : { fresh: true }) };
      const peer = { directory, threads: 1, seconds: steps, device: "cuda" };
      const { signal } = new AbortController();

      for (const { trained, rank, count, length } of trainTasks) {
        const { rows, shape } = rowsOf(count, length);
        const id = await trainer.createModel(base, { ...spec, ...(rank === null ? {} : { lora: { rank } }) });
        const times: number[] = [];
        for (let step = 0; step <= steps; step++) {
          if (step === 1) timesOf();
          const startMs = performance.now();
          await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
          await trainer.optimStep(id, ADAM);
          times.push(performance.now() - startMs);
        }
        await trainer.unload(id);
        const [compiled, ...measured] = times as [number, ...number[]];
        const rate = (ms: number) => `${short((count * length * 1000) / ms)} tokens/s`;
        const ms = median(measured);
        console.log(
          `train ${trained}, ${count} rows of ${length}: ${ms.toFixed(1)} ms/step, ${rate(ms)}; first step ${compiled.toFixed(0)} ms`,
        );
        if (withTorch) {
          const { msPerStep } = await torch<TrainResult>("torch_train.py", { ...peer, rows: shape.rows, rank } satisfies TrainInput);
          console.log(`PyTorch: ${msPerStep.toFixed(1)} ms/step, ${rate(msPerStep)}`);
        }
        printPrograms(timesOf());
      }

      for (const { batch, prompt, tokens } of sampleTasks) {
        const ended = new Map<number, (error?: unknown) => void>();
        const onEvents = (events: readonly SampledEvent[]) => {
          for (const { request, token } of events) if (token.finish) ended.get(request)?.();
        };
        const onError = (requests: readonly number[], error: unknown) => requests.forEach((request) => ended.get(request)?.(error));
        const place = onDevice(memory, bases, new KeysRoom(memory, memoryBytes, trainer));
        const sampler = new Sampler({ threads: 1, maxRows: batch, prefixCacheBytes: 0 }, onEvents, onError, place);
        const id = await trainer.createModel(base, spec);
        await sampler.addPolicy("policy", base, trainer.weights(id));
        let next = 0;
        const one = (row: number) =>
          new Promise<void>((resolve, reject) => {
            const request = next++;
            ended.set(request, (error) => (error === undefined ? resolve() : reject(error as Error)));
            const ids = Int32Array.from({ length: prompt }, (_, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500);
            const params = { maxTokens: tokens, temperature: 1, topP: 1, topK: 0, seed: BigInt(request), stopTokenIds: [], topLogprobs: 0 };
            sampler.add(request, "policy", ids, params);
          });
        const times: number[] = [];
        for (let step = 0; step <= steps; step++) {
          if (step === 1) timesOf();
          const startMs = performance.now();
          await Promise.all(Array.from({ length: batch }, (_, row) => one(row)));
          times.push(performance.now() - startMs);
        }
        sampler.releasePolicy("policy");
        await trainer.unload(id);
        const ms = median(times.slice(1));
        const rate = (total: number) => `${short((batch * tokens * 1000) / total)} tokens/s`;
        console.log(`sample ${batch} requests, ${prompt} + ${tokens} tokens: ${ms.toFixed(0)} ms, ${rate(ms)}`);
        if (withTorch) {
          const input = { ...peer, batches: [batch], prompt, tokens } satisfies SampleInput;
          const [result] = await torch<SampleResult[]>("torch_sample.py", input);
          console.log(`PyTorch: ${result!.ms.toFixed(0)} ms, ${rate(result!.ms)}`);
        }
        printPrograms(timesOf());
      }
    });
    if (kernels !== null) await printKernels(kernels);
  } finally {
    if (kernels !== null) await rm(kernels, { recursive: true, force: true });
  }
  // Sessions of the device keep the process alive.
  process.exit(0);
}
