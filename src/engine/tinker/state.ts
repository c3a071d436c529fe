/** A saved state: the weights stay on the server, and `tinker.json` says where. */
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { DataError } from "../../errors.ts";

const FILE = "tinker.json";

const savedState = z.strictObject({
  format: z.literal(1),
  /** Where the server was reached. */
  server: z.string(),
  base: z.string(),
  rank: z.int(),
  alpha: z.number().nullable(),
  /** The server's names of the training state, and of the weights for sampling where they have one of their own. */
  weights: z.string(),
  sampler: z.string().nullable(),
  /** Steps since the optimizer was fresh, and since the server's was. */
  step: z.int(),
  server_step: z.int(),
});

/** Contents of `tinker.json`. */
export type SavedState = z.infer<typeof savedState>;

/** Writes a state into an existing directory, synced. */
export async function writeSavedState(directory: string, state: SavedState): Promise<void> {
  const file = await open(join(directory, FILE), "wx");
  try {
    await file.writeFile(JSON.stringify(state, null, 2));
    await file.sync();
  } finally {
    await file.close();
  }
}

/**
 * Reads the state of one base and, where a rank is given, of an adapter of that shape.
 *
 * @throws DataError `E_DATA` when there is none, or it is another's.
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
