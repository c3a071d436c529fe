/** Finished rollout as an immutable object around its wire form, and checks of rewards, metrics and metadata. */

import { ArgumentError, DataError } from "../errors.ts";
import { trajectory as trajectorySchema } from "../schema/index.ts";
import type { AssistantChoice, MessageOrChoice, RequestMessage, Tool, Trajectory as WireTrajectory } from "../schema/index.ts";
import { firstIssue } from "../util/validation.ts";
import { deepFreeze } from "./freeze.ts";
import { isChoice, textOf, toMessages } from "./messages.ts";

/** Key that marks trajectories of every copy of the package. */
const MARK = Symbol.for("whetstone.trajectory");

/** Metadata or metric value. */
export type Scalar = number | string | boolean | null;

/** Additional conversation of a rollout: a sub-agent's, or one that was compacted. */
export interface TrajectoryHistory {
  /** Messages (context) and choices (sampled turns), oldest first. */
  readonly messagesAndChoices: readonly MessageOrChoice[];
  /** Tools available to the model in this conversation. */
  readonly tools: readonly Tool[];
}

/** Changes for {@link Trajectory.with}. Absent fields stay unchanged. */
export interface TrajectoryChanges {
  /** New total reward; finite. */
  readonly reward?: number | undefined;
  /** Metrics merged into the current ones by name; `undefined` removes an entry. Finite numbers or booleans. */
  readonly metrics?: Readonly<Record<string, number | boolean | undefined>> | undefined;
  /** Metadata merged into the current entries by name; `undefined` removes an entry. */
  readonly metadata?: Readonly<Record<string, Scalar | undefined>> | undefined;
  /** Log lines appended to the current ones. */
  readonly logs?: readonly string[] | undefined;
}

/**
 * Finished rollout: its messages, its sampled turns (choices with token ids and log-probabilities) and its reward.
 *
 * Immutable. `JSON.stringify` gives the wire form; {@link Trajectory.fromJSON} parses it, including keys that other tools wrote.
 */
export class Trajectory {
  readonly #wire: WireTrajectory;

  private constructor(wire: WireTrajectory) {
    this.#wire = wire;
    Object.freeze(this);
  }

  /**
   * Returns whether `value` is a {@link Trajectory}, also one from another copy of the package.
   *
   * @param value - Any value.
   * @returns true for a finished rollout.
   */
  static isInstance(value: unknown): value is Trajectory {
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
   * Wraps a value that already has the wire shape, without validation, and freezes it.
   *
   * @internal
   */
  static fromWire(wire: WireTrajectory): Trajectory {
    return new Trajectory(deepFreeze(wire));
  }

  /**
   * Wraps a wire value that nothing outside of trajectories can change, such as a freshly parsed one. Its parts are frozen on first access,
   * because a dataset reads the rewards of many trajectories and the token ids of few.
   *
   * @internal
   */
  static fromOwned(wire: WireTrajectory): Trajectory {
    return new Trajectory(wire);
  }

  /**
   * Parses the wire form.
   *
   * @param value - Value parsed from JSON.
   * @returns The trajectory, frozen.
   * @throws DataError `E_DATA` if the value does not match the schema; the message contains the path of the mismatch.
   * @example
   * ```ts
   * const finished = Trajectory.fromJSON(JSON.parse(line));
   * ```
   */
  static fromJSON(value: unknown): Trajectory {
    const { data, error } = trajectorySchema.safeParse(value);
    if (error !== undefined) throw new DataError(`Expected a trajectory; ${firstIssue(error)}`);
    return Trajectory.fromWire(data);
  }

  /** Messages (context) and choices (sampled turns), oldest first. */
  get messagesAndChoices(): readonly MessageOrChoice[] {
    return deepFreeze(this.#wire.messages_and_choices);
  }

  /** Sampled turns of the main conversation. */
  get choices(): readonly AssistantChoice[] {
    return this.messagesAndChoices.filter(isChoice);
  }

  /** Additional conversations (sub-agents, compacted parts), in an order that does not depend on timing. */
  get additionalHistories(): readonly TrajectoryHistory[] {
    return deepFreeze(this.#wire.additional_histories).map((history) => ({
      messagesAndChoices: history.messages_and_choices,
      tools: history.tools ?? [],
    }));
  }

  /** Sampled turns of all conversations, the main one first. */
  get allChoices(): readonly AssistantChoice[] {
    return allChoices(this.toJSON());
  }

  /**
   * Returns the main conversation as plain messages, with choices as assistant messages.
   *
   * @returns a new array of messages, oldest first; token ids and log-probabilities are left out.
   * @example
   * ```ts
   * for (const { role, content } of group.trajectories[0]!.messages()) console.log(role, content);
   * ```
   */
  messages(): RequestMessage[] {
    return toMessages(this.messagesAndChoices);
  }

  /** Text of the last item; `""` without items. */
  get lastText(): string {
    const last = this.#wire.messages_and_choices.at(-1);
    return last === undefined ? "" : textOf(last);
  }

