/**
 * Training, sampling and the gaps of a live stream on each available device: the processor, and the GPU that WebGPU selects.
 *
 *   npm run bench -- device [--params tiny|2m|27m|135m|0.5b] [--steps 3] [--lora 16] [--rows 4] [--prompt 32] [--tokens 16] [--batch 1,8,32,128]
 *     [--device cpu,webgpu] [--vs torch]
 *
 * `--rows` rows per step, either a group on one prompt or single rows. Training includes clipping and AdamW. `--vs torch` adds PyTorch on the
 * processor, and on the GPU (CUDA or MPS) if there is a hardware adapter. Choose a driver with `VK_DRIVER_FILES`, such as SwiftShader's, with which
 * a step of the smallest model takes ten seconds; the defaults there are `--steps 1 --batch 1,8`.
 */
import { execFile } from "node:child_process";
import { availableParallelism } from "node:os";
import { parseArgs, promisify } from "node:util";
import type { DeviceInfo, DeviceUse } from "../../src/engine/index.ts";
import { isSoftware } from "../../src/engine/onnx/threads/compute-unit.ts";
import type { SampleInput, SampleResult } from "./sample.bench.ts";
import {
  deviceName,
  hasTorch,
  measureInTurn,
  printTable,
  requireContext,
  shapeName,
  SHIPPED,
  short,
  wantsTorch,
  whole,
  withShape,
} from "./support.ts";
import { equalRows, rolloutRows, type TrainInput, type TrainResult, type TrainShape } from "./train.bench.ts";

type DeviceName = DeviceInfo["name"];

/** Input of `device-engine.ts`. */
export interface DeviceInput {
  readonly directory: string;
  readonly device: DeviceName;
  readonly task:
    | { readonly kind: "probe" }
    | { readonly kind: "training"; readonly shapes: readonly TrainShape[]; readonly rank: number | null; readonly steps: number }
    | {
        readonly kind: "sampling";
        readonly batches: readonly number[];
        readonly prompt: number;
        readonly tokens: number;
        readonly steps: number;
      }
    | { readonly kind: "stream"; readonly shape: TrainShape; readonly prompt: number; readonly steps: number };
}

/** Training of one shape. */
export interface StepResult {
  /** Median of the steps. */
  readonly msPerStep: number;
  /** Use of the device by the last gradient pass; null on the processor. */
  readonly device: DeviceUse | null;
}

/** Gaps between the tokens of a stream, in milliseconds. */
export interface GapResult {
  readonly idle: GapFigures;
  readonly training: GapFigures;
}

interface GapFigures {
  readonly median: number;
  readonly p99: number;
  readonly max: number;
}

/** Output of `device-engine.ts`. */
export type DeviceReport =
  | { readonly missing: string }
  | {
      readonly device: DeviceInfo;
      readonly training?: readonly StepResult[];
      /** Median time of a batch, in milliseconds, per batch size. */
      readonly sampling?: readonly number[];
      readonly stream?: GapResult;
    };

/** PyTorch's side of a table. */
type TorchDevice = "cpu" | "cuda" | "mps";

async function runEngine(input: DeviceInput): Promise<DeviceReport> {
  const variant = { label: "whetstone", program: new URL("device-engine.ts", import.meta.url), input };
  return (await measureInTurn<DeviceReport>([variant], 1))[0]![0]!;
}

/** Opens a device in another process; returns the reason if that fails. */
export async function probeDevice(device: DeviceName): Promise<DeviceInfo | string> {
  const report = await runEngine({ directory: SHIPPED, device, task: { kind: "probe" } });
  return "missing" in report ? report.missing : report.device;
}

async function runOnDevice(input: DeviceInput): Promise<Exclude<DeviceReport, { missing: string }>> {
  const report = await runEngine(input);
  if ("missing" in report) throw new Error(report.missing);
  return report;
}

async function runTorch<T>(program: string, input: object): Promise<T> {
  return (await measureInTurn<T>([{ label: "PyTorch", program: new URL(program, import.meta.url), input }], 1))[0]![0]!;
}

