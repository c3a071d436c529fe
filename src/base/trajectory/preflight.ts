/**
 * Preflight: checks of trajectory groups before they are submitted to an RL job. {@link preflightSteps} checks a batch, group by group and
 * trajectory by trajectory, down to each sampled turn.
 */

import { ArgumentError } from "../errors.ts";
import type { AssistantChoice, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { runSteps, type Steps } from "../util/steps.ts";
import { Findings, refuseFatal, type Finding, type FindingCode } from "./findings.ts";
import { isChoice } from "./messages.ts";
import { samplingKinds } from "./sampling.ts";
import { sequenceTokens } from "./statistics.ts";
import { hasAdvantages, hasMixedAdvantages, isTrainableWire, tokenValueProblem } from "./token-values.ts";
import { allChoices, historiesOf } from "./trajectory.ts";
import { turnProblem } from "./turn.ts";

/**
 * Properties of the model and the job that {@link preflight} cannot read from the groups. Without an option, the check that needs it is
 * skipped.
 */
export interface PreflightOptions {
  /** Context length of the model, in tokens. Longer rows (turns that continue each other) are not trained. */
  readonly maxTokens?: number | undefined;
  /** Step of the newest checkpoint, from which training starts. */
  readonly currentStep?: number | undefined;
  /** Maximum number of steps between a group's oldest choice and `currentStep`. @default 0 */
  readonly maxStepsOffPolicy?: number | undefined;
  /** Maximum request body of the service, in bytes; 64 MiB (67108864) for the embedded service. The check serializes the groups once. */
  readonly maxBytes?: number | undefined;
  /** Whether the job trains choices without log-probabilities (`allow_training_without_logprobs`). @default false */
  readonly allowsUnknownLogprobs?: boolean | undefined;
  /**
   * Whether the service renders choices without token ids through the chat template; they are then a warning instead of fatal.
   *
   * @default false
   */
  readonly rendersTokenIds?: boolean | undefined;
  /** Whether the job does not train trajectories with a turn that ended at the token limit (`mask_truncated`). @default false */
  readonly masksTruncated?: boolean | undefined;
  /** Whether the job computes the advantages of turns from the rewards of the choices (`turn_rewards`). @default false */
  readonly usesTurnRewards?: boolean | undefined;
}

/** Group as a `TrajectoryGroup` or in its wire form. */
export type PreflightInput =
  | WireTrajectoryGroup
  | {
      /** Returns the wire form. */
      toJSON(): WireTrajectoryGroup;
    };

/**
 * Checks a batch before it is trained. Pure; the client and the service run this same function.
 *
 * @param groups - Batch to check.
 * @param options - Properties of the model and the job.
 * @returns Findings, fatal ones first; empty if no problem was found.
 * @throws ArgumentError `E_ARGUMENT` for an option out of range, or `maxStepsOffPolicy` without `currentStep`.
 * @example
 * ```ts
 * for (const { code, count, message } of preflight(groups, { maxTokens: 1024, currentStep: 7, maxStepsOffPolicy: 2 })) {
 *   console.log(code, count, message);
 * }
 * ```
 */
export function preflight(groups: readonly PreflightInput[], options: PreflightOptions = {}): Finding[] {
  return runSteps(preflightSteps(groups, options));
}

/**
 * Checks a batch like {@link preflight} and throws if it cannot be trained.
 *
 * @param groups - Batch to check.
 * @param options - Properties of the model and the job.
 * @returns The warnings.
 * @throws PreflightError `E_PREFLIGHT` when a finding is fatal.
 * @throws ArgumentError `E_ARGUMENT` as {@link preflight}.
 * @example
 * ```ts
 * for (const { message } of assertTrainable(groups)) console.warn(message);
 * ```
 */
export function assertTrainable(groups: readonly PreflightInput[], options: PreflightOptions = {}): Finding[] {
  return refuseFatal(preflight(groups, options));
}

/** Computes {@link preflight} and yields after each trajectory, so that a caller can run other work on the same thread. */
export function* preflightSteps(inputs: readonly PreflightInput[], options: PreflightOptions = {}): Steps<Finding[]> {
  checkOptions(options);
  const groups = inputs.map(toWire);
  const findings = new Findings();
  const report: Report = (code, path) => findings.add(code, path);
  // Groups that can teach something; of these the groups with a row that fits, and the groups with a trajectory that is not truncated.
  let learnableGroups = 0;
  let fittingGroups = 0;
  let untruncatedGroups = 0;
  for (const [index, group] of groups.entries()) {
    const { isVaried, fits } = yield* examineGroup(group, { path: `trajectory_groups.${index}`, report, options });
    if (!isVaried) continue;
    learnableGroups++;
    if (fits) fittingGroups++;
    if (options.masksTruncated !== true || group.trajectories.some(isUntruncated)) untruncatedGroups++;
  }
  if (groups.every((group) => group.trajectories.length === 0)) report("no-groups", "trajectory_groups");
  else if (learnableGroups === 0) report("nothing-to-learn", "trajectory_groups");
  else if (fittingGroups === 0) report("only-overlong-rows", "trajectory_groups");
  else if (untruncatedGroups === 0) report("only-truncated", "trajectory_groups");
  examineSizes(groups, report);
  if (options.maxBytes !== undefined) yield* examineBytes(groups, options.maxBytes, report);
  return findings.list();
}

/** Callback for one occurrence of a problem. */
type Report = (code: FindingCode, path: string) => void;

/** Context of a check: path of the checked value, callback for problems, and options. */
interface CheckContext {
  readonly path: string;
  readonly report: Report;
  readonly options: PreflightOptions;
}

/** Properties of a trajectory's rows. */
interface RowProperties {
  /** Whether any turn was sampled. */
  readonly hasTurns: boolean;
  /** Whether at least one row fits the model's context. */
  readonly fits: boolean;
}

/** Returns a group in wire form. */
function toWire(group: PreflightInput): WireTrajectoryGroup {
  return typeof group.toJSON === "function" ? (group as { toJSON(): WireTrajectoryGroup }).toJSON() : (group as WireTrajectoryGroup);
}

/** Checks the ranges of the options. @throws ArgumentError `E_ARGUMENT` naming the option. */
function checkOptions(options: PreflightOptions): void {
  for (const [name, min] of [
    ["maxTokens", 1],
    ["currentStep", 0],
    ["maxStepsOffPolicy", 0],
    ["maxBytes", 1],
  ] as const) {
    const value = options[name];
    if (value === undefined || (Number.isSafeInteger(value) && value >= min)) continue;
    throw new ArgumentError(`Expected \`${name}\` to be an integer of at least ${min}, got \`${value}\``, { param: name });
  }
  if (options.maxStepsOffPolicy === undefined || options.currentStep !== undefined) return;
  throw new ArgumentError("Expected `currentStep` beside `maxStepsOffPolicy`: the step that groups are compared with", {
    param: "currentStep",
  });
}

/** Whether a trajectory has sampled turns, and none of them ended at the token limit. */
function isUntruncated(trajectory: WireTrajectory): boolean {
  const choices = allChoices(trajectory);
  return choices.length > 0 && choices.every(({ finish_reason: reason }) => reason !== "length");
}

/** Properties of a group's rewards and rows. */
interface GroupProperties {
  /** Whether rewards differ, or token advantages are not all 0. */
  readonly isVaried: boolean;
  /** Whether at least one row fits the model's context. */
  readonly fits: boolean;
}

/** Records the findings of a group and its trajectories, in steps of one trajectory. */
function* examineGroup(group: WireTrajectoryGroup, context: CheckContext): Steps<GroupProperties> {
  const { trajectories } = group;
  const { path, report } = context;
  if (trajectories.length === 0) {
    report("empty-group", path);
    return { isVaried: false, fits: false };
  }
  const fingerprints = new Set<string>();
  let hasTurns = false;
  let fits = false;
  for (const [index, trajectory] of trajectories.entries()) {
    const trajectoryPath = `${path}.trajectories.${index}`;
    if (!Number.isFinite(trajectory.reward)) report("non-finite-reward", `${trajectoryPath}.reward`);
    const rows = examineTrajectory(trajectory, { ...context, path: trajectoryPath });
    hasTurns ||= rows.hasTurns;
    fits ||= rows.fits;
    const fingerprint = sampledTokens(trajectory);
    if (fingerprint !== null && fingerprints.has(fingerprint)) report("duplicate-trajectory", trajectoryPath);
    if (fingerprint !== null) fingerprints.add(fingerprint);
    yield;
  }
  if (!hasTurns) report("no-logprobs", path);
  examineAge(group, context);
  const rewards = trajectories.map((trajectory) => trajectory.reward);
  // A non-finite reward has its own finding; whether the rewards differ is then undecidable, and the group counts as varied.
  const isVaried = isTrainableWire(group) || !rewards.every(Number.isFinite);
  if (hasMixedAdvantages(trajectories.flatMap(allChoices))) report("mixed-token-advantages", path);
  if (trajectories.length === 1 && !isVaried) report("group-of-one", path);
  else if (!isVaried) report("constant-group", path);
  return { isVaried, fits };
}

/** Min turns of a trajectory for the finding that none continues another: one or two may be separate on purpose. */
const MIN_SEPARATE_TURNS = 3;

/** Records the findings of a trajectory's turns, and of the rows that they form. */
function examineTrajectory(trajectory: WireTrajectory, { path, report, options }: CheckContext): RowProperties {
  let turns = 0;
  let isJoined = false;
  let fits = false;
  for (const history of historiesOf(trajectory)) {
    let previousTurn: AssistantChoice | null = null;
    for (const [index, item] of history.items.entries()) {
      if (!isChoice(item)) continue;
      const choicePath = `${path}.${history.path}.${index}`;
      turns++;
      // One pair of joined turns is enough: no further tokens are compared. A turn without prompt tokens may continue another.
      isJoined ||= (item.prompt_token_ids ?? null) === null || (previousTurn !== null && continues(previousTurn, item));
      examineChoice(item, choicePath, { report, options });
      if (!isOverlong(item, options)) fits = true;
      else {
        // Turns that continue each other form one row, which is reported once.
        const isReported = previousTurn !== null && isOverlong(previousTurn, options) && continues(previousTurn, item);
        if (!isReported) report("overlong-row", choicePath);
      }
      previousTurn = item;
    }
  }
  if (turns >= MIN_SEPARATE_TURNS && !isJoined) report("separate-turns", path);
  // A trajectory without turns has its own finding and does not count as overlong.
  return { hasTurns: turns > 0, fits: fits || turns === 0 };
}

/** Records the findings of a sampled turn. */
function examineChoice(choice: AssistantChoice, path: string, { report, options }: Pick<CheckContext, "report" | "options">): void {
  const problem = turnProblem(choice);
  // The service renders a choice without token ids; its other problems can be checked only after rendering.
  if (problem === "choice-without-token-ids" && options.rendersTokenIds === true) report("rendered-choice", path);
  else if (problem !== null && !(problem === "choice-without-logprobs" && options.allowsUnknownLogprobs === true)) report(problem, path);
  const valueProblem = tokenValueProblem(choice);
  if (valueProblem !== null) report(valueProblem, path);
  if (choice.unused_template_kwargs?.length) report("unused-template-kwargs", path);
  if (options.usesTurnRewards === true && hasAdvantages(choice)) report("token-advantages-with-turn-rewards", path);
  for (const kind of samplingKinds(choice)) report(SAMPLING_CODES[kind], path);
}

/** Finding code of each change of the sampling distribution. */
const SAMPLING_CODES = {
  temperature: "temperature",
  truncated: "truncated-sampling",
  biased: "biased-sampling",
  grammar: "grammar-mask",
} as const;

/** Whether the row that ends with a turn is longer than the model's context. */
function isOverlong(choice: AssistantChoice, { maxTokens }: PreflightOptions): boolean {
  return maxTokens !== undefined && sequenceTokens(choice) > maxTokens;
}

/** Whether the turn's prompt begins with all tokens of the previous turn. */
function continues(previousTurn: AssistantChoice, { prompt_token_ids: prompt }: AssistantChoice): boolean {
  const start = previousTurn.prompt_token_ids ?? [];
  return (
    start.every((token, index) => prompt?.[index] === token) &&
    (previousTurn.token_ids ?? []).every((token, index) => prompt?.[start.length + index] === token)
  );
}

/** Reports the group as stale if its oldest choice is more than `maxStepsOffPolicy` steps older than `currentStep`. */
function examineAge(group: WireTrajectoryGroup, { path, report, options: { currentStep, maxStepsOffPolicy = 0 } }: CheckContext): void {
  if (currentStep === undefined) return;
  const versions = group.trajectories.flatMap((each) => [
    each.initial_policy_version,
    ...allChoices(each).map((choice) => choice.policy_version),
  ]);
  const oldest = versions.reduce<number>((min, version) => Math.min(min, version ?? min), currentStep);
  if (currentStep - oldest > maxStepsOffPolicy) report("stale-group", path);
}

/** Reports groups that differ from the most common group size. Groups of zero or one trajectory have findings of their own. */
function examineSizes(groups: readonly WireTrajectoryGroup[], report: Report): void {
  const countsBySize = new Map<number, number>();
  for (const { trajectories } of groups) {
    if (trajectories.length > 1) countsBySize.set(trajectories.length, (countsBySize.get(trajectories.length) ?? 0) + 1);
  }
  // Of two sizes that are equally common, the larger one counts.
  const [mostCommon] = [...countsBySize].sort(([sizeA, countA], [sizeB, countB]) => countB - countA || sizeB - sizeA);
  for (const [index, { trajectories }] of groups.entries()) {
    if (trajectories.length > 1 && trajectories.length !== mostCommon?.[0]) report("unbalanced-group", `trajectory_groups.${index}`);
  }
}

/**
 * Reports the group at which the bytes of `JSON.stringify(groups)` exceed `maxBytes`. Serializes one trajectory per step and stops at the
 * limit.
 */
function* examineBytes(groups: readonly WireTrajectoryGroup[], maxBytes: number, report: Report): Steps<void> {
  const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
  // Two brackets, and a comma between neighbors.
  let bytes = 2 + Math.max(0, groups.length - 1);
  for (const [index, group] of groups.entries()) {
    bytes += bytesOf({ ...group, trajectories: [] }) + Math.max(0, group.trajectories.length - 1);
    for (const trajectory of group.trajectories) {
      bytes += bytesOf(trajectory);
      if (bytes > maxBytes) break;
      yield;
    }
    if (bytes <= maxBytes) continue;
    report("payload-too-large", `trajectory_groups.${index}`);
    return;
  }
}

/**
 * Returns all sampled tokens of a trajectory and their prompts as one comparable string; null without turns or if a turn has no token ids.
 */
function sampledTokens(trajectory: WireTrajectory): string | null {
  const turns = allChoices(trajectory);
  if (turns.length === 0 || turns.some((turn) => (turn.token_ids ?? []).length === 0)) return null;
  return turns.map((turn) => `${(turn.prompt_token_ids ?? []).join(",")}>${turn.token_ids?.join(",") ?? ""}`).join("|");
}
