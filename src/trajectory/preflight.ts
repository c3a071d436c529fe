import { WhetstoneError } from "../errors.ts";
import type { AssistantChoice, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { isChoice } from "./messages.ts";

/** What preflight can find. */
export type FindingCode =
  | "no-groups"
  | "empty-group"
  | "group-of-one"
  | "constant-group"
  | "nothing-to-learn"
  | "no-logprobs"
  | "choice-without-logprobs"
  | "token-count-mismatch"
  | "non-finite-reward"
  | "non-finite-logprob"
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
  "token-count-mismatch": [
    "fatal",
    "A choice has not as many log-probabilities as token ids. Keep both exactly as the service sent them; do not cut or edit a sampled turn.",
  ],
  "non-finite-logprob": [
    "fatal",
    "A sampled token's log-probability is not a finite number at most 0. Keep the log-probabilities as the service sent them.",
  ],
  "no-logprobs": [
    "fatal",
    "A group has no sampled turn with log-probabilities. Sample with `t.sample(policy)`, or request `logprobs: true` and `return_token_ids: true` and append the whole choice, not only its message.",
  ],
  "nothing-to-learn": [
    "fatal",
    "No group has two different rewards, so every advantage is zero. Use a finer reward, a larger group, a temperature of 1, or easier scenarios.",
  ],
  "choice-without-logprobs": ["warning", "A sampled turn has no log-probabilities and is not trained; it is only context."],
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
  const found = new Map<FindingCode, string[]>();
  const note = (code: FindingCode, place: string) => {
    const places = found.get(code) ?? [];
    found.set(code, places);
    places.push(place);
  };
  let learnable = 0;
  groups.forEach((group, index) => {
    if (examineGroup(group, `trajectory_groups.${index}`, note)) learnable++;
  });
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
  const findings = preflight(groups);
  if (findings.some((finding) => finding.severity === "fatal")) throw new PreflightError(findings);
  return findings;
}

type Note = (code: FindingCode, place: string) => void;

/** Whether the group has two different rewards. */
function examineGroup(group: WireTrajectoryGroup, place: string, note: Note): boolean {
  const { trajectories } = group;
  if (trajectories.length === 0) {
    note("empty-group", place);
    return false;
  }
  const seen = new Set<string>();
  let trainable = 0;
  trajectories.forEach((trajectory, index) => {
    const at = `${place}.trajectories.${index}`;
    if (!Number.isFinite(trajectory.reward)) note("non-finite-reward", `${at}.reward`);
    if (examineTrajectory(trajectory, at, note)) trainable++;
    const fingerprint = sampledTokens(trajectory);
    if (fingerprint !== null && seen.has(fingerprint)) note("duplicate-trajectory", at);
    if (fingerprint !== null) seen.add(fingerprint);
  });
  if (trainable === 0) note("no-logprobs", place);
  const isVaried = new Set(trajectories.map((trajectory) => trajectory.reward)).size > 1;
  if (trajectories.length === 1) note("group-of-one", place);
  else if (!isVaried) note("constant-group", place);
  return isVaried;
}

/** Whether the trajectory has a turn that can be trained. */
function examineTrajectory(trajectory: WireTrajectory, place: string, note: Note): boolean {
  let isTrainable = false;
  const histories = [
    { items: trajectory.messages_and_choices, at: `${place}.messages_and_choices` },
    ...trajectory.additional_histories.map((history, index) => ({
      items: history.messages_and_choices,
      at: `${place}.additional_histories.${index}.messages_and_choices`,
    })),
  ];
  for (const { items, at } of histories) {
    items.forEach((item, index) => {
      if (isChoice(item) && examineChoice(item, `${at}.${index}`, note)) isTrainable = true;
    });
  }
  return isTrainable;
}

function examineChoice(choice: AssistantChoice, place: string, note: Note): boolean {
  const logprobs = choice.logprobs?.content ?? [];
  if (logprobs.length === 0) {
    note("choice-without-logprobs", place);
    return false;
  }
  const { token_ids: tokenIds } = choice;
  if (tokenIds !== null && tokenIds !== undefined && tokenIds.length !== logprobs.length) note("token-count-mismatch", place);
  if (logprobs.some(({ logprob }) => !Number.isFinite(logprob) || logprob > 1e-6)) note("non-finite-logprob", place);
  const temperature = choice["temperature"];
  if (typeof temperature === "number" && temperature !== 1) note("temperature", place);
  return true;
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