/** Returns the device on which PyTorch computes next to a device of the engine; null if PyTorch has no such device. */
async function torchDeviceFor(device: DeviceInfo): Promise<TorchDevice | null> {
  if (device.name === "cpu") return "cpu";
  if (isSoftware(device)) return null;
  const question = "import torch; print('cuda' if torch.cuda.is_available() else 'mps' if torch.backends.mps.is_available() else 'cpu')";
  const { stdout } = await promisify(execFile)("python3", ["-c", question]);
  const found = stdout.trim() as TorchDevice;
  return found === "cpu" ? null : found;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "tiny" },
      steps: { type: "string" },
      lora: { type: "string", default: "16" },
      rows: { type: "string", default: "4" },
      prompt: { type: "string", default: "32" },
      tokens: { type: "string", default: "16" },
      batch: { type: "string" },
      device: { type: "string", default: "cpu,webgpu" },
      vs: { type: "string" },
    },
  });
  const [rank, count] = [whole("lora", values.lora), whole("rows", values.rows)];
  const [prompt, tokens] = [whole("prompt", values.prompt), whole("tokens", values.tokens)];
  const names = values.device.split(",").map(deviceName);
  const params = shapeName(values.params);
  await requireContext(params, prompt + tokens);
  const givenSteps = values.steps === undefined ? null : whole("steps", values.steps);
  const givenBatches = values.batch === undefined ? null : values.batch.split(",").map((text) => whole("batch", text));
  const shapes = [rolloutRows(1, count, prompt, Math.ceil(tokens / 2), tokens), equalRows(count, prompt + tokens, tokens)];
  const withTorch = wantsTorch(values.vs) && (await hasTorch());
  console.log(`${params} parameters, medians of steps, after one step that compiles the graphs\n`);
  await withShape(params, async (directory) => {
    const sides: { readonly device: DeviceInfo; readonly torch: TorchDevice | null }[] = [];
    for (const name of names) {
      const device = await probeDevice(name);
      if (typeof device === "string") console.log(`${device}\n`);
      else sides.push({ device, torch: withTorch ? await torchDeviceFor(device) : null });
    }
    if (sides.length === 0) return;
    const title = ({ name, adapter }: DeviceInfo) => adapter ?? name;
    for (const { device, torch } of sides) {
      const trainingRows: string[][] = [];
      const samplingRows: string[][] = [];
      const streamRows: string[][] = [];
      const steps = givenSteps ?? (isSoftware(device) ? 1 : 3);
      const batches = givenBatches ?? (isSoftware(device) ? [1, 8] : [1, 8, 32, 128]);
      const measure = (task: DeviceInput["task"]) => runOnDevice({ directory, device: device.name, task });
      const forTorch = { directory, threads: availableParallelism(), seconds: steps, device: torch };
      for (const trained of [null, rank]) {
        const { training } = await measure({ kind: "training", shapes, rank: trained, steps });
        for (const [at, { label, rows }] of shapes.entries()) {
          const { msPerStep, device: use } = training![at]!;
          const total = rows.reduce((sum, row) => sum + row.tokens.length, 0);
          const input = { ...forTorch, rows, rank: trained } satisfies TrainInput;
          const peer = torch === null ? null : await runTorch<TrainResult>("torch_train.py", input);
          trainingRows.push([
            title(device),
            trained === null ? "every parameter" : `an adapter of rank ${trained}`,
            label,
            short((total * 1000) / msPerStep),
            msPerStep.toFixed(0),
            use === null ? "–" : `${kilobytes(use.uploadedBytes)} / ${kilobytes(use.downloadedBytes)}`,
            use === null ? "–" : (use.bytes / 1e6).toFixed(1),
            peer === null ? "–" : short((total * 1000) / peer.msPerStep),
          ]);
        }
      }
      const head = ["device", "trains", "rows", "tokens/s", "ms/step", "KB up / down", "device memory, MB", "PyTorch, tokens/s"];
      printTable(head, trainingRows);
      const { sampling } = await measure({ kind: "sampling", batches, prompt, tokens, steps });
      const input = { ...forTorch, batches, prompt, tokens } satisfies SampleInput;
      const peers = torch === null ? null : await runTorch<SampleResult[]>("torch_sample.py", input);
      for (const [at, batch] of batches.entries()) {
        const rate = (ms: number) => short((batch * tokens * 1000) / ms);
        samplingRows.push([title(device), String(batch), rate(sampling![at]!), peers === null ? "–" : rate(peers[at]!.ms)]);
      }
      printTable(["device", "batch", "tokens/s", "PyTorch, tokens/s"], samplingRows);
      const { stream } = await measure({ kind: "stream", shape: shapes[0]!, prompt, steps });
      for (const [during, gaps] of [["nothing else", stream!.idle] as const, ["training steps", stream!.training] as const])
        streamRows.push([title(device), during, ...[gaps.median, gaps.p99, gaps.max].map((ms) => ms.toFixed(1))]);
      printTable(["device", "one stream during", "median gap, ms", "p99, ms", "max, ms"], streamRows);
    }
  });
}

function kilobytes(bytes: number): string {
  return (bytes / 1000).toFixed(1);
}
