/**
 * Peak memory of training steps on the processor or on a GPU, each shape in a separate process.
 *
 *   npm run bench -- memory [--params 2m] [--device cpu|webgpu] [--rows 8 --tokens 256] [--lora 16] [--steps 2] [--threads 2]
 *
 * `--rows`, `--tokens` and `--lora` select one shape instead of the default ones; without `--lora`, every parameter is trained. `--steps`
 * applies to all shapes, `--threads` to the processor. Every token but the first of a row is trained. The plan of a batch on a GPU assumes
 * the default memory of 8 GB. `--params 0.5b` needs 5 GB of memory, and 1 GB of disk for the weights that it reads. Choose a driver of the
 * GPU with `VK_DRIVER_FILES`.
 */
import { parseArgs } from "node:util";
import type { DeviceInfo } from "../../src/engine/index.ts";
import { isSoftware } from "../../src/engine/onnx/threads/compute-unit.ts";
import { probeDevice } from "./device.bench.ts";
import { watchGpuMemory } from "./gpu-memory.ts";
import { deviceName, hasWeights, measureInTurn, OptionError, printTable, requireContext, shapeName, whole, withShape } from "./support.ts";

/** Input of `memory-engine.ts`. */
export interface MemoryInput {
  readonly directory: string;
  readonly device: DeviceInfo["name"];
  readonly rows: number;
  readonly tokens: number;
  /** Threads of the processor. */
  readonly threads: number;
  /** Rank of the adapter; null trains every parameter. */
  readonly rank: number | null;
  readonly steps: number;
  /** Whether weights are made from a seed instead of read. */
  readonly fresh: boolean;
}

/** Output of `memory-engine.ts`, in 10⁶ bytes. */
export interface MemoryResult {
  /** Resident memory of the process after loading, and its peak until then. */
  readonly loadedMb: number;
  readonly loadPeakMb: number;
  /** Peak of the resident memory of the process. */
  readonly peakMb: number;
  /** Tensors in the memory of the device; null on the processor. */
  readonly tensors: {
    /** After loading. */
    readonly loadedMb: number;
    /** After the last step. */
    readonly trainedMb: number;
    /** Largest value at any time. */
    readonly peakMb: number;
  } | null;
}

/** Rows of a step. */
type Shape = Pick<MemoryInput, "rows" | "tokens" | "rank" | "steps">;

/** Shapes that are measured by default. The last two have 4,096 tokens each. */
export const SHAPES: readonly Shape[] = [
  { rows: 8, tokens: 256, rank: null, steps: 4 },
  { rows: 8, tokens: 256, rank: 16, steps: 4 },
  { rows: 16, tokens: 256, rank: null, steps: 4 },
  { rows: 4, tokens: 1024, rank: null, steps: 4 },
];

/** Shapes of large models. */
const LARGE: Readonly<Record<string, readonly Shape[]>> = {
  "135m": [
    { rows: 8, tokens: 256, rank: null, steps: 2 },
    { rows: 8, tokens: 256, rank: 16, steps: 2 },
  ],
  "0.5b": [{ rows: 2, tokens: 1024, rank: 16, steps: 2 }],
};

/** Settings of {@link measureMemory}. */
interface MemorySettings extends Pick<MemoryInput, "device" | "threads"> {
  /** Shape of the model, as `--params` names it. */
  readonly params: string;
  readonly shapes: readonly Shape[];
  /** Whether to read the memory of the GPU with `nvidia-smi`. */
  readonly readsGpu: boolean;
}

/** Memory of one shape. */
interface MemoryLine extends MemoryResult {
  /** Growth of the used memory of the GPU, in 10⁶ bytes; null on the processor and without `nvidia-smi`. */
  readonly gpuMb: number | null;
}

