/** Measurement of a judge against rollouts with a known order: agreement, noise, and dependence on the order of the rollouts. */
import { ArgumentError, isAbort } from "../../base/errors.ts";
import type { GroupReward, GroupRewardResult } from "../../base/trajectory/group-scoring.ts";
import { checkedScore } from "../../base/trajectory/scoring.ts";
import type { Trajectory } from "../../base/trajectory/trajectory.ts";
import { uniform } from "../../base/util/rng.ts";
import { first, itemAt, last, messageOf, zip, checkInteger, refuse } from "../../base/util/values.ts";

/** Rollouts of one scenario with a known order. */
export interface JudgeCase<S> {
  /** Scenario that was played. */
  readonly scenario: S;
  /** Rollouts; at least two. */
  readonly trajectories: readonly Trajectory[];
  /** Known quality of each rollout; higher is better. Two rollouts of equal quality are not compared. @default listed from best to worst */
  readonly quality?: readonly number[] | undefined;
}

/** Options of {@link validateJudge}. */
export interface ValidateJudgeOptions {
  /** Number of orders in which each case is judged, each with a seed of its own; at least 2. @default 4 */
  readonly orders?: number | undefined;
  /** Seed of the orders; a non-negative integer. @default 0 */
  readonly seed?: number | undefined;
  /** Min fraction of pairs in the known order, in [0, 1]. @default 0.75 */
  readonly minAccuracy?: number | undefined;
  /** Max mean change of a score between orders beyond the judge's own noise; at least 0. @default 0.05 */
  readonly orderTolerance?: number | undefined;
  /** Stops the validation, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Codes of the problems that {@link validateJudge} detects. */
export type JudgeFindingCode = "judge-failed" | "no-agreement" | "low-agreement" | "order-changes-scores";

/** Problem found by {@link validateJudge}. */
export interface JudgeFinding {
  /** Code of the problem. */
  readonly code: JudgeFindingCode;
  /** Severity. `fatal`: the reward would not lead to better rollouts. `warning`: it may, but with noise. */
  readonly severity: "fatal" | "warning";
  /** Description of the problem and its remedy. */
  readonly message: string;
}

/** Size of a change of scores. */
export interface ScoreChange {
  /** Mean over all rollouts of all cases; NaN without any. */
  readonly mean: number;
  /** Maximum over all rollouts of all cases; NaN without any. */
  readonly max: number;
}

/** Result of {@link validateJudge}. */
export interface JudgeValidation {
  /** Whether no finding is fatal. */
  readonly isValid: boolean;
  /** Calls of the group reward. */
  readonly calls: {
    /** Number of calls: one per case and order, and one repetition per case. */
    readonly total: number;
    /** Number of calls that failed. */
    readonly failed: number;
  };
  /** Fraction of pairs of different known quality that are scored in the known order; equal scores count half. NaN without pairs. */
  readonly pairwiseAccuracy: number;
  /** Kendall's τ-b between known quality and scores, mean over calls; 0 for a call with equal scores only. NaN without calls. */
  readonly kendallTau: number;
  /** Difference between the largest and the smallest score of a rollout over the orders. */
  readonly orderChange: ScoreChange;
  /** Change of a rollout's score when the same order is judged twice with the same seed: 0 for a deterministic or cached judge. */
  readonly noise: ScoreChange;
  /** Findings, fatal ones first. */
  readonly findings: readonly JudgeFinding[];
}

/**
 * Measures if a group reward agrees with a known order of rollouts, and if it depends on the order in which rollouts are given to it.
 *
 * Each case is judged in several orders with different seeds, and in the first order twice.
 *
 * @param reward - Group reward, such as one of `relativeJudge`.
 * @param cases - Rollouts with a known order; at least one case. A dozen cases with clear differences show most defects.
 * @param options - Number of orders, thresholds, seed and signal.
 * @returns Agreement, changes between orders and the findings.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds, no cases, or a case with fewer than two rollouts.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { judgeEndpoint, relativeJudge } from "whetstone/judge";
 *
 * const reward = relativeJudge({ model: judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b" }) });
 * const cases = groups.map(({ trajectories }) => ({ scenario: null, trajectories, quality: trajectories.map((each) => each.reward) }));
 * const { pairwiseAccuracy, findings } = await validateJudge(reward, cases);
 * ```
 */
export async function validateJudge<S>(
  reward: GroupReward<S>,
  cases: readonly JudgeCase<S>[],
  options: ValidateJudgeOptions = {},
): Promise<JudgeValidation> {
  const { orders = 4, seed = 0, minAccuracy = 0.75, orderTolerance = 0.05, signal = new AbortController().signal } = options;
  checkInteger("orders", orders, 2);
  checkInteger("seed", seed, 0);
  if (!(minAccuracy >= 0 && minAccuracy <= 1)) refuse("minAccuracy", "in [0, 1]", minAccuracy);
  if (!(orderTolerance >= 0)) refuse("orderTolerance", "at least 0", orderTolerance);
  checkCases(cases);
  const judged: JudgedCase[] = [];
  for (const [index, each] of cases.entries()) {
    signal.throwIfAborted();
    // The cases have disjoint ranges of seeds, because each order of a case has the next seed.
    judged.push(await judgedCase(reward, each, { orders, seed: seed + index * (orders + 1), signal }));
  }
  const calls = judged.flatMap(({ calls: all }) => all);
  const failures = calls.filter((call) => typeof call === "string");
  const measured = {
    ...agreementOfAll(judged),
    orderChange: changeOf(judged.map(({ calls: all }) => all.slice(0, orders))),
    noise: changeOf(judged.map(({ calls: all }) => [first(all), last(all)])),
  };
  const findings = findingsOf(measured, { failures, total: calls.length, minAccuracy, orderTolerance });
  return {
    isValid: findings.every(({ severity }) => severity !== "fatal"),
    calls: { total: calls.length, failed: failures.length },
    ...measured,
    findings,
  };
}

/** Scores in the order of the case's rollouts, or the message of an error. */
type Call = readonly number[] | string;

/** Calls of the group reward on one case. */
interface JudgedCase {
  /** Known quality of each rollout; higher is better. */
  readonly quality: readonly number[];
  /** Scores of one call per order, then of a second call with the first order. */
  readonly calls: readonly Call[];
}

/** Judges a case in all orders. @param seed - Seed of the case; order `k` is judged with `seed + k`. */
async function judgedCase<S>(
  reward: GroupReward<S>,
  { scenario, trajectories, quality }: JudgeCase<S>,
  { orders, seed, signal }: { readonly orders: number; readonly seed: number; readonly signal: AbortSignal },
): Promise<JudgedCase> {
  const count = trajectories.length;
  const judge = async (order: number): Promise<Call> => {
    const positions = permutation(count, seed, order);
    const permuted = positions.map((position) => itemAt(trajectories, position));
    const input = { scenario, trajectories: permuted, seed: seed + order, signal };
    try {
      const scores = valuesOf(await reward.scoreGroup(input), count);
      return typeof scores === "string" ? scores : trajectories.map((_, index) => itemAt(scores, positions.indexOf(index)));
    } catch (error) {
      signal.throwIfAborted();
      if (isAbort(error)) throw error;
      return messageOf(error);
    }
  };
  const judgedOrders = [...Array.from({ length: orders }, (_, order) => order), 0];
  const listedFromBest = trajectories.map((_, index) => -index);
  return { quality: quality ?? listedFromBest, calls: await Promise.all(judgedOrders.map(judge)) };
}

/** Returns the values of a result; the problem if one of them is missing or not a valid score. */
function valuesOf(result: GroupRewardResult, count: number): Call {
  const scores = "scores" in result ? result.scores : result;
  if (scores.length !== count) return `expected ${count} values, got ${scores.length}`;
  const values = scores.map((score) => (score instanceof Error ? score.message : checkedScore(score)));
  const problem = values.find((value) => typeof value === "string");
  return problem ?? values.map((value) => (typeof value === "string" ? Number.NaN : value.value));
}

/** Returns the positions in a random order; order 0 is the order of the case. */
function permutation(count: number, seed: number, order: number): number[] {
  const positions = Array.from({ length: count }, (_, index) => index);
  if (order === 0) return positions;
  const keyed = positions.map((position) => ({ position, key: uniform(BigInt(seed), order, position) }));
  return keyed.sort((a, b) => a.key - b.key).map(({ position }) => position);
}

/** Compares the scores of all calls that did not fail with the known quality. */
function agreementOfAll(cases: readonly JudgedCase[]): Pick<JudgeValidation, "pairwiseAccuracy" | "kendallTau"> {
  const agreements = cases.flatMap(({ quality, calls }) => {
    const scored = calls.filter((call) => typeof call !== "string");
    return scored.map((scores) => agreementOf(quality, scores));
  });
  const pairs = agreements.reduce((sum, each) => sum + each.pairs, 0);
  const inOrder = agreements.reduce((sum, each) => sum + each.concordant + each.ties / 2, 0);
  return { pairwiseAccuracy: inOrder / pairs, kendallTau: mean(agreements.map(({ tau }) => tau)) };
}

/**
 * Compares the scores of all pairs of rollouts with their known quality.
 *
 * @returns The number of pairs of different known quality (`pairs`), how many of them are scored in the known order (`concordant`) and equal
 *   (`ties`), and Kendall's τ-b (`tau`).
 * @source Kendall, Rank Correlation Methods (1948): τ-b, corrected for ties.
 */
function agreementOf(quality: readonly number[], scores: readonly number[]) {
  let [pairs, concordant, ties] = [0, 0, 0];
  /** Number of pairs with different scores, also of equal quality. */
  let scoredPairs = 0;
  const rated = zip(quality, scores);
  for (const [index, [qualityA, scoreA]] of rated.entries()) {
    for (const [qualityB, scoreB] of rated.slice(0, index)) {
      const [knownSign, scoreSign] = [Math.sign(qualityA - qualityB), Math.sign(scoreA - scoreB)];
      if (scoreSign !== 0) scoredPairs++;
      if (knownSign === 0) continue;
      pairs++;
      if (scoreSign === 0) ties++;
      else if (scoreSign === knownSign) concordant++;
    }
  }
  const discordant = pairs - ties - concordant;
  const scale = Math.sqrt(pairs * scoredPairs);
  return { pairs, concordant, ties, tau: scale === 0 ? 0 : (concordant - discordant) / scale };
}

/**
 * Returns how much the scores of a rollout differ between the calls of its case. Failed calls are left out, and cases with fewer than two
 * others.
 */
function changeOf(cases: readonly (readonly Call[])[]): ScoreChange {
  const changes = cases.flatMap((calls) => {
    const scores = calls.filter((call) => typeof call !== "string");
    if (scores.length < 2) return [];
    return first(scores).map((_, index) => {
      const scoresOfRollout = scores.map((call) => itemAt(call, index));
      return Math.max(...scoresOfRollout) - Math.min(...scoresOfRollout);
    });
  });
  return { mean: mean(changes), max: changes.length === 0 ? Number.NaN : Math.max(...changes) };
}

/** Returns the findings about failed calls, agreement and dependence on the order. */
function findingsOf(
  { pairwiseAccuracy, orderChange, noise }: Pick<JudgeValidation, "pairwiseAccuracy" | "orderChange" | "noise">,
  limits: { readonly failures: readonly Call[]; readonly total: number; readonly minAccuracy: number; readonly orderTolerance: number },
): JudgeFinding[] {
  const { failures, total, minAccuracy, orderTolerance } = limits;
  const findings: JudgeFinding[] = [];
  if (failures.length > 0) {
    const message = `The group reward failed in ${failures.length} of ${total} calls, first with: ${String(failures[0])}. In training, such rollouts would fail.`;
    findings.push({ code: "judge-failed", severity: "fatal", message });
  }
  const share = `${pairwiseAccuracy.toFixed(3)} of the pairs are scored in the known order`;
  if (pairwiseAccuracy <= 0.5) {
    const message = `Only ${share}, which is no better than chance. Use another model or another rubric.`;
    findings.push({ code: "no-agreement", severity: "fatal", message });
  } else if (pairwiseAccuracy < minAccuracy) {
    const message = `${share}, below \`minAccuracy\` (${minAccuracy}). Name the standards in the rubric, or use a stronger model.`;
    findings.push({ code: "low-agreement", severity: "warning", message });
  }
  if (orderChange.mean - noise.mean > orderTolerance) {
    const message = `Scores change by ${orderChange.mean.toFixed(3)} on average with the order of the rollouts, noise is ${noise.mean.toFixed(3)}. Use several \`samples\`, or a stronger model.`;
    findings.push({ code: "order-changes-scores", severity: "warning", message });
  }
  return findings;
}

/** Returns the mean; NaN without values. */
function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** @throws ArgumentError `E_ARGUMENT` as {@link validateJudge}. */
function checkCases<S>(cases: readonly JudgeCase<S>[]): void {
  const fail = (problem: string): never => {
    throw new ArgumentError(`Expected \`cases\` ${problem}`, { param: "cases" });
  };
  if (!Array.isArray(cases) || cases.length === 0) fail("to be a list with at least one case");
  for (const [index, { trajectories, quality }] of cases.entries()) {
    if (trajectories.length < 2) fail(`with at least two rollouts each, got ${trajectories.length} in case ${index}`);
    if (quality === undefined) continue;
    const isValid = quality.length === trajectories.length && quality.every(Number.isFinite);
    if (!isValid) fail(`with one finite \`quality\` per rollout, got ${quality.length} for ${trajectories.length} in case ${index}`);
  }
}
