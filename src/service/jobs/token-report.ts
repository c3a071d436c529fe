/** Token reports: the log-probability and advantage of each token of an RL job, stored as one JSON file per job with `token_report: true`. */
import { join } from "node:path";
import type { Logprobs, Row } from "../../engine/port.ts";
import { DataCorruptedError, DataError, NotFoundError } from "../../base/errors.ts";
import type { RowSource } from "../../learner/index.ts";
import type { TrainedTokens, TrainedTrajectory } from "../../base/schema/index.ts";
import { getOrInsert, itemAt } from "../../base/util/values.ts";
import { readRegularFileBytes } from "../../base/util/regular-file.ts";
import { runStepsInSlices, type Steps } from "../../base/util/steps.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { writeDurably } from "../disk/files.ts";
import { digestBytes, type Digests } from "../disk/digests.ts";
import { storedReport } from "../disk/stored-path.ts";
import type { Storage } from "../storage/storage.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { JobRow } from "../store/tables.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/**
 * Returns the report of a batch: for each turn, its advantage, and the trainer's log-probability of every sampled token before the step.
 *
 * @param sources - Origin of each row: its trajectory, and the positions of its turns.
 * @param logprobs - Log-probabilities of the trainer, per row.
 */
export function tokenReport(sources: readonly RowSource[], rows: readonly Row[], logprobs: readonly Logprobs[]): TrainedTokens {
  const trajectories = new Map<string, TrainedTrajectory>();
  for (const [index, { group, trajectory, turns }] of sources.entries()) {
    const entry = getOrInsert(trajectories, `${group}.${trajectory}`, () => ({ group, trajectory, turns: [] }));
    for (const turn of turns) entry.turns.push(reportTurn(turn, itemAt(rows, index), itemAt(logprobs, index)));
  }
  return { object: "list", data: [...trajectories.values()] };
}

/**
 * Returns the report of a turn. The log-probability of a token that was not trained is null. If the trained tokens have different advantages,
 * the turn has their mean, and also one advantage per token.
 */
function reportTurn({ turn, start, length }: RowSource["turns"][number], row: Row, logprobs: Logprobs): TrainedTrajectory["turns"][number] {
  const positions = Array.from({ length }, (_, offset) => start + offset);
  const isTrained = (t: number) => (row.weights[t] ?? 0) !== 0;
  const advantageAt = (t: number) => row.advantages?.[t] ?? 0;
  const trainedAdvantages = positions.filter(isTrained).map(advantageAt);
  const [firstAdvantage = 0] = trainedAdvantages;
  const isUniform = trainedAdvantages.every((advantage) => advantage === firstAdvantage);
  const mean = trainedAdvantages.reduce((sum, advantage) => sum + advantage, 0) / trainedAdvantages.length;
  return {
    turn,
    advantage: isUniform ? firstAdvantage : mean,
    ...(isUniform ? {} : { advantages: positions.map(advantageAt) }),
    logprobs: positions.map((t) => (isTrained(t) ? (logprobs[t] ?? 0) : null)),
  };
}

/** Serializes a report as JSON, and yields after each trajectory: a report may take long. */
function* reportText({ object, data }: TrainedTokens): Steps<string> {
  let text = `{"object":${JSON.stringify(object)},"data":[`;
  for (const [index, entry] of data.entries()) {
    text += `${index === 0 ? "" : ","}${JSON.stringify(entry)}`;
    yield;
  }
  return `${text}]}`;
}

/** Parts of the service that a report is written with. */
interface ReportContext {
  readonly directory: DataDirectory;
  readonly storage: Pick<Storage, "keep">;
}

/** Writes a job's report before the job's end is committed, so that every finished job has its report. Returns the digest. */
export async function writeTokenReport({ directory, storage }: ReportContext, jobId: string, report: TrainedTokens): Promise<Digests> {
  const bytes = Buffer.from(await runStepsInSlices(reportText(report)));
  await writeDurably(join(directory.root, storedReport(jobId)), bytes);
  const digests = { [storedReport(jobId)]: digestBytes(bytes) };
  await storage.keep(digests);
  return digests;
}

/**
 * Reads a job's report.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the job has no report.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing or damaged.
 */
export async function readTokenReport(directory: DataDirectory, files: Pick<StoredFiles, "useJobFile">, job: JobRow): Promise<Buffer> {
  const subject = `The token report of training job '${job.id}'`;
  try {
    return await files.useJobFile(job, storedReport(job.id), subject, () =>
      readRegularFileBytes(join(directory.root, storedReport(job.id)), { maxBytes: Infinity }),
    );
  } catch (cause) {
    if (cause instanceof DataError) throw new DataCorruptedError(`${subject}: ${cause.message}`, { cause });
    if (!isMissingFile(cause)) throw cause;
    throw new NotFoundError(
      `Job '${job.id}' has no token report: it is not over, or it was created without \`token_report: true\` in \`experimental_config\``,
      { param: "id" },
    );
  }
}

/** Removes a job's report. Returns whether the report existed. */
export function removeTokenReport(storage: Pick<Storage, "remove">, jobId: string): Promise<boolean> {
  return storage.remove(storedReport(jobId));
}
