/**
 * Reconstruction of conversations from the recorded calls of an agent, in captures and sessions.
 *
 * A call continues a sampled turn if its prompt starts with the tokens of that turn's prompt and completion. If token ids are unknown, its
 * messages must start with that turn's messages instead. At most one call continues a turn. A call that continues no turn starts a history
 * of its own, with its messages as context.
 */
import { isDeepStrictEqual } from "node:util";
import type { AssistantChoice, ChatCompletion, ChatCompletionRequest, MessageOrChoice, RequestMessage, Tool } from "../schema/index.ts";
import type { Trajectory as WireTrajectory } from "../schema/index.ts";
import { tool as toolSchema } from "../schema/index.ts";
import { textOf } from "./messages.ts";
import { storedChoice } from "./sample.ts";
import { endOfAnswer, startsWithTurn } from "./same-message.ts";
import { itemAt } from "../util/values.ts";

/** Request of a chat completion with its complete response. */
export interface RecordedCall {
  /** Number of the call in its rollout, in start order. */
  readonly order: number;
  readonly request: ChatCompletionRequest;
  readonly completion: ChatCompletion;
  /** Whether the request had a prompt instead of messages; its only message has the text of the prompt, if known. @default false */
  readonly isRaw?: boolean | undefined;
}

/** Conversation reconstructed from calls. */
export interface RecordedHistory {
  readonly items: readonly MessageOrChoice[];
  readonly tools: readonly Tool[];
}

/** Result of {@link toHistories}. */
export interface RecordedHistories {
  /** Histories, the main one first; empty without calls. */
  readonly histories: readonly RecordedHistory[];
  /**
   * Calls whose messages continue a turn but whose token ids do not: the client's history was rendered to other tokens than were sampled.
   */
  readonly drifted: readonly RecordedCall[];
}

/** Choice of a call, and the call that continues it. */
interface Turn {
  readonly call: RecordedCall;
  readonly choice: AssistantChoice;
  /** Prompt and completion tokens; null if unknown. */
  readonly tokens: readonly number[] | null;
  /** Null while no call continues the turn. */
  next: CallNode | null;
}

/** Call in the tree of calls: each of its turns may be continued by another call. */
interface CallNode {
  readonly call: RecordedCall;
  readonly tools: readonly Tool[];
  readonly turns: readonly Turn[];
  /** Messages after the continued turn; all messages for a call that continues no turn. */
  readonly messages: readonly RequestMessage[];
}

/**
 * Orders calls into histories.
 *
 * If a call has several choices, the continued one (or the first, if none was continued) stays in the call's history. Every other choice
 * becomes a history of its own, with the call's messages before it.
 *
 * @param calls - Calls in start order; not modified.
 * @param step - Step of the policy, for responses that do not report one.
 * @returns Histories, and the calls with differing token ids.
 */
export function toHistories(calls: readonly RecordedCall[], step: number | null): RecordedHistories {
  /** Turns that no call continues yet. */
  const openTurns: Turn[] = [];
  const roots: CallNode[] = [];
  const drifted: RecordedCall[] = [];
  for (const call of calls) {
    const tools = toolsOf(call);
    const parent = findParent(openTurns, call, tools);
    const turns = call.completion.choices.map((choice): Turn => toTurn(call, choice, step));
    const messages = parent === null ? call.request.messages : newMessages(parent, call);
    const node = { call, tools, turns, messages };
    if (parent === null) {
      roots.push(node);
      const hasTokens = Boolean(call.completion.prompt_token_ids);
      if (hasTokens && openTurns.some((turn) => turn.tokens !== null && continuesMessages(turn, call))) drifted.push(call);
    } else {
      parent.turn.next = node;
      openTurns.splice(openTurns.indexOf(parent.turn), 1);
    }
    openTurns.push(...turns);
  }
  return { histories: roots.flatMap(histories), drifted };
}

/** Returns the conversations of a trajectory in wire form: the first history as the main conversation, the others as additional ones. */
export function toHistoryMembers([main, ...others]: readonly RecordedHistory[]): Pick<
  WireTrajectory,
  "messages_and_choices" | "tools" | "additional_histories"
> {
  const toWire = ({ items, tools }: RecordedHistory) =>
    // Copied because trajectories are frozen, and the messages belong to the requests.
    structuredClone({ messages_and_choices: [...items], tools: tools.length === 0 ? null : [...tools] });
  return { ...toWire(main ?? { items: [], tools: [] }), additional_histories: others.map(toWire) };
}

/** Returns the log line of a call in {@link RecordedHistories.drifted}. */
export function driftLine({ order }: RecordedCall): string {
  return `capture: call ${order} continues an earlier turn by its messages but not by its token ids; kept as an additional history`;
}

