/** Builder of a trajectory while its rollout runs. */

import { ConflictError } from "../errors.ts";
import type { MessageOrChoice } from "../schema/index.ts";
import { addToScope } from "./builder-scope.ts";
import { RecordedConversation, RolloutState } from "./conversation.ts";
import { HistoryBuilder, type HistoryOptions } from "./history.ts";
import { isChoice } from "./messages.ts";
import { checkMetadata, checkMetrics, checkReward, Trajectory, type Scalar } from "./trajectory.ts";

/** Key that marks builders of every copy of the package. */
const MARK = Symbol.for("whetstone.trajectory-builder");

/** Initial messages, tools and metadata of the rollout that {@link trajectory} starts. */
export interface TrajectoryOptions extends HistoryOptions {
  /** Metadata of the rollout, e.g. its task. @default {} */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
}

/** Arguments of {@link TrajectoryBuilder.finish}. */
export interface FinishOptions {
  /** Finite reward of the rollout. */
  readonly reward: number;
  /** Metrics added to the recorded ones, replacing entries of the same name; finite numbers or booleans. @default {} */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
}

/**
 * Starts a rollout.
 *
 * @param options - Initial messages, tools and metadata.
 * @returns Builder of the rollout's trajectory.
 * @throws ArgumentError `E_ARGUMENT` if `messages` is not an array of messages.
 * @example
 * ```ts
 * const t = trajectory({ messages: [{ role: "user", content: "Reverse: abc" }] });
 * await t.sample(policy, { temperature: 1, maxCompletionTokens: 32 });
 * const finished = t.finish({ reward: t.lastText === "cba" ? 1 : 0 });
 * ```
 */
export function trajectory(options: TrajectoryOptions): TrajectoryBuilder {
  return new TrajectoryBuilder(options);
}

/**
 * Builder of a trajectory: its main conversation, and the metadata, metrics and log of the whole rollout.
 *
 * @example
 * ```ts
 * const t = new TrajectoryBuilder({ messages: [{ role: "user", content: "Reverse: abc" }], metadata: { word: "abc" } });
 * await t.sample(policy, { temperature: 1 });
 * const finished = t.finish({ reward: t.lastText === "cba" ? 1 : 0, metrics: { length: t.lastText.length } });
 * ```
 */
export class TrajectoryBuilder extends HistoryBuilder {
  /** Metadata of the rollout by name; may be changed until `finish`. */
  readonly metadata: Record<string, Scalar>;
  readonly #main: RecordedConversation;
  readonly #startedAtMs = performance.now();
  readonly #startTime = new Date().toISOString();

  /**
   * Starts a rollout, as {@link trajectory} does.
   *
   * @param options - Initial messages, tools and metadata.
   * @throws ArgumentError `E_ARGUMENT` if `messages` is not an array of messages.
   */
  constructor({ messages, tools = [], metadata = {} }: TrajectoryOptions) {
    const main = new RecordedConversation(new RolloutState(), messages, tools);
    super(main);
    this.#main = main;
    this.metadata = { ...metadata };
    addToScope(this);
  }

  /**
   * Returns whether `value` is a {@link TrajectoryBuilder}, also one from another copy of the package.
   *
   * @param value - Any value.
   * @returns true for a rollout's builder, finished or not.
   */
  static isInstance(value: unknown): value is TrajectoryBuilder {
    return typeof value === "object" && value !== null && MARK in value;
  }

  /**
   * Mark by which {@link isInstance} recognizes objects of another copy of the package.
   *
   * @internal
   */
  get [MARK](): true {
    return true;
  }

  /**
   * Ends the rollout and all its conversations.
   *
   * @param options - Reward and additional metrics.
   * @returns The finished trajectory; its metric `duration` is the rollout's wall-clock time in seconds.
   * @throws ArgumentError `E_ARGUMENT` for a reward or metric that is not finite, or metadata other than a finite number, string, boolean
   *   or null.
   * @throws ConflictError `E_CONFLICT` when called twice or while a turn is being sampled.
   */
  finish({ reward, metrics = {} }: FinishOptions): Trajectory {
    const { state, items } = this.#main;
    state.mustBeOpen();
    if (state.samplingTurns > 0) throw new ConflictError("A turn is still being sampled; await `sample` before `finish`");
    checkReward(reward);
    return this.#freeze(items, reward, metrics);
  }

  /**
   * Ends a rollout that was interrupted, also while turns are being sampled. Messages after the last completed turn of the main
   * conversation are left out, because the model has not answered them.
   *
   * @returns The trajectory with reward 0; null if the main conversation has no completed turn, or the rollout is finished.
   * @internal
   */
  finishInterrupted(metrics: Readonly<Record<string, number | boolean>>): Trajectory | null {
    const { state, items } = this.#main;
    const answeredItems = items.slice(0, items.findLastIndex(isChoice) + 1);
    return state.isFinished || answeredItems.length === 0 ? null : this.#freeze(answeredItems, 0, metrics);
  }

  /** Ends all conversations and returns the trajectory. The caller has checked that the rollout is not finished. */
  #freeze(items: readonly MessageOrChoice[], reward: number, metrics: Readonly<Record<string, number | boolean>>): Trajectory {
    const { state, tools } = this.#main;
    const allMetrics = { ...state.metrics, ...metrics };
    checkMetrics(allMetrics);
    checkMetadata(this.metadata);
    state.isFinished = true;
    return Trajectory.fromOwned({
      messages_and_choices: [...items],
      // Copied because the finished trajectory is frozen, and the caller's own tools must stay mutable.
      tools: tools.length === 0 ? null : structuredClone([...tools]),
      additional_histories: this.#main.histories().map((history) => ({ ...history, tools: structuredClone(history.tools) })),
      reward,
      initial_policy_version: state.initialPolicyVersion,
      final_policy_version: state.finalPolicyVersion,
      metrics: { ...allMetrics, duration: (performance.now() - this.#startedAtMs) / 1000 },
      metadata: { ...this.metadata },
      logs: [...state.logs],
      start_time: this.#startTime,
    });
  }
}
