import { WhetstoneError } from "../errors.ts";
import type { AssistantChoice, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { runSteps, type Steps } from "../util/steps.ts";
import { isChoice } from "./messages.ts";
import { isTrainableGroup } from "./trainable.ts";
import { NO_SAMPLED_TURN, TURN_PROBLEMS, turnProblem, type TurnProblem } from "./turn.ts";

/** What preflight can find. */
export type FindingCode =
  | "no-groups"
  | "empty-group"
  | "group-of-one"
  | "constant-group"
  | "nothing-to-learn"
  | "no-logprobs"
  | TurnProblem
  | "non-finite-reward"
  | "duplicate-trajectory"
  | "temperature";

/** One finding. */
export interface Finding {
  readonly code: FindingCode;
  /** `fatal`: the batch is refused. `warning`: it trains, but perhaps not what was meant. */
  readonly severity: "fatal" | "warning";
  /** How many places. */
  readonly count: number;
  /** The first few, e.g. `trajectory_groups.3.trajectories.1`. */
  readonly examples: readonly string[];
  /** What is wrong and what to do. */
  readonly message: string;
}

/** A batch that would train nothing, or something broken. Raised before any request is sent; the service raises the same. */
export class PreflightError extends WhetstoneError {
  readonly code = "E_PREFLIGHT";
  /** All findings, warnings included; fatal ones first. */
  readonly findings: readonly Finding[];

  constructor(findings: readonly Finding[]) {
    const fatal = findings.filter((finding) => finding.severity === "fatal");
    super(`The batch cannot be trained: ${fatal.map((finding) => `${finding.message} (${places(finding)})`).join(" ")}`, {
      param: "trajectory_groups",
    });
    this.findings = findings;
  }

  override toJSON() {
    return { ...super.toJSON(), findings: this.findings };
  }
}

const MAX_EXAMPLES = 5;

/** Severity and advice per code, in the order of the report. */
const RULES: Readonly<Record<FindingCode, readonly ["fatal" | "warning", string]>> = {
  "no-groups": ["fatal", "There is no trajectory in the batch. Send at least one group of two finished trajectories."],
  "non-finite-reward": ["fatal", "A reward is not a finite number. Make the reward function return one."],
  "choice-without-token-ids": ["fatal", TURN_PROBLEMS["choice-without-token-ids"]],
  "choice-without-logprobs": ["fatal", TURN_PROBLEMS["choice-without-logprobs"]],
  "empty-choice": ["fatal", TURN_PROBLEMS["empty-choice"]],
  "token-count-mismatch": ["fatal", TURN_PROBLEMS["token-count-mismatch"]],
  "non-finite-logprob": ["fatal", TURN_PROBLEMS["non-finite-logprob"]],
  "no-logprobs": ["fatal", NO_SAMPLED_TURN],
  "nothing-to-learn": [
    "fatal",
    "No group has two different rewards, so every advantage is zero. Use a finer reward, a larger group, a temperature of 1, or easier scenarios.",
  ],
  "constant-group": ["warning", "All rewards of a group are equal; it adds nothing to the gradient."],
  "group-of-one": ["warning", "A group has a single trajectory: there is nothing to compare it with, so it adds nothing to the gradient."],
  "empty-group": ["warning", "A group has no trajectory (did all its rollouts fail?)."],
  "duplicate-trajectory": [
    "warning",
    "Trajectories of one group are the same, token for token. A few are normal late in training; many mean too little exploration, or one appended twice.",
  ],
  temperature: [
    "warning",
    "Turns were sampled at a temperature other than 1: their log-probabilities are not those of the distribution they came from. Use temperature 1 for training rollouts.",
  ],
};

/**
 * Examines a batch before it is trained. Pure; the client and the service run this same function.
 *
 * @returns Findings, fatal ones first; empty when all is well.
 */
export function preflight(groups: readonly WireTrajectoryGroup[]): Finding[] {
  return runSteps(preflightSteps(groups));
}

/** {@link preflight}, one trajectory at a time, for whoever shares the thread. */
export function* preflightSteps(groups: readonly WireTrajectoryGroup[]): Steps<Finding[]> {
  const found = new Map<FindingCode, string[]>();
  const note = (code: FindingCode, place: string) => {
    const places = found.get(code) ?? [];
    found.set(code, places);
    places.push(place);
  };
  let learnable = 0;
  for (const [index, group] of groups.entries()) {
    if (yield* examineGroup(group, `trajectory_groups.${index}`, note)) learnable++;
  }
  if (groups.every((group) => group.trajectories.length === 0)) note("no-groups", "trajectory_groups");
  else if (learnable === 0) note("nothing-to-learn", "trajectory_groups");
  const order = Object.keys(RULES) as FindingCode[];
  return order.flatMap((code) => {
    const places = found.get(code);
    if (places === undefined) return [];
    const [severity, message] = RULES[code];
    return [{ code, severity, count: places.length, examples: places.slice(0, MAX_EXAMPLES), message }];
  });
}

/**
 * {@link preflight} that throws.
 *
 * @returns The warnings.
 * @throws {@link PreflightError} `E_PREFLIGHT` when a finding is fatal.
 */
export function assertTrainable(groups: readonly WireTrajectoryGroup[]): Finding[] {
  return refuseFatal(preflight(groups));
}

/** The findings again, if all are warnings. @throws {@link PreflightError} `E_PREFLIGHT` when one is fatal. */
export function refuseFatal(findings: Finding[]): Finding[] {
  if (findings.some((finding) => finding.severity === "fatal")) throw new PreflightError(findings);
  return findings;
}

type Note = (code: FindingCode, place: string) => void;

/** Whether the group's rewards can teach anything. */
function* examineGroup(group: WireTrajectoryGroup, place: string, note: Note): Steps<boolean> {
  const { trajectories } = group;
  if (trajectories.length === 0) {
    note("empty-group", place);
    return false;
  }
  const seen = new Set<string>();
  let hasTurns = false;
  for (const [index, trajectory] of trajectories.entries()) {
    const at = `${place}.trajectories.${index}`;
    if (!Number.isFinite(trajectory.reward)) note("non-finite-reward", `${at}.reward`);
    if (examineTrajectory(trajectory, at, note)) hasTurns = true;
    const fingerprint = sampledTokens(trajectory);
    if (fingerprint !== null && seen.has(fingerprint)) note("duplicate-trajectory", at);
    if (fingerprint !== null) seen.add(fingerprint);
    yield;
  }
  if (!hasTurns) note("no-logprobs", place);
  const rewards = trajectories.map((trajectory) => trajectory.reward);
  // A reward that is no number is a finding of its own; whether the others differ cannot be judged.
  const isVaried = isTrainableGroup(rewards) || !rewards.every(Number.isFinite);
  if (trajectories.length === 1) note("group-of-one", place);
  else if (!isVaried) note("constant-group", place);
  return isVaried;
}

/** Whether the trajectory has a sampled turn. */
function examineTrajectory(trajectory: WireTrajectory, place: string, note: Note): boolean {
  let hasTurns = false;
  const histories = [
    { items: trajectory.messages_and_choices, at: `${place}.messages_and_choices` },
    ...trajectory.additional_histories.map((history, index) => ({
      items: history.messages_and_choices,
      at: `${place}.additional_histories.${index}.messages_and_choices`,
    })),
  ];
  for (const { items, at } of histories) {
    items.forEach((item, index) => {
      if (!isChoice(item)) return;
      hasTurns = true;
      examineChoice(item, `${at}.${index}`, note);
    });
  }
  return hasTurns;
}

function examineChoice(choice: AssistantChoice, place: string, note: Note): void {
  const problem = turnProblem(choice);
  if (problem !== null) note(problem, place);
  const temperature = choice["temperature"];
  if (typeof temperature === "number" && temperature !== 1) note("temperature", place);
}

/** Everything sampled in a trajectory as one comparable text; null when no token ids are known. */
function sampledTokens(trajectory: WireTrajectory): string | null {
  const turns = trajectory.messages_and_choices.filter(isChoice);
  if (turns.length === 0 || turns.some((turn) => (turn.token_ids ?? []).length === 0)) return null;
  return turns.map((turn) => `${(turn.prompt_token_ids ?? []).join(",")}>${turn.token_ids?.join(",") ?? ""}`).join("|");
}

function places({ count, examples }: Finding): string {
  const more = count > examples.length ? `, and ${count - examples.length} more` : "";
  return `at ${examples.join(", ")}${more}`;
}
