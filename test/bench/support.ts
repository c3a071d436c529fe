/** Shared parts of the benchmarks: model shapes, alternating fresh processes, medians, tables. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { DeviceInfo } from "../../src/engine/index.ts";
import { writeRandomWeights } from "./random-weights.ts";

const run = promisify(execFile);
export const SHIPPED = join(import.meta.dirname, "../../models/whetstone-tiny");

/** Shapes by the name that `--params` takes: what differs from the shipped model's `config.json`. */
const SHAPES: Readonly<Record<string, object>> = {
  tiny: {},
  "2m": { vocab_size: 1024, hidden_size: 192, intermediate_size: 512, num_attention_heads: 6, num_key_value_heads: 3 },
  "27m": {
    vocab_size: 4096,
    hidden_size: 512,
    intermediate_size: 1408,
    num_hidden_layers: 8,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 64,
  },
  // SmolLM2-135M.
  "135m": {
    vocab_size: 49_152,
    hidden_size: 576,
    intermediate_size: 1536,
    num_hidden_layers: 30,
    num_attention_heads: 9,
    num_key_value_heads: 3,
    head_dim: 64,
    max_position_embeddings: 2048,
    rope_theta: 100_000,
  },
  // Qwen2.5-0.5B.
  "0.5b": {
    architectures: ["Qwen2ForCausalLM"],
    vocab_size: 151_936,
    hidden_size: 896,
    intermediate_size: 4864,
    num_hidden_layers: 24,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    head_dim: 64,
    max_position_embeddings: 32_768,
    rope_theta: 1_000_000,
    rms_norm_eps: 1e-6,
  },
  "qwen3-33m": {
    architectures: ["Qwen3ForCausalLM"],
    vocab_size: 32_768,
    hidden_size: 384,
    intermediate_size: 1152,
    num_hidden_layers: 12,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 64,
    max_position_embeddings: 2048,
    rope_theta: 1_000_000,
  },
};

/** Shapes with a weights file: a base model is then read as a downloaded one is. */
const WITH_WEIGHTS: ReadonlySet<string> = new Set(["0.5b"]);

/** Invalid option of a benchmark. The message states the expected and the received value; `main.ts` prints it without a stack. */
export class OptionError extends Error {
  override readonly name = "OptionError";
}

/** Returns the value of `--params`. @throws OptionError for a name without a shape. */
export function shapeName(text: string): string {
  if (!Object.hasOwn(SHAPES, text))
    throw new OptionError(`Expected --params to be one of ${Object.keys(SHAPES).join(", ")}, got "${text}"`);
  return text;
}

/** Checks that rows of a length fit into the context of a shape. @throws OptionError if they do not. */
export async function requireContext(params: string, tokens: number): Promise<void> {
  const { max_position_embeddings: context } = (await configOf(params)) as { max_position_embeddings: number };
  if (tokens > context)
    throw new OptionError(`Expected rows of at most ${context} tokens, the context of --params ${params}, got ${tokens}`);
}

/** Returns the `config.json` of a shape. */
async function configOf(name: string): Promise<object> {
  const shipped = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as object;
  return { ...shipped, ...SHAPES[shapeName(name)] };
}

/** Whether {@link withShape} writes weights for a shape. */
export const hasWeights = (name: string) => WITH_WEIGHTS.has(name);

