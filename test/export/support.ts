import { execFileSync, spawnSync } from "node:child_process";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { onTestFinished } from "vitest";
import { parseModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../src/engine/onnx/model/safetensors.ts";
import { initialWeights, unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { exportGgufAdapter } from "../../src/export/gguf/adapter.ts";
import { exportGguf, type GgufSource } from "../../src/export/gguf/model.ts";
import { openMergedWeights } from "../../src/export/merged-weights.ts";

export const ORACLE = join(import.meta.dirname, "../oracle");

/** Path of a part of a family in `test/oracle/families`: its model or its adapter. */
export const family = (name: string, part: "model" | "adapter"): string => join(ORACLE, "families", name, part);

/** Values that Hugging Face transformers and PEFT computed for a family. */
export interface Expected {
  readonly rows: number[][];
  /** Log-probability of every token of a row; the first is 0. */
  readonly logprobs: number[][];
  readonly lora: { readonly logprobs: number[][] };
}

export async function gunzipped<T>(path: string): Promise<T> {
  return JSON.parse(gunzipSync(await readFile(join(ORACLE, path))).toString()) as T;
}

/** Returns a new directory that the test removes when it ends. */
export async function scratch(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-export-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** Writes a small Llama model with the tokenizer of a directory and returns its directory. */
export async function modelWithTokenizer(tokenizer: string, files: Readonly<Record<string, object>> = {}): Promise<string> {
  const directory = await scratch();
  await cp(tokenizer, directory, { recursive: true });
  for (const [name, content] of Object.entries(files)) await writeFile(join(directory, name), JSON.stringify(content));
  const raw = JSON.parse(await readFile(join(family("llama3", "model"), "config.json"), "utf8")) as Record<string, unknown>;
  const config = { ...raw, vocab_size: 640 };
  await writeFile(join(directory, "config.json"), JSON.stringify(config));
  const parsed = parseModelConfig(config, "config.json");
  const layout = baseLayout(parsed);
  const weights = initialWeights(parsed, layout, (index) => Math.sin(index));
  await writeSafetensors(join(directory, "model.safetensors"), unpackTensors(weights, layout));
  return directory;
}

/** Exports a model directory, optionally with an adapter, as GGUF, and returns the path of the file and the warnings. */
export async function ggufOf(
  base: string,
  options: { readonly adapter?: string } & Partial<Pick<GgufSource, "dtype" | "preTokenizer">> = {},
): Promise<{ readonly path: string; readonly warnings: readonly string[] }> {
  const { adapter = null, dtype = "float32" } = options;
  const path = join(await scratch(), "model.gguf");
  const weights = await openMergedWeights(base, adapter);
  try {
    const warnings = await exportGguf(path, {
      base,
      weights,
      name: "a model",
      dtype,
      preTokenizer: options.preTokenizer,
      signal: undefined,
    });
    return { path, warnings };
  } finally {
    await weights.close();
  }
}

/** Exports the adapter of a family as GGUF, by default for the family's own model, and returns the path of the file. */
export async function ggufAdapterOf(
  name: string,
  { base = name, dtype = "float32" }: { readonly base?: string; readonly dtype?: GgufSource["dtype"] } = {},
): Promise<string> {
  const path = join(await scratch(), "adapter.gguf");
  const source = { base: family(base, "model"), adapter: family(name, "adapter"), name: "an adapter", dtype, signal: undefined };
  await exportGgufAdapter(path, source);
  return path;
}

/** Python with the package llama-cpp-python. */
const PYTHON = process.env["WHETSTONE_LLAMA_CPP_PYTHON"] ?? "python3";

/** Whether llama.cpp can be run. */
export const hasLlamaCpp = spawnSync(PYTHON, ["-c", "import llama_cpp"]).status === 0;

/** Computes with llama.cpp: log-probabilities of the tokens after the first of each row, and ids of texts. */
export function llamaCpp(request: {
  readonly model: string;
  /** Adapter in a file of its own. */
  readonly lora?: string | undefined;
  readonly vocabulary?: number;
  readonly rows?: readonly (readonly number[])[];
  readonly texts?: readonly string[];
}): { readonly logprobs: number[][]; readonly tokens: [number[], number[]][] } {
  const input = JSON.stringify({ vocabulary: 0, rows: [], texts: [], ...request });
  return JSON.parse(
    execFileSync(PYTHON, [join(import.meta.dirname, "llama_logprobs.py")], { input, encoding: "utf8", maxBuffer: 2 ** 26 }),
  ) as ReturnType<typeof llamaCpp>;
}
