/** Saved states of the scripted engine: one weight and one optimizer moment. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { OPTIMIZER_FILE } from "../engine/port.ts";
import { MAX_CONFIG_BYTES, readRegularFile, readRegularFileBytes } from "../base/util/regular-file.ts";
import { DataError } from "../base/errors.ts";

/** Weight and optimizer state of a scripted model. */
export interface ScriptedState {
  /** The only weight of the model. */
  weight: number;
  /** First moment of the optimizer. */
  moment: number;
  /** Optimizer steps since the optimizer was reset. */
  optimizerStep: number;
  /** Optimizer steps that led to the weights; kept when the optimizer is reset. */
  step: number;
}

/** Returns a safetensors file with one float64 tensor of one element. */
export function oneTensor(name: string, value: number): Uint8Array {
  const header = Buffer.from(JSON.stringify({ [name]: { dtype: "F64", shape: [1], data_offsets: [0, 8] } }));
  const file = Buffer.alloc(8 + header.length + 8);
  file.writeBigUInt64LE(BigInt(header.length), 0);
  header.copy(file, 8);
  file.writeDoubleLE(value, 8 + header.length);
  return file;
}

/** Reads the value of a file of {@link oneTensor}. */
async function readOneTensor(path: string): Promise<number> {
  const file = await readRegularFileBytes(path, { maxBytes: Infinity });
  return file.readDoubleLE(8 + Number(file.readBigUInt64LE(0)));
}

/** Reads a saved state. @throws DataError `E_DATA` if `directory` holds none. */
export async function readScriptedState(directory: string): Promise<ScriptedState> {
  const text = await readRegularFile(join(directory, "state.json"), { maxBytes: MAX_CONFIG_BYTES }).catch((cause: unknown) => {
    throw new DataError(`Expected a saved state in '${directory}', found no readable state.json`, { cause });
  });
  const { step, optimizer_step } = JSON.parse(text) as { step: number; optimizer_step: number };
  const weight = await readOneTensor(join(directory, "model.safetensors"));
  const names = await readdir(directory);
  // Older checkpoints contain only weights; their optimizer state starts fresh.
  if (!names.includes(OPTIMIZER_FILE)) return { weight, moment: 0, optimizerStep: 0, step };
  return { weight, moment: await readOneTensor(join(directory, OPTIMIZER_FILE)), optimizerStep: optimizer_step, step };
}