  /** Tools available to the model in the main conversation. */
  get tools(): readonly Tool[] {
    return deepFreeze(this.#wire.tools ?? []);
  }

  /** Reward of the rollout, compared within its group. */
  get reward(): number {
    return this.#wire.reward;
  }

  /** Metrics by name; `duration` and `…_duration` are in seconds. */
  get metrics(): Readonly<Record<string, number | boolean>> {
    return deepFreeze(this.#wire.metrics);
  }

  /** Labels of the rollout by name, such as `scenario_id`. */
  get metadata(): Readonly<Record<string, Scalar>> {
    return deepFreeze(this.#wire.metadata);
  }

  /** Lines of text written by the rollout. */
  get logs(): readonly string[] {
    return deepFreeze(this.#wire.logs);
  }

  /** Smallest step of the checkpoints that sampled a choice, in any history; null if unknown. */
  get initialPolicyVersion(): number | null {
    return this.#wire.initial_policy_version ?? null;
  }

  /** Step of the checkpoint that sampled the most recently appended choice, in any history; null if unknown. */
  get finalPolicyVersion(): number | null {
    return this.#wire.final_policy_version ?? null;
  }

  /** Start time in ISO 8601; null if unknown. */
  get startTime(): string | null {
    return this.#wire.start_time ?? null;
  }

  /**
   * Returns a copy with another reward, or with more metrics, metadata or log lines. Messages and choices are unchanged and shared.
   *
   * @param changes - Fields to change.
   * @returns The changed copy.
   * @throws ArgumentError `E_ARGUMENT` for a reward, metric or metadata value that cannot be stored, or for an unknown field.
   * @example
   * ```ts
   * const rescored = finished.with({ reward: 0.5, metrics: { judged: true }, logs: ["scored again"] });
   * ```
   */
  with(changes: TrajectoryChanges): Trajectory {
    const { reward = this.reward, metrics = {}, metadata = {}, logs = [], ...unknownFields } = changes;
    const [field] = Object.keys(unknownFields);
    if (field !== undefined) {
      throw new ArgumentError(`Expected \`reward\`, \`metrics\`, \`metadata\` or \`logs\`, got \`${field}\``, { param: field });
    }
    checkReward(reward);
    const changedMetrics = merged<number | boolean>(this.metrics, metrics);
    checkMetrics(changedMetrics);
    const changedMetadata = merged<Scalar>(this.metadata, metadata);
    checkMetadata(changedMetadata);
    return Trajectory.fromOwned({
      ...this.#wire,
      reward,
      metrics: changedMetrics,
      metadata: changedMetadata,
      logs: [...this.logs, ...logs],
    });
  }

  /** Returns the wire form, frozen. */
  toJSON(): WireTrajectory {
    return deepFreeze(this.#wire);
  }
}

/** History of a trajectory in the wire form. */
export interface WireHistory {
  readonly items: readonly MessageOrChoice[];
  readonly tools?: readonly Tool[] | null | undefined;
  /** Path of the items in the wire form of the trajectory, e.g. `additional_histories.0.messages_and_choices`. */
  readonly path: string;
}

/** Returns every history of a trajectory, the main one first. */
export function historiesOf(wire: WireTrajectory): WireHistory[] {
  return [
    { items: wire.messages_and_choices, tools: wire.tools, path: "messages_and_choices" },
    ...wire.additional_histories.map((history, index) => ({
      items: history.messages_and_choices,
      tools: history.tools,
      path: `additional_histories.${index}.messages_and_choices`,
    })),
  ];
}

/** Returns the sampled turns of all histories, the main one first. */
export function allChoices(wire: WireTrajectory): AssistantChoice[] {
  return historiesOf(wire).flatMap(({ items }) => items.filter(isChoice));
}

/** Checks a reward. @throws ArgumentError `E_ARGUMENT` for a reward that is not finite. */
export function checkReward(reward: number): void {
  if (typeof reward === "number" && Number.isFinite(reward)) return;
  throw new ArgumentError(`Expected \`reward\` to be a finite number, got \`${String(reward)}\` (${typeof reward})`, { param: "reward" });
}

/** Checks metrics. @throws ArgumentError `E_ARGUMENT` for a metric that is neither a finite number nor a boolean. */
export function checkMetrics(metrics: Readonly<Record<string, number | boolean>>): void {
  for (const [name, value] of Object.entries(metrics)) {
    if (typeof value === "boolean" || Number.isFinite(value)) continue;
    throw new ArgumentError(`Expected metric \`${name}\` to be a finite number or a boolean, got \`${String(value)}\``, {
      param: `metrics.${name}`,
    });
  }
}

/**
 * Checks metadata.
 *
 * @throws ArgumentError `E_ARGUMENT` for a value other than a finite number, string, boolean or null, because reading such a value back
 *   from JSON would fail.
 */
export function checkMetadata(metadata: Readonly<Record<string, Scalar>>): void {
  for (const [name, value] of Object.entries(metadata) as [string, unknown][]) {
    if (value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value)) continue;
    const got = typeof value === "number" ? String(value) : typeof value;
    throw new ArgumentError(`Expected metadata \`${name}\` to be a finite number, a string, a boolean or null, got ${got}`, {
      param: `metadata.${name}`,
    });
  }
}

/** Merges `changes` into `present`; an undefined value removes its entry. */
function merged<T>(present: Readonly<Record<string, T>>, changes: Readonly<Record<string, T | undefined>>): Record<string, T> {
  const entries = Object.entries({ ...present, ...changes }).filter((entry): entry is [string, T] => entry[1] !== undefined);
  return Object.fromEntries(entries);
}
