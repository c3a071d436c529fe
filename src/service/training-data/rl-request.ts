/**
 * Trajectory groups of an RL job: validated (`readRlRequest`), and written to disk before the job is accepted (`acceptGroups`). Their training
 * batch is built when the job is accepted, and again from the file (`batchOf`) if the batch is no longer in memory when the job runs.
 */
import type { BaseModelInfo } from "../../engine/port.ts";
import { ArgumentError } from "../../base/errors.ts";
import { checkRlConfig, needsRendering, rlBatchSteps, type RlBatch } from "../../learner/index.ts";
import { rolloutOutcome, trajectory, type RlConfig, type TrajectoryGroup } from "../../base/schema/index.ts";
import { refuseFatal, type Finding } from "../../base/trajectory/findings.ts";
import { preflightSteps } from "../../base/trajectory/preflight.ts";
import { validateTrajectory } from "../../base/trajectory/validate.ts";
import { runStepsInSlices, type Steps } from "../../base/util/steps.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { readJobGroups, writeGroups } from "./job-files.ts";
import { loadStored, readStoredRollout, storedIds, type RolloutFiles, type SentGroup } from "./stored-rollout.ts";
import type { TokenizerSource } from "../models/tokenizers.ts";
import { readBody, type RlEnvelope } from "../http/requests.ts";
import type { Digests } from "../disk/digests.ts";
import { requireValid } from "../../base/util/validation.ts";

/** RL request without its groups. */
export interface RlHead {
  /** Model to train. */
  readonly modelId: string;
  readonly config: RlConfig | null;
  /** SHA-256 of the body, hexadecimal. */
  readonly digest: string;
  /** Rollout tasks with stored trajectories that are part of the groups, in order. */
  readonly storedRollouts: readonly string[];
}

/** Complete RL request. */
export interface RlRequest {
  readonly head: RlHead;
  readonly groups: readonly SentGroup[];
}

/** Parameters for storing and training the groups of a job. */
export interface RlJobPlan {
  readonly directory: DataDirectory;
  readonly jobId: string;
  readonly config: RlConfig | null;
  readonly base: BaseModelInfo;
  /** Files of the stored rollouts; only read when the job is accepted. */
  readonly rollouts: RolloutFiles;
}

/** Result of {@link acceptGroups}. */
export interface AcceptedGroups {
  readonly warnings: readonly Finding[];
  readonly digests: Digests;
  readonly batch: RlBatch;
}

/** Parses the body of an RL job. @throws ArgumentError `E_ARGUMENT` naming the first invalid fields. */
export async function readRlRequest(bytes: Uint8Array): Promise<RlRequest> {
  const { value, digest } = readBody("rl", bytes);
  const groups = await runStepsInSlices(validateGroups(value.trajectory_groups));
  const head = { modelId: value.model_id, config: value.experimental_config ?? null, digest, storedRollouts: storedIds(groups) };
  return { head, groups };
}

/** Validates the groups of an RL request. Yields after each trajectory, so that the work can be divided into time slices. */
function* validateGroups(values: RlEnvelope["trajectory_groups"]): Steps<SentGroup[]> {
  const groups: SentGroup[] = [];
  for (const [groupIndex, group] of values.entries()) {
    const trajectories: SentGroup["trajectories"][number][] = [];
    for (const [index, value] of group.trajectories.entries()) {
      trajectories.push(readTrajectory(value, ["trajectory_groups", groupIndex, "trajectories", index]));
      yield;
    }
    groups.push({ ...group, trajectories });
  }
  return groups;
}

/** Validates a trajectory, or the name of a stored one. `path` is its path in the body, for errors. */
function readTrajectory(value: unknown, path: (string | number)[]): SentGroup["trajectories"][number] {
  const stored = readStoredRollout(value, path);
  if (stored !== undefined) return stored;
  const validated = validateTrajectory(value);
  // The schema produces the error of an invalid trajectory, with its path in the body.
  return validated.success ? validated.data : requireValid(trajectory, value, path);
}

/** Result of {@link checkOutcome}. */
export interface CheckedOutcome {
  /** The body, unchanged. */
  readonly bytes: Uint8Array;
  /** Whether the rollout has failed: it has no trajectory. */
  readonly isFailure: boolean;
}

/** Validates the outcome of a rollout task. @throws ArgumentError `E_ARGUMENT` naming the first invalid field. */
export function checkOutcome(bytes: Uint8Array): CheckedOutcome {
  const { value } = readBody("rolloutOutcome", bytes);
  const hasTrajectory = (value.trajectory ?? null) !== null;
  const hasException = (value.exception ?? null) !== null;
  if (hasTrajectory === hasException) {
    throw new ArgumentError("Expected an outcome with `trajectory` or `exception`, got both or neither", { param: "trajectory" });
  }
  // The schema produces the error of an invalid trajectory.
  if (hasTrajectory && !validateTrajectory(value.trajectory).success) requireValid(rolloutOutcome, value);
  return { bytes, isFailure: !hasTrajectory };
}

/**
 * Builds the training batch of groups, and writes the groups to the job's directory.
 *
 * @returns preflight warnings, the digest of the file, and the batch.
 * @throws PreflightError `E_PREFLIGHT`, ArgumentError `E_ARGUMENT`, DataError `E_DATA`, UnsupportedError `E_UNSUPPORTED` for groups that
 *   cannot be trained.
 */
export async function acceptGroups(
  sent: readonly SentGroup[],
  { directory, jobId, config, base, rollouts }: RlJobPlan,
  tokenizers: TokenizerSource,
): Promise<AcceptedGroups> {
  const groups = await loadStored(sent, rollouts);
  const { allowsUnknownLogprobs, masksTruncated, turnRewards: usesTurnRewards } = checkRlConfig(config);
  const preflightOptions = { maxTokens: base.contextLength, allowsUnknownLogprobs, rendersTokenIds: true, masksTruncated, usesTurnRewards };
  const warnings = refuseFatal(await runStepsInSlices(preflightSteps(groups, preflightOptions)));
  // The batch is built now, because groups that cannot be trained must be rejected before the job is accepted.
  const batch = await buildBatch(groups, { config, base }, tokenizers);
  return { warnings, digests: await writeGroups(directory, jobId, groups), batch };
}

/** Builds the training batch of groups. */
async function buildBatch(
  groups: readonly TrajectoryGroup[],
  { config, base }: Pick<RlJobPlan, "config" | "base">,
  tokenizers: TokenizerSource,
  signal?: AbortSignal,
): Promise<RlBatch> {
  const tokenizer = needsRendering(groups) ? await tokenizers(base.directory) : undefined;
  return runStepsInSlices(rlBatchSteps(groups, config, base, { tokenizer }), { signal });
}

/** Returns the memory of a batch's rows, for transfer instead of copying. */
export function batchBuffers({ rows }: RlBatch): ArrayBuffer[] {
  const lists = rows.flatMap(({ tokens, weights, advantages, logprobs }) => [tokens, weights, advantages, logprobs]);
  return [...new Set(lists.flatMap((list) => (list === undefined ? [] : [list.buffer as ArrayBuffer])))];
}

/** Builds the training batch of an accepted job from its file. */
export async function batchOf(
  { directory, jobId, config, base }: Omit<RlJobPlan, "rollouts">,
  tokenizers: TokenizerSource,
  signal: AbortSignal,
): Promise<RlBatch> {
  return buildBatch(await readJobGroups(directory, jobId), { config, base }, tokenizers, signal);
}