/** Measures steps of each shape, each in a process of its own. */
export function measureMemory({ params, shapes, readsGpu, ...place }: MemorySettings): Promise<MemoryLine[]> {
  const program = new URL("memory-engine.ts", import.meta.url);
  return withShape(params, async (directory) => {
    const lines: MemoryLine[] = [];
    for (const shape of shapes) {
      const input: MemoryInput = { directory, fresh: !hasWeights(params), ...place, ...shape };
      const measure = async () => (await measureInTurn<MemoryResult>([{ label: "whetstone", program, input }], 1))[0]![0]!;
      const { result, gpuMb } = readsGpu ? await watchGpuMemory(measure) : { result: await measure(), gpuMb: null };
      lines.push({ ...result, gpuMb });
    }
    return lines;
  });
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "2m" },
      device: { type: "string", default: "cpu" },
      rows: { type: "string" },
      tokens: { type: "string" },
      lora: { type: "string" },
      steps: { type: "string" },
      threads: { type: "string" },
    },
  });
  const [params, name] = [shapeName(values.params), deviceName(values.device)];
  if (name === "webgpu" && values.threads !== undefined)
    throw new OptionError(`Expected --threads only with --device cpu, got "${values.threads}" with --device webgpu`);
  const threads = whole("threads", values.threads ?? "2");
  const steps = values.steps === undefined ? {} : { steps: whole("steps", values.steps) };
  const shapes = shapesOf(params, values).map((shape) => ({ ...shape, ...steps }));
  await requireContext(params, Math.max(...shapes.map(({ tokens }) => tokens)));
  const device: DeviceInfo | string = name === "cpu" ? { name, adapter: null } : await probeDevice(name);
  if (typeof device === "string") {
    console.error(device);
    process.exitCode = 1;
    return;
  }
  const isOnSoftware = isSoftware(device);
  console.log(`Training steps, ${params} parameters, ${name === "cpu" ? `${threads} threads` : (device.adapter ?? name)}\n`);
  const lines = await measureMemory({ params, device: name, threads, shapes, readsGpu: name === "webgpu" && !isOnSoftware });
  console.log(`${aboutProcess(name, isOnSoftware)}:\n`);
  print(
    shapes,
    ["peak while loading, MB", "after loading, MB", "peak beyond that, MB", "peak in all, MB"],
    lines.map(({ loadPeakMb, loadedMb, peakMb }) => [loadPeakMb, loadedMb, peakMb - loadedMb, peakMb]),
  );
  if (name === "cpu") return;
  const hasGpu = lines.some(({ gpuMb }) => gpuMb !== null);
  console.log(
    `Memory of the device. Tensors are what the engine holds: weights, gradients, moments and reused buffers, without the values that the runtime allocates while a graph runs.${hasGpu ? " GPU is the growth of its used memory in nvidia-smi since before the process started, by all processes." : ""}\n`,
  );
  print(
    shapes,
    ["tensors after loading, MB", "tensors after the last step, MB", "peak of the tensors, MB", ...(hasGpu ? ["peak of the GPU, MB"] : [])],
    lines.map(({ tensors, gpuMb }) => {
      const { loadedMb, trainedMb, peakMb } = tensors!;
      return [loadedMb, trainedMb, peakMb, ...(hasGpu ? [gpuMb] : [])];
    }),
  );
}

/** Returns the shape of `--rows`, `--tokens` and `--lora`, or the default shapes without these options. */
function shapesOf(params: string, { rows, tokens, lora }: Readonly<Partial<Record<"rows" | "tokens" | "lora", string>>>): readonly Shape[] {
  if (rows === undefined && tokens === undefined && lora === undefined) return LARGE[params] ?? SHAPES;
  const rank = lora === undefined ? null : whole("lora", lora);
  return [{ rows: whole("rows", rows ?? "8"), tokens: whole("tokens", tokens ?? "256", 2), rank, steps: 2 }];
}

/** Returns the meaning of the resident memory of the process. */
function aboutProcess(device: DeviceInfo["name"], isOnSoftware: boolean): string {
  const resident = "Resident memory of the process that trains, with the code of the engine and the compiled graphs";
  if (device === "cpu") return resident;
  return isOnSoftware
    ? `${resident}. This adapter computes on the processor, so it includes the memory of the device`
    : `${resident}. It does not include the memory of the GPU, unless the GPU shares the memory of the processor`;
}

/** Prints a table with one line per shape. */
function print(shapes: readonly Shape[], head: readonly string[], lines: readonly (readonly (number | null)[])[]): void {
  printTable(
    ["rows × tokens", "trained", ...head],
    shapes.map(({ rows, tokens, rank }, index) => [
      `${rows} × ${tokens}`,
      rank === null ? "every parameter" : `adapter of rank ${rank}`,
      ...lines[index]!.map((mb) => (mb === null ? "–" : mb.toFixed(0))),
    ]),
  );
}
