/** Log-probabilities of a preference job's pairs under its reference policy, computed once per job and stored in its directory. */
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { DataCorruptedError, NotFoundError } from "../../base/errors.ts";
import type { PairValues, PreferenceReference, SequencePair } from "../../learner/index.ts";
import { digestBytes } from "../disk/digests.ts";
import { syncDirectory, writeDurably } from "../disk/files.ts";
import { digestsOfJob, jobDirectory, storedReference } from "../disk/stored-path.ts";
import { checkpointAt, startOfJob } from "../store/checkpoints.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";
import { measurePairs } from "./pair-sums.ts";
import { withReferencePolicy } from "./reference-policy.ts";
import type { JobScope } from "./run-job.ts";

/**
 * Returns the sums of the log-probabilities of all pairs under the reference policy. A job that is started again after an interruption
 * reads them from its directory; values that are missing or damaged are computed again.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the checkpoint of the reference policy does not exist.
 */
export async function referenceSums(
  scope: JobScope,
  pairs: readonly SequencePair[],
  reference: PreferenceReference,
): Promise<PairValues[]> {
  return (await readSums(scope)) ?? writeSums(scope, await computeSums(scope, pairs, reference));
}

/** Reads the stored sums of a job; null if they are missing or damaged. */
async function readSums({ context, job }: JobScope): Promise<PairValues[] | null> {
  const storedPath = storedReference(job.id);
  const digest = digestsOfJob(job)?.[storedPath];
  if (digest === undefined) return null;
  const path = join(context.directory.root, storedPath);
  try {
    const read = () => readFile(path);
    return decodeSums(await context.files.useJobFile(job, storedPath, `The reference values of training job '${job.id}'`, read));
  } catch (error) {
    if (error instanceof DataCorruptedError) return null;
    throw error;
  }
}

/** Stores the sums of a job: first the file, then its digest. Returns the sums. */
async function writeSums({ context, job, recordFile }: JobScope, sums: PairValues[]): Promise<PairValues[]> {
  const { directory } = context;
  const storedPath = storedReference(job.id);
  const bytes = encodeSums(sums);
  await mkdir(jobDirectory(directory, job.id), { recursive: true, mode: 0o700 });
  await syncDirectory(directory.jobs);
  await writeDurably(join(directory.root, storedPath), bytes);
  await recordFile(storedPath, digestBytes(bytes));
  return sums;
}

/** Computes the sums with the job's own model if it still has the weights of the reference policy, else with a second model. */
async function computeSums(scope: JobScope, pairs: readonly SequencePair[], reference: PreferenceReference): Promise<PairValues[]> {
  const { context, job, handle, model, signal } = scope;
  const { store, engine } = context;
  // Not `scope.checkpoint`: before an interruption, the job may have added newer checkpoints than the one it started from.
  const start = await startOfJob(store, job);
  const checkpoint = await referenceCheckpoint(store, reference, { modelId: model.id, start });
  // A checkpoint without files (`state_dir` null) is the base model, which `checkpoint` null stands for.
  const isStart = checkpoint === null ? start?.state_dir === null : checkpoint.id === start?.id;
  // Before the first step the trained model still has the weights of its start, so no second model is loaded.
  if (isStart && job.committed_steps === 0) return measurePairs({ engine, handle, signal }, pairs);
  return withReferencePolicy(scope, checkpoint, (policy) => measurePairs({ engine, handle: policy, signal }, pairs));
}

/**
 * Returns the checkpoint of a reference policy; null for the base model.
 *
 * @param start - Checkpoint that the job starts from; undefined if it was deleted.
 * @throws NotFoundError `E_NOT_FOUND`, param `config.reference_step`, if the model has no such checkpoint.
 */
export async function referenceCheckpoint(
  store: Store,
  reference: PreferenceReference,
  { modelId, start }: { readonly modelId: string; readonly start: CheckpointRow | undefined },
): Promise<CheckpointRow | null> {
  if (reference.kind === "base") return null;
  const checkpoint = reference.kind === "start" ? start : await checkpointAt(store, modelId, reference.step);
  if (checkpoint !== undefined) return checkpoint;
  const step = reference.kind === "start" ? '"start"' : reference.step;
  throw new NotFoundError(
    `\`reference_step\` is ${step}, and the model has no such checkpoint. Name one that exists, and keep it until the job has started`,
    { param: "config.reference_step" },
  );
}

/** Encodes the values of pairs: two float64 per pair, `chosen` then `rejected`, little-endian. */
function encodeSums(sums: readonly PairValues[]): Buffer {
  const bytes = Buffer.alloc(16 * sums.length);
  for (const [pair, { chosen, rejected }] of sums.entries()) {
    bytes.writeDoubleLE(chosen, 16 * pair);
    bytes.writeDoubleLE(rejected, 16 * pair + 8);
  }
  return bytes;
}

/** Decodes the bytes of {@link encodeSums}. */
function decodeSums(bytes: Buffer): PairValues[] {
  return Array.from({ length: bytes.length / 16 }, (_, pair) => ({
    chosen: bytes.readDoubleLE(16 * pair),
    rejected: bytes.readDoubleLE(16 * pair + 8),
  }));
}