/** Calls `body` with a directory that holds the `config.json` of a shape and, for large ones, random weights; others need only a seed. */
export async function withShape<T>(name: string, body: (directory: string) => Promise<T>): Promise<T> {
  const config = await configOf(name);
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    await writeFile(join(directory, "config.json"), JSON.stringify(config));
    if (hasWeights(name)) await writeRandomWeights(directory);
    return await body(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Program of a comparison. Its only argument is a file with the input as JSON. */
export interface Variant {
  readonly label: string;
  /** A `.ts` file, or a `.py` file. */
  readonly program: URL;
  readonly input: object;
  /** Interpreter of `.py` files. @default "python3" */
  readonly python?: string | undefined;
}

/** Runs a variant in a process of its own; the last line it prints is its result. */
async function measure<T>({ program, input, python = "python3" }: Variant): Promise<T> {
  const path = fileURLToPath(program);
  const [command, args] = path.endsWith(".py")
    ? [python, [path]]
    : [process.execPath, ["--conditions=whetstone/source", "--import", "tsx", path]];
  const directory = await mkdtemp(join(tmpdir(), "whetstone-input-"));
  try {
    const file = join(directory, "input.json");
    await writeFile(file, JSON.stringify(input));
    const { stdout } = await run(command, [...args, file]);
    return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as T;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Returns the input of a {@link Variant} in its own process. */
export function variantInput<T>(): T {
  return JSON.parse(readFileSync(process.argv[2]!, "utf8")) as T;
}

/** Every variant once per round, in turn, so that a slow minute of the machine hits all of them; per variant its results. */
export async function measureInTurn<T>(variants: readonly Variant[], rounds: number): Promise<T[][]> {
  const results: T[][] = variants.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [index, variant] of variants.entries()) results[index]!.push(await measure<T>(variant));
  }
  return results;
}

/** Whether `python3` can import torch; says so when it cannot. */
export function hasTorch(): Promise<boolean> {
  return hasPython("torch");
}

/** Whether `python3` can import a module; says so when it cannot. */
export async function hasPython(module: string): Promise<boolean> {
  try {
    await run("python3", ["-c", `import ${module}`]);
    return true;
  } catch {
    console.log(`python3 cannot import ${module}: its side is skipped.\n`);
    return false;
  }
}

/** The middle value; the mean of the two middle ones of an even number. NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle) - 1]!) / 2;
}

/** The value that a share of all values does not exceed. NaN of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? NaN;
}

/** Prints rows as a Markdown table. */
export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]!.length)));
  const line = (cells: readonly string[]) => `| ${cells.map((cell, column) => cell.padEnd(widths[column]!)).join(" | ")} |`;
  console.log(line(head));
  console.log(`|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`);
  for (const row of rows) console.log(line(row));
  console.log("");
}

/** Returns the whole number of an option. @throws OptionError for another text, or a number below `least`. */
export function whole(name: string, text: string, least = 1): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < least)
    throw new OptionError(`Expected --${name} to be a whole number from ${least}, got "${text}"`);
  return value;
}

/** Returns whether `--vs torch` was given. @throws OptionError for another value. */
export function wantsTorch(vs: string | undefined): boolean {
  if (vs === undefined) return false;
  if (vs !== "torch") throw new OptionError(`Expected --vs to be torch, got "${vs}"`);
  return true;
}

/** Returns the value of `--device`. @throws OptionError for another name. */
export function deviceName(text: string): DeviceInfo["name"] {
  if (text === "cpu" || text === "webgpu") return text;
  throw new OptionError(`Expected --device to be cpu or webgpu, got "${text}"`);
}

/** Three significant digits, thousands as `k`. */
export function short(value: number): string {
  return value >= 1000 ? `${Number((value / 1000).toPrecision(3))} k` : String(Number(value.toPrecision(3)));
}

/** Returns the processor time of a process, in clock ticks of 10 ms; NaN where the system does not report it. */
export function processorMs(pid: number): Promise<number> {
  return ticksOf(`/proc/${pid}/stat`);
}

/** Returns the processor time of the main thread of a process, in clock ticks of 10 ms; NaN where the system does not report it. */
export function threadMs(pid: number): Promise<number> {
  return ticksOf(`/proc/${pid}/task/${pid}/stat`);
}

async function ticksOf(path: string): Promise<number> {
  const fields = (await readFile(path, "utf8").catch(() => "")).split(") ")[1]?.split(" ");
  return 10 * (Number(fields?.[11]) + Number(fields?.[12]));
}
