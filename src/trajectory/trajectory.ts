import { ArgumentError, DataError } from "../errors.ts";
import { trajectory as trajectorySchema } from "../schema/index.ts";
import type { AssistantChoice, MessageOrChoice, RequestMessage, Tool, Trajectory as WireTrajectory } from "../schema/index.ts";
import { deepFreeze } from "./freeze.ts";
import { isChoice, textOf, toMessages } from "./messages.ts";

/** A metadata or metric value. */
export type Scalar = number | string | boolean | null;

/** A conversation beside the main one: a sub-agent's, or one that was compacted. */
export interface TrajectoryHistory {
  /** Messages (context) and choices (sampled turns), oldest first. */
  readonly messagesAndChoices: readonly MessageOrChoice[];
  readonly tools: readonly Tool[];
}

/** What {@link Trajectory.with} changes. Absent: as it was. */
export interface TrajectoryChanges {
  /** Finite. */
  readonly reward?: number | undefined;
  /** Laid over the present ones by name; `undefined` takes one away. Finite numbers or booleans. */
  readonly metrics?: Readonly<Record<string, number | boolean | undefined>> | undefined;
  /** Laid over the present ones by name; `undefined` takes one away. */
  readonly metadata?: Readonly<Record<string, Scalar | undefined>> | undefined;
  /** Lines added after the present ones. */
  readonly logs?: readonly string[] | undefined;
}

/**
 * One finished rollout: what was said, what was sampled (token ids and log-probabilities on the choices) and its reward.
 *
 * Immutable. `JSON.stringify` gives the wire form; {@link Trajectory.fromJSON} reads it back, keys of other writers included.
 */
export class Trajectory {
  readonly #wire: WireTrajectory;

  private constructor(wire: WireTrajectory) {
    this.#wire = wire;
    Object.freeze(this);
  }

  /** Takes a value that already has the wire shape; frozen, not copied. */
  static fromWire(wire: WireTrajectory): Trajectory {
    return new Trajectory(deepFreeze(wire));
  }

