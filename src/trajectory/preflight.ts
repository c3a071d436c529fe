import { ArgumentError } from "../errors.ts";
import type { AssistantChoice, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { runSteps, type Steps } from "../util/steps.ts";
import { Findings, refuseFatal, type Finding, type FindingCode } from "./findings.ts";
import { isChoice } from "./messages.ts";
import { samplingKinds } from "./sampling.ts";
import { sequenceTokens } from "./statistics.ts";
import { isTrainableGroup } from "./trainable.ts";
import { allChoices, historiesOf } from "./trajectory.ts";
import { turnProblem } from "./turn.ts";

/** What {@link preflight} cannot see in the groups themselves. Absent: not examined. */
export interface PreflightOptions {
  /** The model's context, in tokens. A row (turns that continue each other) that is longer is not trained. */
  readonly maxTokens?: number | undefined;
  /** The step that is to be trained from: of the newest checkpoint. */
  readonly currentStep?: number | undefined;
  /** Steps that a group's oldest choice may lie behind `currentStep`. @default 0 */
  readonly maxStepsOffPolicy?: number | undefined;
  /** The largest body that the service takes; the embedded service takes 64 MiB (67108864). Measuring writes the groups out once. */
  readonly maxBytes?: number | undefined;
  /** The job trains choices without log-probabilities (`allow_training_without_logprobs`). @default false */
  readonly allowsUnknownLogprobs?: boolean | undefined;
  /** The service renders choices without token ids through the chat template: a warning, then, not the end. @default false */
  readonly rendersTokenIds?: boolean | undefined;
}

/** A group as `TrajectoryGroup` or in its wire form. */
export type PreflightInput = WireTrajectoryGroup | { toJSON(): WireTrajectoryGroup };

/**
 * Examines a batch before it is trained. Pure; the client and the service run this same function.
 *
 * @returns Findings, fatal ones first; empty when all is well.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds.
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
 * {@link preflight} that throws.
 *
 * @returns The warnings.
 * @throws PreflightError `E_PREFLIGHT` when a finding is fatal.
 */
export function assertTrainable(groups: readonly PreflightInput[], options: PreflightOptions = {}): Finding[] {
  return refuseFatal(preflight(groups, options));
}

/** {@link preflight}, one trajectory at a time, for whoever shares the thread. */
export function* preflightSteps(inputs: readonly PreflightInput[], options: PreflightOptions = {}): Steps<Finding[]> {
  checkOptions(options);
  const groups = inputs.map(toWire);
  const findings = new Findings();
  const note: Note = (code, place) => findings.note(code, place);
  let learnable = 0;
  let fitting = 0;
  for (const [index, group] of groups.entries()) {
    const verdict = yield* examineGroup(group, { place: `trajectory_groups.${index}`, note, options });
    if (verdict.isVaried) learnable++;
    if (verdict.isVaried && verdict.fits) fitting++;
  }
  if (groups.every((group) => group.trajectories.length === 0)) note("no-groups", "trajectory_groups");
  else if (learnable === 0) note("nothing-to-learn", "trajectory_groups");
  else if (fitting === 0) note("only-overlong-rows", "trajectory_groups");
  examineSizes(groups, note);
  if (options.maxBytes !== undefined) yield* examineBytes(groups, options.maxBytes, note);
  return findings.list();
}

type Note = (code: FindingCode, place: string) => void;

/** Where the examination is, and what it goes by. */
interface Site {
  readonly place: string;
  readonly note: Note;
  readonly options: PreflightOptions;
}

/** What a group or trajectory can give to the gradient. */
interface Rows {
  /** Whether anything was sampled. */
  readonly hasTurns: boolean;
  /** Whether a row fits the model's context. */
  readonly fits: boolean;
}

function toWire(group: PreflightInput): WireTrajectoryGroup {
  return typeof group.toJSON === "function" ? (group as { toJSON(): WireTrajectoryGroup }).toJSON() : (group as WireTrajectoryGroup);
}

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

function* examineGroup(group: WireTrajectoryGroup, site: Site): Steps<{ readonly isVaried: boolean; readonly fits: boolean }> {
  const { trajectories } = group;
  const { place, note } = site;
  if (trajectories.length === 0) {
    note("empty-group", place);
    return { isVaried: false, fits: false };
  }
  const seen = new Set<string>();
  let hasTurns = false;
  let fits = false;
  for (const [index, trajectory] of trajectories.entries()) {
    const at = `${place}.trajectories.${index}`;
    if (!Number.isFinite(trajectory.reward)) note("non-finite-reward", `${at}.reward`);
    const rows = examineTrajectory(trajectory, { ...site, place: at });
    hasTurns ||= rows.hasTurns;
    fits ||= rows.fits;
    const fingerprint = sampledTokens(trajectory);
    if (fingerprint !== null && seen.has(fingerprint)) note("duplicate-trajectory", at);
    if (fingerprint !== null) seen.add(fingerprint);
    yield;
  }
  if (!hasTurns) note("no-logprobs", place);
  examineAge(group, site);
  const rewards = trajectories.map((trajectory) => trajectory.reward);
  // A reward that is no number is a finding of its own; whether the others differ cannot be judged.
  const isVaried = isTrainableGroup(rewards) || !rewards.every(Number.isFinite);
  if (trajectories.length === 1) note("group-of-one", place);
  else if (!isVaried) note("constant-group", place);
  return { isVaried, fits };
}

function examineTrajectory(trajectory: WireTrajectory, { place, note, options }: Site): Rows {
  let hasTurns = false;
  let fits = false;
  for (const history of historiesOf(trajectory)) {
    let before: AssistantChoice | null = null;
    for (const [index, item] of history.items.entries()) {
      if (!isChoice(item)) continue;
      const at = `${place}.${history.place}.${index}`;
      hasTurns = true;
      examineChoice(item, at, { note, options });
      if (!isOverlong(item, options)) fits = true;
      // Turns that continue each other are one row.
      else if (before === null || !isOverlong(before, options) || !continues(before, item)) note("overlong-row", at);
      before = item;
    }
  }
  // Without a turn nothing is too long: that is another finding.
  return { hasTurns, fits: fits || !hasTurns };
}

function examineChoice(choice: AssistantChoice, place: string, { note, options }: Pick<Site, "note" | "options">): void {
  const problem = turnProblem(choice);
  // What else is wrong with a choice that is rendered, its tokens tell.
  if (problem === "choice-without-token-ids" && options.rendersTokenIds === true) note("rendered-choice", place);
  else if (problem !== null && !(problem === "choice-without-logprobs" && options.allowsUnknownLogprobs === true)) note(problem, place);
  for (const kind of samplingKinds(choice)) note(SAMPLING_CODES[kind], place);
}

const SAMPLING_CODES = {
  temperature: "temperature",
  truncated: "truncated-sampling",
  biased: "biased-sampling",
  grammar: "grammar-mask",
} as const;

function isOverlong(choice: AssistantChoice, { maxTokens }: PreflightOptions): boolean {
  return maxTokens !== undefined && sequenceTokens(choice) > maxTokens;
}

/** Whether the turn's prompt begins with all tokens of the turn before. */
function continues(before: AssistantChoice, { prompt_token_ids: prompt }: AssistantChoice): boolean {
  const tokens = [...(before.prompt_token_ids ?? []), ...(before.token_ids ?? [])];
  return tokens.every((token, index) => prompt?.[index] === token);
}

/** Whether the group's oldest choice is too many steps old. */
function examineAge(group: WireTrajectoryGroup, { place, note, options: { currentStep, maxStepsOffPolicy = 0 } }: Site): void {
  if (currentStep === undefined) return;
  const versions = group.trajectories.flatMap((each) => [
    each.initial_policy_version,
    ...allChoices(each).map((choice) => choice.policy_version),
  ]);
  const oldest = versions.reduce<number>((min, version) => Math.min(min, version ?? min), currentStep);
  if (currentStep - oldest > maxStepsOffPolicy) note("stale-group", place);
}

/** Groups of another size than most; those of none and one have findings of their own. */
function examineSizes(groups: readonly WireTrajectoryGroup[], note: Note): void {
  const bySize = new Map<number, number>();
  for (const { trajectories } of groups) {
    if (trajectories.length > 1) bySize.set(trajectories.length, (bySize.get(trajectories.length) ?? 0) + 1);
  }
  const [usual] = [...bySize].sort(([sizeA, countA], [sizeB, countB]) => countB - countA || sizeB - sizeA)[0] ?? [];
  for (const [index, { trajectories }] of groups.entries()) {
    if (trajectories.length > 1 && trajectories.length !== usual) note("unbalanced-group", `trajectory_groups.${index}`);
  }
}

/** Bytes of `JSON.stringify(groups)`, one trajectory at a time, until there are too many. */
function* examineBytes(groups: readonly WireTrajectoryGroup[], maxBytes: number, note: Note): Steps<void> {
  const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
  // Two brackets, and a comma between each two.
  let bytes = 2 + Math.max(0, groups.length - 1);
  for (const [index, group] of groups.entries()) {
    bytes += bytesOf({ ...group, trajectories: [] }) + Math.max(0, group.trajectories.length - 1);
    for (const trajectory of group.trajectories) {
      bytes += bytesOf(trajectory);
      if (bytes > maxBytes) break;
      yield;
    }
    if (bytes <= maxBytes) continue;
    note("payload-too-large", `trajectory_groups.${index}`);
    return;
  }
}

/** Everything sampled in a trajectory as one comparable text; null when no token ids are known. */
function sampledTokens(trajectory: WireTrajectory): string | null {
  const turns = allChoices(trajectory);
  if (turns.length === 0 || turns.some((turn) => (turn.token_ids ?? []).length === 0)) return null;
  return turns.map((turn) => `${(turn.prompt_token_ids ?? []).join(",")}>${turn.token_ids?.join(",") ?? ""}`).join("|");
}
