/** Saved training state. The weights stay on the server; `tinker.json` contains their names. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { DataError } from "../../base/errors.ts";

/** Name of the file with the state. */
const FILE = "tinker.json";

/** Contents of `tinker.json`. */
const savedState = z.strictObject({
  format: z.literal(1),
  /** Address of the server. */
  server: z.string(),
  base: z.string(),
  rank: z.int(),
  alpha: z.number().nullable(),
  /** Name of the training state on the server. */
  weights: z.string(),
  /** Name of the sampling weights on the server; null if the server has none separate from the training state. */
  sampler: z.string().nullable(),
  /** Steps since the optimizer was last reset. */
  step: z.int(),
  /** Steps of the server's optimizer, which a reset does not change. */
  server_step: z.int(),
});

/** Saved state of a model: its names on the server, and its step counts. */
type SavedState = z.infer<typeof savedState>;

/** Writes a state into an existing directory and syncs the file to disk. */
export async function writeSavedState(directory: string, state: SavedState): Promise<void> {
  await writeFile(join(directory, FILE), JSON.stringify(state, null, 2), { flag: "wx", flush: true });
}

/**
 * Reads a saved state and checks that server, base and (if given) adapter rank match.
 *
 * @throws DataError `E_DATA` if the directory has no readable state, or the state does not match.
 */
export async function readSavedState(
  directory: string,
  wanted: { readonly server: string; readonly base: string; readonly rank?: number | undefined },
): Promise<SavedState> {
  const path = join(directory, FILE);
  let state: SavedState;
  try {
    state = savedState.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    throw new DataError(`${path}: expected the state of a model on a Tinker server; it could not be read`, { cause });
  }
  const { server, base, rank } = state;
  if (server !== wanted.server || base !== wanted.base || rank !== (wanted.rank ?? rank)) {
    throw new DataError(
      `${path}: expected a state of base "${wanted.base}"${wanted.rank === undefined ? "" : ` with an adapter of rank ${wanted.rank}`} on ${wanted.server}, found one of "${base}" with rank ${rank} on ${server}`,
    );
  }
  return state;
}