  /**
   * The same for a value that nobody else holds, such as one just parsed: its parts are frozen when they are first handed out. A dataset
   * reads the rewards of many trajectories and the token ids of few.
   */
  static fromOwned(wire: WireTrajectory): Trajectory {
    return new Trajectory(wire);
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
    return deepFreeze(this.#wire.messages_and_choices);
  }

  /** The sampled turns of the main conversation. */
  get choices(): readonly AssistantChoice[] {
    return this.messagesAndChoices.filter(isChoice);
  }

  /** Conversations beside the main one (sub-agents, compacted parts), in an order that does not depend on timing. */
  get additionalHistories(): readonly TrajectoryHistory[] {
    return deepFreeze(this.#wire.additional_histories).map((history) => ({
      messagesAndChoices: history.messages_and_choices,
      tools: history.tools ?? [],
    }));
  }

  /** The sampled turns of all conversations, the main one's first. */
  get allChoices(): readonly AssistantChoice[] {
    return allChoices(this.toJSON());
  }

  /** The plain conversation, choices as assistant messages. */
  messages(): RequestMessage[] {
    return toMessages(this.messagesAndChoices);
  }

  /** Text of the last item, `""` if there is none. */
  get lastText(): string {
    const last = this.#wire.messages_and_choices.at(-1);
    return last === undefined ? "" : textOf(last);
  }

  get tools(): readonly Tool[] {
    return deepFreeze(this.#wire.tools ?? []);
  }

  get reward(): number {
    return this.#wire.reward;
  }

  /** Numbers by name; `duration` and `…_duration` are seconds. */
  get metrics(): Readonly<Record<string, number | boolean>> {
    return deepFreeze(this.#wire.metrics);
  }

  get metadata(): Readonly<Record<string, Scalar>> {
    return deepFreeze(this.#wire.metadata);
  }

  get logs(): readonly string[] {
    return deepFreeze(this.#wire.logs);
  }

  /** Smallest step of the checkpoints that sampled a choice, in any history; null if unknown. */
  get initialPolicyVersion(): number | null {
    return this.#wire.initial_policy_version ?? null;
  }

  /** Step of the checkpoint that sampled the choice that came last, in any history; null if unknown. */
  get finalPolicyVersion(): number | null {
    return this.#wire.final_policy_version ?? null;
  }

  /** ISO 8601; null if unknown. */
  get startTime(): string | null {
    return this.#wire.start_time ?? null;
  }

  /**
   * A copy with another reward, or more metrics, metadata or log lines; what was said and sampled stays, and is shared.
   *
   * @throws ArgumentError `E_ARGUMENT` for a reward, metric or metadata that cannot be stored, or a name that cannot be changed.
   * @example
   * ```ts
   * const rescored = finished.with({ reward: 0.5, metrics: { judged: true }, logs: ["scored again"] });
   * ```
   */
  with(changes: TrajectoryChanges): Trajectory {
    const { reward = this.reward, metrics = {}, metadata = {}, logs = [], ...rest } = changes;
    const [unknown] = Object.keys(rest);
    if (unknown !== undefined) {
      throw new ArgumentError(`Expected \`reward\`, \`metrics\`, \`metadata\` or \`logs\`, got \`${unknown}\``, { param: unknown });
    }
    checkReward(reward);
    const changed = overlay<number | boolean>(this.metrics, metrics);
    checkMetrics(changed);
    const facts = overlay<Scalar>(this.metadata, metadata);
    checkMetadata(facts);
    return Trajectory.fromOwned({
      ...this.#wire,
      reward,
      metrics: changed,
      metadata: facts,
      logs: [...this.logs, ...logs],
    });
  }

  /** The wire form, frozen. */
  toJSON(): WireTrajectory {
    return deepFreeze(this.#wire);
  }
}

/** Every history of a trajectory with its place in it, the main one first. */
export function historiesOf(wire: WireTrajectory): { readonly items: readonly MessageOrChoice[]; readonly place: string }[] {
  return [
    { items: wire.messages_and_choices, place: "messages_and_choices" },
    ...wire.additional_histories.map((history, index) => ({
      items: history.messages_and_choices,
      place: `additional_histories.${index}.messages_and_choices`,
    })),
  ];
}

/** The sampled turns of all histories, the main one's first. */
export function allChoices(wire: WireTrajectory): AssistantChoice[] {
  return historiesOf(wire).flatMap(({ items }) => items.filter(isChoice));
}

/** @throws ArgumentError `E_ARGUMENT` for a reward that is not finite. */
export function checkReward(reward: number): void {
  if (typeof reward === "number" && Number.isFinite(reward)) return;
  throw new ArgumentError(`Expected \`reward\` to be a finite number, got \`${String(reward)}\` (${typeof reward})`, { param: "reward" });
}

/** @throws ArgumentError `E_ARGUMENT` for a metric that is neither a finite number nor a boolean. */
export function checkMetrics(metrics: Readonly<Record<string, number | boolean>>): void {
  for (const [name, value] of Object.entries(metrics)) {
    if (typeof value === "boolean" || Number.isFinite(value)) continue;
    throw new ArgumentError(`Expected metric \`${name}\` to be a finite number or a boolean, got \`${String(value)}\``, {
      param: `metrics.${name}`,
    });
  }
}

/** @throws ArgumentError `E_ARGUMENT` for a value that is no number, text, boolean or null: it could be written, but not read back. */
export function checkMetadata(metadata: Readonly<Record<string, Scalar>>): void {
  for (const [name, value] of Object.entries(metadata) as [string, unknown][]) {
    if (value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value)) continue;
    const got = typeof value === "number" ? String(value) : typeof value;
    throw new ArgumentError(`Expected metadata \`${name}\` to be a finite number, a string, a boolean or null, got ${got}`, {
      param: `metadata.${name}`,
    });
  }
}

function overlay<T>(present: Readonly<Record<string, T>>, over: Readonly<Record<string, T | undefined>>): Record<string, T> {
  const entries = Object.entries({ ...present, ...over }).filter((entry): entry is [string, T] => entry[1] !== undefined);
  return Object.fromEntries(entries);
}
