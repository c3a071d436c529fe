/**
 * Saved training state: weights or adapter, moments, and step count.
 *
 * `model.safetensors` has Hugging Face names; `adapter_model.safetensors` with `adapter_config.json` has PEFT names.
 * `optimizer.safetensors` has the moments as flat vectors. `state.json` has the base, the adapter's shape and the step count.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../../../base/errors.ts";
import { OPTIMIZER_FILE } from "../../port.ts";
import { pathExists } from "../../../base/util/file-system-error.ts";
import type { ModelConfig } from "./config.ts";
import { type Adapter, adapterLayout, baseLayout, type Layout } from "./parameters.ts";
import { reasonOf } from "../../../base/util/regular-file.ts";
import { ADAPTER_CONFIG_FILE, ADAPTER_FILE, readForeignAdapter } from "./peft.ts";
import { openSafetensors, type OpenSafetensors, writeSafetensors } from "./safetensors.ts";
import { WEIGHTS_FILE } from "./weight-source.ts";
import { readWeights, readWeightsInto, unpackTensors } from "./weights.ts";
import { first } from "../../../base/util/values.ts";

/** Version of the directory format. */
const FORMAT = 1;
/** Name of the file with the step count; see {@link StateFile}. */
const STATE_FILE = "state.json";

/** Base, adapter and layout that a state must match. */
export interface StateIdentity {
  readonly base: string;
  readonly lora: Adapter | null;
  readonly layout: Layout;
}

/** Vectors of a state: parameters, first and second moments, and the step count. */
export interface StateVectors {
  readonly parameters: Float32Array;
  readonly first: Float32Array;
  readonly second: Float32Array;
  step: number;
}

/** Contents of `state.json`. */
export interface StateFile {
  readonly format: number;
  readonly base: string;
  readonly lora: Adapter | null;
  readonly step: number;
}

/** Writes a state into an existing empty directory and syncs every file to disk. */
export async function writeState(directory: string, identity: StateIdentity, vectors: StateVectors): Promise<void> {
  const { base, lora, layout } = identity;
  await writeSafetensors(join(directory, lora ? ADAPTER_FILE : WEIGHTS_FILE), unpackTensors(vectors.parameters, layout), { format: "pt" });
  if (lora) {
    const tensorNames = layout.parameters.flatMap(({ files }) => files.map(({ name }) => name));
    // A tensor's name ends with `<module>.lora_A.weight`.
    const modules = [...new Set(tensorNames.map((name) => first(name.split(".").slice(-3))))];
    await writeSynced(join(directory, ADAPTER_CONFIG_FILE), {
      peft_type: "LORA",
      task_type: "CAUSAL_LM",
      base_model_name_or_path: base,
      r: lora.rank,
      lora_alpha: lora.alpha,
      lora_dropout: 0,
      bias: "none",
      target_modules: modules,
      fan_in_fan_out: false,
      inference_mode: true,
    });
  }
  await writeSafetensors(join(directory, OPTIMIZER_FILE), [
    { name: "first", shape: [layout.length], data: vectors.first },
    { name: "second", shape: [layout.length], data: vectors.second },
  ]);
  await writeSynced(join(directory, STATE_FILE), { format: FORMAT, base, lora, step: vectors.step } satisfies StateFile);
}

/**
 * Reads a state into existing vectors, which stay unchanged if the state does not match. Without optimizer file (only the newest
 * checkpoint and pinned ones keep theirs), moments are zero and the step count is 0. The same applies to an adapter in PEFT layout
 * without `state.json`.
 *
 * @throws DataError `E_DATA` for another base, another adapter shape, or a truncated file.
 */
export async function readState(directory: string, identity: StateIdentity, vectors: StateVectors): Promise<void> {
  const { base, lora, layout } = identity;
  if (lora && (await isForeign(directory))) {
    await readForeignAdapter(directory, layout, vectors.parameters);
    return resetMoments(vectors);
  }
  const state = await readStateFile(directory);
  if (state.base !== base || JSON.stringify(state.lora) !== JSON.stringify(lora)) {
    throw new DataError(
      `Expected a state of base "${base}" with adapter ${JSON.stringify(lora)}, found one of "${state.base}" with ${JSON.stringify(state.lora)}`,
    );
  }
  const path = join(directory, OPTIMIZER_FILE);
  const moments = (await pathExists(path)) ? await openSafetensors(path) : null;
  try {
    if (moments) await checkMoments(moments, layout);
    await readWeightsInto(vectors.parameters, join(directory, lora ? ADAPTER_FILE : WEIGHTS_FILE), layout);
    if (!moments) return resetMoments(vectors);
    for (const name of MOMENTS) await moments.readPieces(name, (piece, first) => vectors[name].set(piece, first));
    vectors.step = state.step;
  } finally {
    await moments?.close();
  }
}

/** Names of the moments in {@link OPTIMIZER_FILE}. */
const MOMENTS = ["first", "second"] as const;

/** Checks that the moments of a file are finite and fit a layout. */
async function checkMoments(file: OpenSafetensors, { length }: Layout): Promise<void> {
  for (const name of MOMENTS) {
    if (file.shapes.get(name)?.join() !== String(length))
      throw new DataError(`${OPTIMIZER_FILE}: expected two vectors of ${length} elements`);
    await file.check(name);
  }
}

/** Sets moments and step count to zero. */
function resetMoments(vectors: StateVectors): void {
  vectors.first.fill(0);
  vectors.second.fill(0);
  vectors.step = 0;
}

/** Whether the directory has an adapter in PEFT layout without a `state.json` of this engine. */
async function isForeign(directory: string): Promise<boolean> {
  return !(await pathExists(join(directory, STATE_FILE))) && pathExists(join(directory, ADAPTER_FILE));
}

/** Reads the weights or the adapter of a saved state, without the moments. */
export async function readAdapterOrWeights(
  directory: string,
  base: string,
  config: ModelConfig,
): Promise<{ flat: Float32Array; lora: Adapter | null }> {
  const state = await readStateFile(directory);
  if (state.base !== base) throw new DataError(`Expected a state of base "${base}", found one of "${state.base}"`);
  const layout = state.lora ? adapterLayout(config, state.lora.rank) : baseLayout(config);
  return { flat: await readWeights(join(directory, state.lora ? ADAPTER_FILE : WEIGHTS_FILE), layout), lora: state.lora };
}

/** Reads `state.json`. @throws DataError `E_DATA` if it cannot be read or has another format version. */
export async function readStateFile(directory: string): Promise<StateFile> {
  const path = join(directory, STATE_FILE);
  try {
    const state = JSON.parse(await readFile(path, "utf8")) as StateFile;
    if (state.format !== FORMAT) throw new DataError(`${STATE_FILE}: expected format ${FORMAT}, got ${state.format}`);
    return state;
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    throw new DataError(`${STATE_FILE}: expected a saved training state, it could not be read: ${reasonOf(cause)}`, { cause });
  }
}

/** Writes a value as JSON to a new file and syncs it to disk. */
async function writeSynced(path: string, value: unknown): Promise<void> {
  await writeFile(path, JSON.stringify(value, null, 2), { flag: "wx", flush: true });
}
