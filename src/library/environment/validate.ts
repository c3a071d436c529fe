/** Validation of an environment's rewards, by scoring right and empty answers. `play-gold.ts` plays right answers that call tools. */
import { ConfigError, isAbort } from "../../base/errors.ts";
import type { AssistantChoice, MessageOrChoice, RequestMessage } from "../../base/schema/index.ts";
import { textOf } from "../../base/trajectory/messages.ts";
import { REWARD_PREFIX } from "../../base/trajectory/scoring.ts";
import { isTrainableGroup } from "../../base/trajectory/trainable.ts";
import { Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { Environment } from "./environment.ts";
import { finding } from "./finding.ts";
import { callsTools, playFindings, playGold, type PlayedGold } from "./play-gold.ts";
import { highestReward } from "./highest-reward.ts";
import { scoreGroup, scoreRollout } from "./rollout.ts";
import { scenarioIdOf, trainScenarios } from "./scenarios.ts";
import { messageOf, checkInteger, refuse } from "../../base/util/values.ts";

/** Number of scenarios and expected reward of {@link validate}. */
export interface ValidateOptions {
  /** Max scenarios to validate per split, at least 1. @default 100 */
  readonly count?: number | undefined;
  /**
   * Total reward that every right answer should earn.
   *
   * @default the sum of the positive reward weights; the highest total of a right answer if a raw value is outside [0, 1]
   */
  readonly expected?: number | undefined;
  /** Max difference of an answer's total reward between the two orders in which group rewards score it; at least 0. @default 0.05 */
  readonly orderTolerance?: number | undefined;
  /** Stops the validation, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Codes of the problems that {@link validate} detects. */
export type ValidationCode =
  | "reward-failed"
  | "rollout-failed"
  | "tool-failed"
  | "gold-below-expected"
  | "no-difference"
  | "reward-without-difference"
  | "order-changes-reward"
  | "same-id"
  | "in-both-splits";

/** Problem found by {@link validate}. */
export interface ValidationFinding {
  /** Code of the problem. */
  readonly code: ValidationCode;
  /** Severity. `fatal`: training would optimize something other than the task. `warning`: may be intended. */
  readonly severity: "fatal" | "warning";
  /** Number of affected scenarios or rewards. */
  readonly count: number;
  /** Scenario ids or reward names of the first 5 cases. */
  readonly examples: readonly string[];
  /** Description of the problem and its remedy. */
  readonly message: string;
}

/** Scores of one scenario's right answer and of an empty answer. Group rewards score the two as one group. */
export interface GoldScore {
  /** Split of the scenario. */
  readonly split: "train" | "eval";
  /** ID of the scenario, see `scenarioIdOf`. */
  readonly scenarioId: string;
  /** Total reward of the right answer; null if a reward failed on it. */
  readonly reward: number | null;
  /** Total reward of an empty answer; null if a reward failed on it. */
  readonly emptyReward: number | null;
  /** Raw value of each reward for the right answer, by name. */
  readonly rewards: Readonly<Record<string, number>>;
}

/** Result of {@link validate}. */
export interface Validation {
  /** Name of the environment. */
  readonly environment: string;
  /** Whether no finding is fatal. */
  readonly isValid: boolean;
  /** Total reward that right answers were compared with. */
  readonly expected: number;
  /** Findings, fatal ones first. */
  readonly findings: readonly ValidationFinding[];
  /** Scores of every validated scenario. */
  readonly scores: readonly GoldScore[];
}

/** Max number of right answers that are played; a rollout may take long. */
const MAX_PLAYED = 10;

/**
 * Validates an environment's rewards by scoring the right answer of each scenario and an empty answer. If the right answer earns less than
 * the maximum, or the same as an empty answer, training would optimize something other than the task. No policy is sampled.
 *
 * Group rewards score the two answers as one group, twice: in this order and in the reverse order. A reward that depends on the order by
 * more than `orderTolerance` is reported.
 *
 * If the right answer calls tools, the first ten are also played: the rollout runs with the messages of `gold` in place of a model, so that
 * its tools run. A rollout or a tool that fails is reported. Give `gold` as messages with `tool_calls` to have tools checked.
 *
 * The rewards receive only the turns of `gold`, without the prompt and without metrics or metadata that the rollout records.
 *
 * @param environment - Environment with `gold`.
 * @param options - Number of scenarios, expected reward and a signal.
 * @returns The findings and the scores.
 * @throws ConfigError `E_CONFIG` for an environment without `gold`, rewards or scenarios.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const { isValid, findings } = await validate(environment);
 * for (const { severity, message, examples } of findings) console.log(severity, message, examples);
 * ```
 */
export async function validate<S>(environment: Environment<S>, options: ValidateOptions = {}): Promise<Validation> {
  const { count = 100, expected, orderTolerance = 0.05, signal = new AbortController().signal } = options;
  checkInteger("count", count, 1);
  if (expected !== undefined && !Number.isFinite(expected)) refuse("expected", "finite", expected);
  if (!(orderTolerance >= 0)) refuse("orderTolerance", "at least 0", orderTolerance);
  const { name, gold } = environment;
  const rewards = [...environment.rewards, ...environment.groupRewards];
  if (gold === undefined)
    throw new ConfigError(`Environment \`${name}\` has no \`gold\`; give it the right answer of a scenario`, { param: "gold" });
  if (rewards.length === 0) throw new ConfigError(`Environment \`${name}\` has no \`rewards\` to validate`, { param: "rewards" });
  const probes: Probe[] = [];
  for (const { split, scenario } of scenariosOf(environment, count)) {
    signal.throwIfAborted();
    const answer = gold(scenario);
    const scores = await scoreInBothOrders(environment, scenario, answer, signal);
    const playedCount = probes.filter((each) => each.played !== null).length;
    const isPlayed = callsTools(answer) && playedCount < MAX_PLAYED;
    const played = isPlayed ? await playGold(environment, scenario, answer, signal) : null;
    probes.push({ played, split, scenarioId: scenarioIdOf(environment, scenario), ...scores });
  }
  const target = expected ?? expectedOf(environment, probes);
  const findings = [...findingsOf(probes, target, rewards), ...orderFindings(probes, orderTolerance), ...idFindings(environment, count)];
  return {
    environment: name,
    isValid: findings.every(({ severity }) => severity !== "fatal"),
    expected: target,
    findings: findings.sort((a, b) => Number(b.severity === "fatal") - Number(a.severity === "fatal")),
    scores: probes.map(({ split, scenarioId, right, empty }) => ({
      split,
      scenarioId,
      reward: right.reward,
      emptyReward: empty.reward,
      rewards: right.values,
    })),
  };
}

/** Score of an answer. If a reward failed on it, `reward` is null, `values` is empty, and `failure` is the error's message. */
interface Outcome {
  readonly reward: number | null;
  /** Raw value of each reward by name. */
  readonly values: Readonly<Record<string, number>>;
  readonly failure: string | null;
}

/** Scenario with the scores of its two answers, the right one and an empty one. */
interface Probe {
  /** Failures of the played right answer; null if it was not played. */
  readonly played: PlayedGold | null;
  readonly split: "train" | "eval";
  readonly scenarioId: string;
  readonly right: Outcome;
  readonly empty: Outcome;
  /** Largest difference of an answer's total reward between the two orders of the answers in their group; 0 without group rewards. */
  readonly orderChange: number;
}

/** Returns the first `count` scenarios of each split. @throws ConfigError `E_CONFIG` without scenarios. */
function scenariosOf<S>({ scenarios, name }: Environment<S>, count: number): { split: "train" | "eval"; scenario: S }[] {
  const { train, eval: heldOut } = scenarios;
  const trained = typeof train === "function" ? trainScenarios(train, { count }) : train.slice(0, count);
  const all = [
    ...trained.map((scenario) => ({ split: "train" as const, scenario })),
    ...heldOut.slice(0, count).map((scenario) => ({ split: "eval" as const, scenario })),
  ];
  if (all.length > 0) return all;
  throw new ConfigError(`Environment \`${name}\` has no scenarios`, { param: "scenarios" });
}

/** The two answers whose scores are compared. */
type AnswerName = "right" | "empty";
type Outcomes = Readonly<Record<AnswerName, Outcome>>;

/** Answers to score as one group. */
interface AnswerGroup {
  /** Turns of each answer. */
  readonly answers: Readonly<Record<AnswerName, readonly MessageOrChoice[]>>;
  /** Order of the answers in the group. */
  readonly order: readonly AnswerName[];
  readonly signal: AbortSignal;
}

/** Scores the right answer and an empty one; with group rewards, also in the reverse order. */
async function scoreInBothOrders<S>(
  environment: Environment<S>,
  scenario: S,
  answer: string | readonly RequestMessage[],
  signal: AbortSignal,
) {
  const answers = { right: goldItems(answer), empty: goldItems("") };
  const outcomes = await scoreAnswers(environment, scenario, { answers, order: ["right", "empty"], signal });
  if (environment.groupRewards.length === 0) return { ...outcomes, orderChange: 0 };
  const reversed = await scoreAnswers(environment, scenario, { answers, order: ["empty", "right"], signal });
  return { ...outcomes, orderChange: orderChange(outcomes, reversed) };
}

/** Scores the two answers, as one group if the environment has group rewards. */
async function scoreAnswers<S>(environment: Environment<S>, scenario: S, { answers, order, signal }: AnswerGroup): Promise<Outcomes> {
  const outcomes: { right?: Outcome; empty?: Outcome } = {};
  const scored: { readonly name: AnswerName; readonly trajectory: Trajectory }[] = [];
  for (const name of order) {
    try {
      const played = Trajectory.fromJSON({ messages_and_choices: answers[name] });
      scored.push({ name, trajectory: await scoreRollout(environment, scenario, played, signal) });
    } catch (error) {
      if (isAbort(error)) throw error;
      signal.throwIfAborted();
      outcomes[name] = failedOutcome(messageOf(error));
    }
  }
  // Marked, because a failed trajectory is missing in the scored group.
  const marked = scored.map(({ name, trajectory }) => trajectory.with({ metadata: { [ANSWER]: name } }));
  const group = await scoreGroup(environment, scenario, new TrajectoryGroup({ trajectories: marked }), signal);
  const components = [...environment.rewards, ...environment.groupRewards];
  for (const { metadata, reward, metrics } of group.trajectories) {
    const values = Object.fromEntries(components.map(({ name }) => [name, Number(metrics[REWARD_PREFIX + name])]));
    outcomes[metadata[ANSWER] as AnswerName] = { reward, values, failure: null };
  }
  const groupFailure = failedOutcome(group.exceptions[0]?.message ?? "");
  return { right: outcomes.right ?? groupFailure, empty: outcomes.empty ?? groupFailure };
}

/** Metadata that marks the trajectory of an answer, `right` or `empty`. */
const ANSWER = "answer";

/** Returns the outcome of an answer on which a reward failed. */
function failedOutcome(failure: string): Outcome {
  return { reward: null, values: {}, failure };
}

/** Returns the largest change of an answer's total reward; 0 for answers that failed in one of the orders. */
function orderChange(outcomes: Outcomes, reversed: Outcomes): number {
  const changes = (["right", "empty"] as const).map((name) => {
    const [a, b] = [outcomes[name].reward, reversed[name].reward];
    return a === null || b === null ? 0 : Math.abs(a - b);
  });
  return Math.max(...changes);
}

/** Converts a right answer to the end of a conversation. Assistant messages become choices, as in a rollout. */
function goldItems(gold: string | readonly RequestMessage[]): MessageOrChoice[] {
  const messages = typeof gold === "string" ? [{ role: "assistant", content: gold }] : gold;
  return messages.map((message) => (message.role === "assistant" ? toChoice(message) : message));
}

/** Converts an assistant message to a sampled turn. */
function toChoice(message: RequestMessage): AssistantChoice {
  const calls = message.tool_calls ?? [];
  return { index: 0, message: { ...message, content: textOf(message) }, finish_reason: calls.length > 0 ? "tool_calls" : "stop" };
}

/** Returns the default of `expected`: the maximum of rewards in [0, 1], else the highest total that a right answer got. */
function expectedOf(environment: Pick<Environment<never>, "rewards" | "groupRewards">, probes: readonly Probe[]): number {
  const isUnit = probes.every(({ right }) => Object.values(right.values).every((value) => value >= 0 && value <= 1));
  const totals = probes.flatMap(({ right }) => (right.reward === null ? [] : [right.reward]));
  return isUnit || totals.length === 0 ? highestReward(environment) : Math.max(...totals);
}

/** Returns the findings about the scores of the answers and about the played ones. */
function findingsOf(probes: readonly Probe[], expected: number, rewards: readonly { readonly name: string; readonly weight: number }[]) {
  const ids = (isFound: (probe: Probe) => boolean) => probes.filter(isFound).map(({ scenarioId }) => scenarioId);
  const failure = probes.map(({ right, empty }) => right.failure ?? empty.failure).find((text) => text !== null);
  const scoredProbes = probes.filter(({ right, empty }) => right.reward !== null && empty.reward !== null);
  // Penalties (negative weights) are left out: neither a right answer nor an empty one makes the penalized mistake.
  const indifferent = rewards.filter(
    ({ name, weight }) =>
      weight > 0 && scoredProbes.length > 0 && scoredProbes.every(({ right, empty }) => right.values[name] === empty.values[name]),
  );
  return [
    finding(
      "reward-failed",
      "fatal",
      ids(({ right, empty }) => right.failure !== null || empty.failure !== null),
      `A reward fails on the right answer or on an empty one: ${failure}. A rollout like it would be lost.`,
    ),
    ...playFindings(probes),
    finding(
      "gold-below-expected",
      "fatal",
      // `isTrainableGroup` ignores differences in the size of rounding errors.
      ids(({ right }) => right.reward !== null && isTrainableGroup([right.reward, expected]) && right.reward < expected),
      `The right answer earns less than ${expected}. Mend the reward or \`gold\`; if less is the most there is, pass \`expected\`.`,
    ),
    finding(
      "no-difference",
      "fatal",
      ids(({ right, empty }) => right.reward !== null && empty.reward !== null && !isTrainableGroup([right.reward, empty.reward])),
      "The right answer earns no more and no less than an empty one: there is nothing to learn.",
    ),
    finding(
      "reward-without-difference",
      "warning",
      indifferent.map(({ name }) => name),
      "A reward gives the right answer and an empty one the same in every scenario. Set its weight to 0 if it is only to be recorded.",
    ),
  ].flat();
}

/** Returns the finding about group rewards that depend on the order of the rollouts. */
function orderFindings(probes: readonly Probe[], tolerance: number): ValidationFinding[] {
  const isChanged = ({ orderChange: change }: Probe) => change > tolerance;
  return finding(
    "order-changes-reward",
    "warning",
    probes.filter(isChanged).map(({ scenarioId }) => scenarioId),
    `A group reward changes by more than ${tolerance} when the rollouts of a group are in another order. Training would reward the position.`,
  );
}

/** Returns the findings about ids: different scenarios with one id, and scenarios in both splits. `rescore` finds a scenario by its id. */
function idFindings<S>(environment: Environment<S>, count: number): ValidationFinding[] {
  /** Contents of the scenarios by split and id, as JSON. */
  const splits = { train: new Map<string, Set<string>>(), eval: new Map<string, Set<string>>() };
  for (const { split, scenario } of scenariosOf(environment, count)) {
    const id = scenarioIdOf(environment, scenario);
    const contents = splits[split].get(id) ?? new Set();
    splits[split].set(id, contents.add(JSON.stringify(scenario) ?? ""));
  }
  const shared = [...splits.eval.keys()].filter((id) => splits.train.has(id));
  const ids = new Set([...splits.train.keys(), ...splits.eval.keys()]);
  const ambiguous = [...ids].filter((id) => new Set([...(splits.train.get(id) ?? []), ...(splits.eval.get(id) ?? [])]).size > 1);
  return [
    finding(
      "same-id",
      "fatal",
      ambiguous,
      "Different scenarios have one id, so that their trajectories cannot be told apart. Mend `id` or `scenarioId`.",
    ),
    finding(
      "in-both-splits",
      "warning",
      shared,
      "An `eval` scenario is also trained on: evaluation would measure memory. Take it out of one of the two.",
    ),
  ].flat();
}
