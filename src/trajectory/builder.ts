import { ConflictError } from "../errors.ts";
import { Conversation, RolloutState } from "./conversation.ts";
import { HistoryBuilder, type HistoryOptions } from "./history.ts";
import { checkMetadata, checkMetrics, checkReward, Trajectory, type Scalar } from "./trajectory.ts";

/** Options of {@link trajectory}. */
export interface TrajectoryOptions extends HistoryOptions {
  /** Facts about the rollout, e.g. its task. @default {} */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
}

/** What {@link TrajectoryBuilder.finish} takes. */
export interface FinishOptions {
  /** Finite. */
  readonly reward: number;
  /** Added to what the rollout recorded; finite numbers or booleans. */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
}

/**
 * Starts a rollout.
 *
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

/** A rollout under way: its main conversation, with what belongs to the rollout as a whole. */
export class TrajectoryBuilder extends HistoryBuilder {
  readonly metadata: Record<string, Scalar>;
  readonly #main: Conversation;
  readonly #startedAtMs = performance.now();
  readonly #startTime = new Date().toISOString();

  constructor({ messages, tools = [], metadata = {} }: TrajectoryOptions) {
    const main = new Conversation(new RolloutState(), messages, tools);
    super(main);
    this.#main = main;
    this.metadata = { ...metadata };
  }

  /**
   * Ends the rollout, with all conversations of it.
   *
   * @throws ArgumentError `E_ARGUMENT` for a reward or metric that is not finite, or metadata that is no number, text, boolean or null.
   * @throws ConflictError `E_CONFLICT` when called twice or while a turn is being sampled.
   */
  finish({ reward, metrics = {} }: FinishOptions): Trajectory {
    const { state, items, tools } = this.#main;
    state.mustBeOpen();
    if (state.sampling > 0) throw new ConflictError("A turn is still being sampled; await `sample` before `finish`");
    checkReward(reward);
    const all = { ...state.metrics, ...metrics };
    checkMetrics(all);
    checkMetadata(this.metadata);
    state.isFinished = true;
    return Trajectory.fromOwned({
      messages_and_choices: [...items],
      // Copied: the finished trajectory is frozen, the caller's own tools must not be.
      tools: tools.length === 0 ? null : structuredClone([...tools]),
      additional_histories: this.#main.histories().map((history) => ({ ...history, tools: structuredClone(history.tools) })),
      reward,
      initial_policy_version: state.initialPolicyVersion,
      final_policy_version: state.finalPolicyVersion,
      metrics: { ...all, duration: (performance.now() - this.#startedAtMs) / 1000 },
      metadata: { ...this.metadata },
      logs: [...state.logs],
      start_time: this.#startTime,
    });
  }
}
