/**
 * Mutable state of a rollout while it is recorded: its conversations, each with its compacted parts and the conversations started from it.
 * `HistoryBuilder` and `TrajectoryBuilder` are the public interface to it.
 */
import { ArgumentError, ConflictError } from "../errors.ts";
import type { History, MessageOrChoice, RequestMessage, Tool } from "../schema/index.ts";
import { deepFreeze } from "./freeze.ts";
import { isChoice } from "./messages.ts";
import type { TurnPosition } from "./seed.ts";

/** State shared by all conversations of one trajectory. */
export class RolloutState {
  readonly metrics: Record<string, number | boolean> = {};
  readonly logs: string[] = [];
  isFinished = false;
  /** Number of turns being sampled now, over all conversations. */
  samplingTurns = 0;
  /** Smallest checkpoint step that sampled a choice; null if unknown. */
  initialPolicyVersion: number | null = null;
  /** Checkpoint step that sampled the most recently appended choice; null if unknown. */
  finalPolicyVersion: number | null = null;

  /** Requires that the rollout is not finished. @throws ConflictError `E_CONFLICT` after `finish`. */
  mustBeOpen(): void {
    if (this.isFinished) throw new ConflictError("This trajectory is finished; start a new one with `trajectory()`");
  }

  /** Updates the initial and final policy version with the version of an appended choice. */
  updateVersions(version: number | null | undefined): void {
    if (version === null || version === undefined) return;
    this.initialPolicyVersion = Math.min(this.initialPolicyVersion ?? version, version);
    this.finalPolicyVersion = version;
  }
}

/** Conversation being recorded: its items, its compacted parts, and the conversations started from it. */
export class RecordedConversation {
  readonly state: RolloutState;
  readonly tools: readonly Tool[];
  /** Position among the conversations of the rollout, see {@link TurnPosition}. */
  readonly #path: readonly number[];
  readonly #compacted: History[] = [];
  readonly #branches: RecordedConversation[] = [];
  #items: MessageOrChoice[] = [];
  /** Number of turns sampled in this conversation, compacted ones included. */
  #turnCount = 0;
  #isSampling = false;

  constructor(state: RolloutState, messages: readonly MessageOrChoice[], tools: readonly Tool[], path: readonly number[] = []) {
    this.state = state;
    this.tools = tools;
    this.#path = path;
    this.#appendCopies(messages);
  }

  /** Items, oldest first. Added items are frozen; sampled ones are not, so code that exposes them must freeze them. */
  get items(): readonly MessageOrChoice[] {
    return this.#items;
  }