/** Returns a choice of a call as a turn that no call continues yet. */
function toTurn(call: RecordedCall, choice: RecordedCall["completion"]["choices"][number], step: number | null): Turn {
  const { request, completion } = call;
  const prompt = completion.prompt_token_ids;
  return {
    call,
    choice: storedChoice(choice, { completion, request, step }),
    tokens: prompt && choice.token_ids ? [...prompt, ...choice.token_ids] : null,
    next: null,
  };
}

/** Turn that a call continues. */
interface Parent {
  readonly turn: Turn;
  /** Number of the call's messages up to and including the turn's answer. */
  readonly messageCount: number;
}

/** Returns the turn that a call continues, the longest if several match; null without a match. */
function findParent(openTurns: readonly Turn[], call: RecordedCall, tools: readonly Tool[]): Parent | null {
  let best: Parent | null = null;
  for (const turn of openTurns) {
    const messageCount = endOfTurn(turn, call, tools);
    if (messageCount === null) continue;
    const isLonger = best === null || messageCount > best.messageCount || (turn.tokens?.length ?? 0) > (best.turn.tokens?.length ?? 0);
    if (isLonger) best = { turn, messageCount };
  }
  return best;
}

/** Returns the number of the call's messages up to and including the turn's answer; null if the call does not continue the turn. */
function endOfTurn(turn: Turn, call: RecordedCall, tools: readonly Tool[]): number | null {
  const prompt = call.completion.prompt_token_ids;
  const turnMessages = turn.call.request.messages;
  if (prompt && turn.tokens !== null) {
    if (!startsWith(prompt, turn.tokens)) return null;
    return call.isRaw === true ? 0 : endOfAnswer(call.request.messages, turnMessages);
  }
  return continuesMessages(turn, call) && isDeepStrictEqual(tools, toolsOf(turn.call)) ? turnMessages.length + 1 : null;
}

/** Returns the messages of a call after the turn that it continues. */
function newMessages({ turn, messageCount }: Parent, call: RecordedCall): readonly RequestMessage[] {
  if (call.isRaw !== true) return call.request.messages.slice(messageCount);
  if (call.completion.prompt_token_ids?.length === turn.tokens?.length) return [];
  const prompt = promptText(call);
  const continuedText = promptText(turn.call) + textOf(turn.choice.message);
  return [{ role: "user", content: prompt.startsWith(continuedText) ? prompt.slice(continuedText.length) : "" }];
}

/** Returns the text of a prompt without messages. */
function promptText({ request }: RecordedCall): string {
  return textOf(itemAt(request.messages, 0));
}

/** Whether the call's messages begin with the turn's messages and answer. */
function continuesMessages(turn: Turn, { request }: RecordedCall): boolean {
  return startsWithTurn(request.messages, turn.call.request.messages, turn.choice.message);
}

/** Whether token ids begin with `prefix`. */
export function startsWith(tokens: readonly number[], prefix: readonly number[]): boolean {
  return tokens.length >= prefix.length && prefix.every((token, index) => tokens[index] === token);
}

/** Returns the history that begins with a call, then the histories of the other choices of its calls. */
function histories(first: CallNode): RecordedHistory[] {
  const items: MessageOrChoice[] = [];
  const otherHistories: RecordedHistory[] = [];
  for (let node: CallNode | null = first; node !== null;) {
    const { call, messages, tools } = node;
    items.push(...messages);
    const chosen: Turn | undefined = node.turns.find((turn) => turn.next !== null) ?? node.turns[0];
    if (chosen === undefined) break;
    items.push(chosen.choice);
    for (const turn of node.turns) {
      if (turn !== chosen) otherHistories.push(...branch(turn, call.request.messages, tools));
    }
    node = chosen.next;
  }
  return [{ items, tools: first.tools }, ...otherHistories];
}

/** Returns the history of a choice that was not chosen, including its continuation, then the histories that started from it. */
function branch(turn: Turn, messages: readonly RequestMessage[], tools: readonly Tool[]): RecordedHistory[] {
  const [continuation, ...otherHistories] = turn.next === null ? [] : histories(turn.next);
  return [{ items: [...messages, turn.choice, ...(continuation?.items ?? [])], tools }, ...otherHistories];
}

/** Returns the tools of a call in the form of trajectories. Tools that are not functions are left out. */
function toolsOf({ request }: RecordedCall): readonly Tool[] {
  return (request.tools ?? []).flatMap((tool) => {
    const result = toolSchema.safeParse(tool);
    return result.success ? [result.data] : [];
  });
}
