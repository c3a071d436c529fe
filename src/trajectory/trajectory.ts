import { DataError } from "../errors.ts";
import { trajectory as trajectorySchema } from "../schema/index.ts";
import type { AssistantChoice, MessageOrChoice, RequestMessage, Tool, Trajectory as WireTrajectory } from "../schema/index.ts";
import { isChoice, textOf, toMessages } from "./messages.ts";

/** A metadata or metric value. */
export type Scalar = number | string | boolean | null;

/**
 * One finished rollout: what was said, what was sampled (token ids and log-probabilities on the choices) and its reward.
 *
 * Immutable. `JSON.stringify` gives the wire form; {@link Trajectory.fromJSON} reads it back, keys of other writers included.
 */
export class Trajectory {
  readonly #wire: WireTrajectory;

  private constructor(wire: WireTrajectory) {
    this.#wire = wire;
  }

  /** Takes a value that already has the wire shape; frozen, not copied. */
  static fromWire(wire: WireTrajectory): Trajectory {
    return new Trajectory(deepFreeze(wire));
  }

  /**
   * Reads the wire form.
   *
   * @throws DataError `E_DATA` when the value does not fit; the message names the path inside it.
   */
  static fromJSON(value: unknown): Trajectory {
    const result = trajectorySchema.safeParse(value);
    if (result.success) return Trajectory.fromWire(result.data);
    const issue = result.error.issues[0];
    throw new DataError(`Expected a trajectory; at \`${issue?.path.join(".") || "(root)"}\`: ${issue?.message ?? "invalid"}`);
  }

  /** Messages (context) and choices (sampled turns), oldest first. */
  get messagesAndChoices(): readonly MessageOrChoice[] {
    return this.#wire.messages_and_choices;
  }

  /** The sampled turns. */
  get choices(): readonly AssistantChoice[] {
    return this.#wire.messages_and_choices.filter(isChoice);
  }

  /** The plain conversation, choices as assistant messages. */
  messages(): RequestMessage[] {
    return toMessages(this.#wire.messages_and_choices);
  }

  /** Text of the last item, `""` if there is none. */
  get lastText(): string {
    const last = this.#wire.messages_and_choices.at(-1);
    return last === undefined ? "" : textOf(last);
  }

  get tools(): readonly Tool[] {
    return this.#wire.tools ?? [];
  }

  get reward(): number {
    return this.#wire.reward;
  }

  /** Numbers by name; `duration` and `…_duration` are seconds. */
  get metrics(): Readonly<Record<string, number | boolean>> {
    return this.#wire.metrics;
  }

  get metadata(): Readonly<Record<string, Scalar>> {
    return this.#wire.metadata;
  }

  get logs(): readonly string[] {
    return this.#wire.logs;
  }

  /** Step of the checkpoint that sampled the first choice; null if unknown. */
  get initialPolicyVersion(): number | null {
    return this.#wire.initial_policy_version ?? null;
  }

  /** Step of the checkpoint that sampled the last choice; null if unknown. */
  get finalPolicyVersion(): number | null {
    return this.#wire.final_policy_version ?? null;
  }

  /** ISO 8601; null if unknown. */
  get startTime(): string | null {
    return this.#wire.start_time ?? null;
  }

  /** The wire form, frozen. */
  toJSON(): WireTrajectory {
    return this.#wire;
  }
}

function deepFreeze<T>(value: T): T {
  // Arrays of numbers (token ids) are frozen without visiting their items: they can be long, and numbers have no inside.
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  if (Array.isArray(value) && typeof value[0] === "number") return value;
  for (const inner of Object.values(value)) deepFreeze(inner);
  return value;
}
