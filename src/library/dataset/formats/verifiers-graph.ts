/**
 * Conversion of the message graph of a verifiers trace to histories. The nodes of the graph are messages, each with the previous message as
 * its parent; every path from a first message to a last one is a history.
 */
import type { AssistantChoice, History, MessageOrChoice, RequestMessage, Tool } from "../../../base/schema/index.ts";
import { DataError } from "../../../base/errors.ts";
import { samplingOf } from "../../../base/trajectory/sampling.ts";
import type { VerifiersMessage, VerifiersNode, VerifiersTool, VerifiersTrace } from "./verifiers-schema.ts";
import { present } from "../records.ts";
import { first, itemAt } from "../../../base/util/values.ts";

/** JSON schema of a tool's arguments. */
type FunctionParameters = Tool["function"]["parameters"];

/** Path through the graph, from a first message to a last one. */
interface Branch {
  /** Indices of its nodes, first message first. */
  readonly path: readonly number[];
  /** Whether its turns are trained; false for an attempt to compact the context after which the agent did not continue. */
  readonly isTrained: boolean;
}

/**
 * Returns the histories of a trace. The main one, the last that is trained, is the first. A sampled turn on several paths is a choice in
 * the first history that has it, and context in the others, so that it is trained once.
 *
 * @throws DataError `E_DATA` that starts with `where`, for a graph or a turn that is inconsistent.
 */
export function historiesOfTrace(trace: VerifiersTrace, where: string): History[] {
  const branches = branchesOf(trace, where);
  const main = branches.findLast(({ isTrained }) => isTrained);
  const ordered = main === undefined ? branches : [main, ...branches.filter((branch) => branch !== main)];
  /** Nodes that are choices in an earlier history. */
  const choiceNodes = new Set<number>();
  return ordered.map(({ path, isTrained }) => ({
    messages_and_choices: itemsOf(trace, path, isTrained && trace.agent.trainable ? choiceNodes : null, where),
    tools: toolsOf(trace, path),
  }));
}

/** Returns the paths of the graph, in the order of their last messages. */
function branchesOf({ nodes }: VerifiersTrace, where: string): Branch[] {
  checkParents(nodes, where);
  const parents = new Set(nodes.map(({ parent }) => parent));
  // A node that ends an attempt to compact the context is continued by a node with a link of type `compaction` to it.
  const links = nodes.flatMap((node) => node.semantic_parents);
  const continuedAttempts = new Set(links.filter(({ type }) => type === "compaction").map(({ node }) => node));
  return nodes.flatMap((leaf, index) => {
    if (parents.has(index)) return [];
    const isAttempt = leaf.semantic_parents.some(({ type }) => type === "compaction_attempt");
    return [{ path: pathTo(nodes, index), isTrained: !isAttempt || continuedAttempts.has(index) }];
  });
}

/** Checks that nodes are appended after their parents, which also excludes cycles. @throws DataError `E_DATA` that starts with `where`. */
function checkParents(nodes: readonly VerifiersNode[], where: string): void {
  for (const [index, { parent }] of nodes.entries()) {
    if (typeof parent === "number" && parent >= index)
      throw new DataError(`${where}.nodes.${index}.parent: expected the index of an earlier node, got ${parent}`);
  }
}

/** Returns the indices of the nodes from a first message to the node at `index`. */
function pathTo(nodes: readonly VerifiersNode[], index: number): number[] {
  const path = [index];
  for (let { parent } = itemAt(nodes, index); typeof parent === "number"; parent = itemAt(nodes, parent).parent) path.unshift(parent);
  return path;
}

/**
 * Returns the items of a path.
 *
 * @param choiceNodes - Nodes that are choices in earlier histories, which it extends; null for a path without choices.
 */
function itemsOf(trace: VerifiersTrace, path: readonly number[], choiceNodes: Set<number> | null, where: string): MessageOrChoice[] {
  /** Token ids of the nodes before the current one. */
  let precedingIds: readonly number[] = [];
  return path.map((index) => {
    const node = itemAt(trace.nodes, index);
    const promptIds = precedingIds;
    precedingIds = [...precedingIds, ...node.token_ids];
    if (!node.sampled || choiceNodes === null || choiceNodes.has(index)) return chatMessage(node.message);
    choiceNodes.add(index);
    return choiceOf(trace, index, promptIds, `${where}.nodes.${index}`);
  });
}

/** Converts a sampled node to a choice. @param promptIds - Token ids of the nodes before it. */
function choiceOf(trace: VerifiersTrace, index: number, promptIds: readonly number[], where: string): AssistantChoice {
  const node = itemAt(trace.nodes, index);
  const call = trace.calls.findLast((each) => each.node === index);
  const { role, content, ...message } = chatMessage(node.message);
  return {
    index: 0,
    message: { role, content: typeof content === "string" ? content : null, ...message },
    finish_reason: call?.finish_reason ?? null,
    ...(typeof call?.model === "string" ? { model: call.model } : {}),
    ...samplingOf({ messages: [], ...call?.sampling }),
    ...tokensOf(node, promptIds, where),
  };
}

/** Returns token ids and log-probabilities of a sampled node. @throws DataError `E_DATA` if their numbers do not match. */
function tokensOf(
  { token_ids: ids, mask, logprobs }: VerifiersNode,
  promptIds: readonly number[],
  where: string,
): Partial<AssistantChoice> {
  // A provider without token ids leaves them empty.
  if (ids.length === 0) return {};
  // The message begins with unsampled tokens of the chat template, which belong to the prompt.
  const sampledStart = mask.includes(true) ? mask.indexOf(true) : mask.length;
  if (mask.length !== ids.length) throw new DataError(`${where}.mask: expected one value per token id (${ids.length}), got ${mask.length}`);
  if (mask.includes(false, sampledStart))
    throw new DataError(`${where}.mask: expected the sampled tokens at the end, got unsampled tokens after them`);
  const sampled = ids.slice(sampledStart);
  if (logprobs.length !== sampled.length)
    throw new DataError(`${where}.logprobs: expected one value per sampled token (${sampled.length}), got ${logprobs.length}`);
  return {
    prompt_token_ids: [...promptIds, ...ids.slice(0, sampledStart)],
    token_ids: sampled,
    logprobs: { content: logprobs.map((logprob, index) => ({ token: `token_id:${sampled[index]}`, logprob, top_logprobs: [] })) },
  };
}

/** Converts a message of verifiers to a chat message. */
function chatMessage({ role, content, reasoning_content: reasoning, tool_calls, tool_call_id, name }: VerifiersMessage): RequestMessage {
  const calls = tool_calls?.map(({ id, name: called, arguments: args }) => ({
    id,
    type: "function" as const,
    function: { name: called, arguments: args },
  }));
  const toolCalls = calls?.length ? calls : undefined;
  return { role, content: content ?? (toolCalls ? null : ""), ...present({ reasoning, tool_calls: toolCalls, tool_call_id, name }) };
}

/**
 * Returns the function tools of a path: its own, else the tools of the trace. Tools of other types, which a provider runs, are left out.
 */
function toolsOf(trace: VerifiersTrace, path: readonly number[]): Tool[] {
  const pathTools = itemAt(trace.nodes, first(path)).tools;
  const tools: readonly VerifiersTool[] = pathTools.length > 0 ? pathTools : trace.tools;
  return tools
    .filter(({ type }) => type === "function")
    .map(({ name, description, parameters, strict }) => ({
      type: "function",
      function: {
        name,
        ...present({ description: description || null, parameters: parameters as FunctionParameters | null | undefined, strict }),
      },
    }));
}