  /** Position of the next turn to be sampled. */
  get turnPosition(): TurnPosition {
    return { path: this.#path, turn: this.#turnCount };
  }

  /** Appends a copy of an item; later changes to the caller's object have no effect. */
  add(item: MessageOrChoice): void {
    this.#requireNotSampling("add");
    this.#appendCopies([item]);
  }

  /**
   * Appends the turn that `run` samples; appends nothing if `run` throws. The choice is not frozen yet.
   *
   * @param run - Samples the turn.
   * @param options - `isHandedOver`: whether no other code holds the sampled choice. If false, the choice is copied.
   * @returns The appended choice.
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished or another turn of this conversation is being sampled.
   */
  async sampleTurn<T extends MessageOrChoice>(run: () => Promise<T>, { isHandedOver }: { readonly isHandedOver: boolean }): Promise<T> {
    this.#requireNotSampling("sample");
    this.#isSampling = true;
    this.state.samplingTurns++;
    try {
      const sampled = checkedItem(await run());
      const choice = isHandedOver ? sampled : structuredClone(sampled);
      this.#appendItems([choice]);
      this.#turnCount++;
      return choice;
    } finally {
      this.#isSampling = false;
      this.state.samplingTurns--;
    }
  }

  /** Stores the current items as a separate history and continues with `messages`. */
  compact(messages: readonly RequestMessage[]): void {
    this.#requireNotSampling("compact");
    const previousItems = this.#items;
    this.#items = [];
    try {
      this.#appendCopies(withoutChoices(messages));
    } catch (error) {
      this.#items = previousItems;
      throw error;
    }
    this.#compacted.push(toHistory(previousItems, this.tools));
  }

  /** Starts another conversation of the same rollout, also while this one is being sampled. Both may be sampled concurrently. */
  branch(messages: readonly RequestMessage[], tools: readonly Tool[]): RecordedConversation {
    this.state.mustBeOpen();
    const branch = new RecordedConversation(this.state, withoutChoices(messages), tools, [...this.#path, this.#branches.length]);
    this.#branches.push(branch);
    return branch;
  }

  /**
   * Returns every history of this conversation except the current items: the compacted parts, then each started conversation in creation
   * order, with its own compacted parts before and its own started conversations after it. The order does not depend on execution timing.
   */
  histories(): History[] {
    return [...this.#compacted, ...this.#branches.flatMap((branch) => branch.#withHistories())];
  }

  /** Returns {@link histories} of a started conversation, with its current items. */
  #withHistories(): History[] {
    const branches = this.#branches.flatMap((branch) => branch.#withHistories());
    return [...this.#compacted, toHistory(this.#items, this.tools), ...branches];
  }

  /** Appends frozen copies of items that a caller passed. */
  #appendCopies(items: readonly MessageOrChoice[]): void {
    if (!Array.isArray(items)) throw new ArgumentError("Expected `messages` to be an array of messages", { param: "messages" });
    this.#appendItems(items.map((item) => frozenCopy(checkedItem(item))));
  }

  /** Appends items that the conversation owns, and updates the policy versions of the rollout. */
  #appendItems(items: readonly MessageOrChoice[]): void {
    for (const item of items) if (isChoice(item)) this.state.updateVersions(item.policy_version);
    this.#items.push(...items);
  }

  /** Requires that the rollout is not finished and no turn of this conversation is being sampled. */
  #requireNotSampling(method: string): void {
    this.state.mustBeOpen();
    if (!this.#isSampling) return;
    throw new ConflictError(
      `A turn of this conversation is being sampled; await it before \`${method}\`, or use \`history()\` for another conversation`,
    );
  }
}

/** Returns a conversation with its tools in wire form. */
function toHistory(items: readonly MessageOrChoice[], tools: readonly Tool[]): History {
  return { messages_and_choices: [...items], tools: toolsToWire(tools) };
}

/** Returns the tools in wire form: null for an empty list. */
function toolsToWire(tools: readonly Tool[]): Tool[] | null {
  return tools.length === 0 ? null : [...tools];
}

/**
 * Returns `messages` if none is a choice: a choice in two histories would be trained twice.
 *
 * @throws ArgumentError `E_ARGUMENT` for a choice.
 */
function withoutChoices(messages: readonly RequestMessage[]): readonly RequestMessage[] {
  if (!Array.isArray(messages) || !messages.some((item) => typeof item === "object" && item !== null && isChoice(item))) return messages;
  throw new ArgumentError(
    "Expected messages, got a choice; it belongs to one history alone. Pass its message, as `t.messages()` gives it",
    { param: "messages" },
  );
}

/** Returns a copy that neither the caller nor the rollout can change. */
function frozenCopy(item: MessageOrChoice): MessageOrChoice {
  const isFlat = Object.values(item).every((value) => typeof value !== "object" || value === null);
  // Most messages hold only a role and a text; a structured clone would cost more than the rest of a turn.
  return isFlat ? Object.freeze({ ...item }) : deepFreeze(structuredClone(item));
}

/** Requires a message or a choice with a role. @throws ArgumentError `E_ARGUMENT` for any other value. */
function checkedItem<T extends MessageOrChoice>(item: T): T {
  if (typeof item === "object" && item !== null) {
    const role: unknown = isChoice(item) ? item.message.role : item.role;
    if (typeof role === "string") return item;
  }
  throw new ArgumentError('Expected a message such as `{ role: "user", content: "…" }` or a choice with a `message`', {
    param: "messages",
  });
}
