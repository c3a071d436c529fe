/** What a builder keeps: one conversation with everything that branched off it. */
import { ArgumentError, ConflictError } from "../errors.ts";
import type { History, MessageOrChoice, RequestMessage, Tool } from "../schema/index.ts";
import { deepFreeze } from "./freeze.ts";
import { isChoice } from "./messages.ts";
import type { TurnPlace } from "./seed.ts";

/** What all conversations of one trajectory share. */
export class RolloutState {
  readonly metrics: Record<string, number | boolean> = {};
  readonly logs: string[] = [];
  isFinished = false;
  /** Turns that are being sampled now, over all conversations. */
  sampling = 0;
  /** Smallest step that sampled a choice. */
  initialPolicyVersion: number | null = null;
  /** Step that sampled the choice that was appended last. */
  finalPolicyVersion: number | null = null;

  /** @throws ConflictError `E_CONFLICT` after `finish`. */
  mustBeOpen(): void {
    if (this.isFinished) throw new ConflictError("This trajectory is finished; start a new one with `trajectory()`");
  }

  sawVersion(version: number | null | undefined): void {
    if (version === null || version === undefined) return;
    this.initialPolicyVersion = Math.min(this.initialPolicyVersion ?? version, version);
    this.finalPolicyVersion = version;
  }
}

/** A conversation under way: its items, the parts that were compacted away, and the conversations that branched off. */
export class Conversation {
  readonly state: RolloutState;
  readonly tools: readonly Tool[];
  readonly #path: readonly number[];
  readonly #compacted: History[] = [];
  readonly #branches: Conversation[] = [];
  #items: MessageOrChoice[] = [];
  #turns = 0;
  #isSampling = false;

  constructor(state: RolloutState, messages: readonly MessageOrChoice[], tools: readonly Tool[], path: readonly number[] = []) {
    this.state = state;
    this.tools = tools;
    this.#path = path;
    this.#append(messages);
  }

  /** Oldest first. Items that were added are frozen; sampled ones are to be frozen by whoever hands them out. */
  get items(): readonly MessageOrChoice[] {
    return this.#items;
  }

  /** Of the turn that would be sampled next. */
  get place(): TurnPlace {
    return { path: this.#path, turn: this.#turns };
  }

  /** Appends an item, copied: what the caller does to it afterwards did not happen. */
  add(item: MessageOrChoice): void {
    this.#mustRest("add");
    this.#append([item]);
  }

  /**
   * Appends the turn that `run` samples, not frozen yet, and copied unless nobody else has it; nothing when it throws.
   *
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished or another turn of this conversation is being sampled.
   */
  async turn<T extends MessageOrChoice>(run: () => Promise<T>, isHandedOver: boolean): Promise<T> {
    this.#mustRest("sample");
    this.#isSampling = true;
    this.state.sampling++;
    try {
      const sampled = checkedItem(await run());
      const choice = isHandedOver ? sampled : structuredClone(sampled);
      this.#take([choice]);
      this.#turns++;
      return choice;
    } finally {
      this.#isSampling = false;
      this.state.sampling--;
    }
  }

  /** Puts the present items aside as a history of their own and goes on with `messages`. */
  compact(messages: readonly RequestMessage[]): void {
    this.#mustRest("compact");
    const before = this.#items;
    this.#items = [];
    try {
      this.#append(plain(messages));
    } catch (error) {
      this.#items = before;
      throw error;
    }
    this.#compacted.push(toHistory(before, this.tools));
  }

  /** A new conversation beside this one. It may start and be sampled from while this one is. */
  branch(messages: readonly RequestMessage[], tools: readonly Tool[]): Conversation {
    this.state.mustBeOpen();
    const branch = new Conversation(this.state, plain(messages), tools, [...this.#path, this.#branches.length]);
    this.#branches.push(branch);
    return branch;
  }

  /**
   * Every history of this conversation but the one under way: its compacted parts, then each branch, in the order in which they were
   * started, with its own compacted parts before and its own branches after it. The order of running does not show.
   */
  histories(): History[] {
    return [...this.#compacted, ...this.#branches.flatMap((branch) => branch.#withHistories())];
  }

  #withHistories(): History[] {
    const branches = this.#branches.flatMap((branch) => branch.#withHistories());
    return [...this.#compacted, toHistory(this.#items, this.tools), ...branches];
  }

  #append(items: readonly MessageOrChoice[]): void {
    if (!Array.isArray(items)) throw new ArgumentError("Expected `messages` to be an array of messages", { param: "messages" });
    this.#take(items.map((item) => frozenCopy(checkedItem(item))));
  }

  #take(items: readonly MessageOrChoice[]): void {
    for (const item of items) if (isChoice(item)) this.state.sawVersion(item.policy_version);
    this.#items.push(...items);
  }

  #mustRest(method: string): void {
    this.state.mustBeOpen();
    if (!this.#isSampling) return;
    throw new ConflictError(
      `A turn of this conversation is being sampled; await it before \`${method}\`, or use \`history()\` for another conversation`,
    );
  }
}

function toHistory(items: readonly MessageOrChoice[], tools: readonly Tool[]): History {
  return { messages_and_choices: [...items], tools: toolsToWire(tools) };
}

/** Null for none, as the wire has it. */
function toolsToWire(tools: readonly Tool[]): Tool[] | null {
  return tools.length === 0 ? null : [...tools];
}

/** A turn in two histories would be trained twice. */
function plain(messages: readonly RequestMessage[]): readonly RequestMessage[] {
  if (!Array.isArray(messages) || !messages.some((item) => typeof item === "object" && item !== null && isChoice(item))) return messages;
  throw new ArgumentError(
    "Expected messages, got a choice; it belongs to one history alone. Pass its message, as `t.messages()` gives it",
    {
      param: "messages",
    },
  );
}

function frozenCopy(item: MessageOrChoice): MessageOrChoice {
  const isFlat = Object.values(item).every((value) => typeof value !== "object" || value === null);
  // Most messages are a role and a text; a structured clone costs more than the rest of a turn.
  return isFlat ? Object.freeze({ ...item }) : deepFreeze(structuredClone(item));
}

function checkedItem<T extends MessageOrChoice>(item: T): T {
  const role: unknown = typeof item === "object" && item !== null ? (isChoice(item) ? item.message.role : item.role) : undefined;
  if (typeof role === "string") return item;
  throw new ArgumentError('Expected a message such as `{ role: "user", content: "…" }` or a choice with a `message`', {
    param: "messages",
  });
}
