/** Log-probabilities of a preference job's pairs under its reference policy, computed once per job and stored in its directory. */
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { ModelHandle } from "../../engine/port.ts";
import { NotFoundError } from "../../base/errors.ts";
import { pairSums, preferenceRows, type PairValues, type PreferenceReference, type SequencePair } from "../../learner/index.ts";
import { digestBytes } from "../disk/digests.ts";
import { syncDirectory, writeDurably } from "../disk/files.ts";
import { digestsOfJob, jobDirectory, storedReference } from "../disk/stored-path.ts";
import { checkpointAt } from "../store/checkpoints.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";
import { withReferencePolicy } from "./reference-policy.ts";
import type { JobScope } from "./run-job.ts";

/** Pairs per forward pass. A constant, so that a repeated computation gives the same bits. */
const PAIRS_PER_PASS = 64;

/**
 * Returns the sums of the log-probabilities of all pairs under the reference policy. A job that is started again after an interruption reads
 * them from its directory; values that are missing or damaged are computed again.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the checkpoint does not exist.
 */
export async function referenceSums(
  scope: JobScope,
  pairs: readonly SequencePair[],
  reference: PreferenceReference,
): Promise<PairValues[]> {
  const { context, job } = scope;
  const storedPath = storedReference(job.id);
  const path = join(context.directory.root, storedPath);
  const digest = digestsOfJob(job)?.[storedPath];
  const bytes = digest === undefined ? null : await readFile(path).catch(() => null);
  if (bytes !== null && digestBytes(bytes).sha256 === digest?.sha256) return decoded(bytes);
  const values = encoded(await computedSums(scope, pairs, reference));
  await mkdir(jobDirectory(context.directory, job.id), { recursive: true, mode: 0o700 });
  await syncDirectory(context.directory.jobs);
  await writeDurably(path, values);
  await scope.recordFile(storedPath, digestBytes(values));
  return decoded(values);
}

/**
 * Returns the checkpoint of a reference policy; null for the base model.
 *
 * @param start - Checkpoint that the job starts from.
 * @throws NotFoundError `E_NOT_FOUND`, param `config.reference_step`, if the model has no such checkpoint.
 */
export async function referenceCheckpoint(
  store: Store,
  reference: PreferenceReference,
  { modelId, start }: { readonly modelId: string; readonly start: CheckpointRow },
): Promise<CheckpointRow | null> {
  if (reference.kind === "base") return null;
  if (reference.kind === "start") return start;
  const found = await checkpointAt(store, modelId, reference.step);
  if (found !== undefined) return found;
  throw new NotFoundError(
    `\`reference_step\` is ${reference.step}, and the model has no such checkpoint. Name one that exists, and keep it until the job has started`,
    { param: "config.reference_step" },
  );
}

async function computedSums(scope: JobScope, pairs: readonly SequencePair[], reference: PreferenceReference): Promise<PairValues[]> {
  const { context, job, handle, model, checkpoint: start, signal } = scope;
  const sumsOf = async (policy: ModelHandle) => {
    const sums: PairValues[] = [];
    for (let from = 0; from < pairs.length; from += PAIRS_PER_PASS) {
      const { rows } = preferenceRows(pairs.slice(from, from + PAIRS_PER_PASS));
      for (const sum of pairSums(rows, await context.engine.forward(policy, rows, { signal }))) sums.push(sum);
    }
    return sums;
  };
  const checkpoint = await referenceCheckpoint(context.store, reference, { modelId: model.id, start });
  // Before the first step the trained model still has the weights of its start, so no second model is loaded.
  const isStart = checkpoint === null ? start.state_dir === null : checkpoint.id === start.id;
  return isStart && job.committed_steps === 0 ? sumsOf(handle) : withReferencePolicy(scope, checkpoint, sumsOf);
}

/** Encodes the values of pairs: two float64 per pair, little-endian. */
function encoded(sums: readonly PairValues[]): Buffer {
  const bytes = Buffer.alloc(16 * sums.length);
  for (const [pair, { chosen, rejected }] of sums.entries()) {
    bytes.writeDoubleLE(chosen, 16 * pair);
    bytes.writeDoubleLE(rejected, 16 * pair + 8);
  }
  return bytes;
}

function decoded(bytes: Buffer): PairValues[] {
  return Array.from({ length: bytes.length / 16 }, (_, pair) => ({
    chosen: bytes.readDoubleLE(16 * pair),
    rejected: bytes.readDoubleLE(16 * pair + 8),
  }));
}
