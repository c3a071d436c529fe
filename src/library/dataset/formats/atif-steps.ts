/**
 * Conversion between the items of a history (messages and choices) and the steps of ATIF.
 *
 * A step cannot hold everything that an item has. The writer therefore rebuilds the item from the finished step, as the reader will, and
 * keeps the difference to the original, the extension values, under `extra.whetstone`. The reader lays the extension values over the item
 * that it rebuilds.
 */
import type { AssistantChoice, LogprobEntry, MessageOrChoice, RequestMessage, ToolCall } from "../../../base/schema/index.ts";
import { isChoice, textOf } from "../../../base/trajectory/messages.ts";
import { parseJson } from "../../../base/util/values.ts";
import type { AtifStep } from "./atif-schema.ts";
import { valueDifference, overlaid } from "./difference.ts";
import { isJsonObject, type Json } from "./documents.ts";
import { present } from "../records.ts";

/** Key of `extra` under which the writer keeps values that ATIF has no field for. */
const EXTENSION = "whetstone";

type Content = AtifStep["message"];
type Result = NonNullable<AtifStep["observation"]>["results"][number];
type Call = NonNullable<AtifStep["tool_calls"]>[number];
type Metrics = NonNullable<AtifStep["metrics"]>;
type Extra = AtifStep["extra"];

/** Returns the extension values in `extra`; undefined for a document of another writer. */
export function extensionOf(extra: Extra): Json | undefined {
  const values = extra?.[EXTENSION];
  return isJsonObject(values) ? values : undefined;
}

/** Returns the member `extra` with extension values; no member for undefined. */
export function withExtension(values: unknown): { readonly extra?: Json } {
  return values === undefined ? {} : { extra: { [EXTENSION]: values } };
}

// Reading: from steps to items.

/** Returns the message or choice of a step, then the messages of its observation. */
export function itemsOfStep(step: AtifStep): MessageOrChoice[] {
  const item = overlaid(rebuiltItem(step), extensionOf(step.extra)?.["item"]) as MessageOrChoice;
  return [item, ...(step.observation?.results ?? []).map(fromAtifResult)];
}

/** Converts a result to a message, with its extension values. */
function fromAtifResult(result: Result): RequestMessage {
  return overlaid(rebuiltResult(result), extensionOf(result.extra)) as RequestMessage;
}

/** Rebuilds a message from a result alone, without extension values. A result without a call is feedback to the agent: a message of the user. */
function rebuiltResult({ source_call_id: id, content }: Result): RequestMessage {
  const role = id === undefined || id === null ? "user" : "tool";
  return { role, content: content ?? "", ...present({ tool_call_id: id }) };
}

/** Rebuilds an item from a step alone, without extension values. */
function rebuiltItem(step: AtifStep): MessageOrChoice {
  if (step.source !== "agent") return { role: step.source, content: step.message };
  const calls = (step.tool_calls ?? []).map(fromAtifCall);
  const message = {
    role: "assistant",
    content: agentText(step.message) || (calls.length > 0 ? null : ""),
    ...present({ tool_calls: calls.length > 0 ? calls : null, reasoning: step.reasoning_content }),
  };
  if (step.is_copied_context === true || step.llm_call_count === 0) return message;
  return { message, ...present({ model: step.model_name }), ...tokensFromMetrics(step) } as AssistantChoice;
}

/** Returns the text of an agent's message. Its parts are texts: the reader rejects other ones. */
function agentText(content: Content): string {
  return typeof content === "string" ? content : content.map(({ text }) => text ?? "").join("");
}

/** Converts a tool call of ATIF, with its extension values. */
function fromAtifCall(call: Call): ToolCall {
  const rebuilt = {
    id: call.tool_call_id,
    type: "function",
    function: { name: call.function_name, arguments: JSON.stringify(call.arguments) },
  };
  return overlaid(rebuilt, extensionOf(call.extra)) as ToolCall;
}

/**
 * Returns token ids and log-probabilities of a step; none for a step of several model calls (their tokens cannot be separated).
 */
function tokensFromMetrics({ metrics, llm_call_count: count }: AtifStep): Partial<AssistantChoice> {
  if (!metrics || (count ?? 1) > 1) return {};
  const { prompt_token_ids: prompt, completion_token_ids: ids, logprobs } = metrics;
  /** Extension values of each token's entry, in the order of the tokens. */
  const extensions = metrics.extra?.[EXTENSION];
  const entries = logprobs?.map((logprob, index) =>
    overlaid({ token: tokenName(ids?.[index]), logprob }, Array.isArray(extensions) ? extensions[index] : {}),
  );
  const content = entries as LogprobEntry[] | undefined;
  return present({ prompt_token_ids: prompt, token_ids: ids, logprobs: content && { content } });
}

/** Returns the text of a token in log-probabilities, for which ATIF has only the id. */
function tokenName(id: number | undefined): string {
  return id === undefined ? "" : `token_id:${id}`;
}

// Writing: from items to steps.

/** Step without its number. */
type UnnumberedStep = Omit<AtifStep, "step_id">;

/** Returns the steps of a history. A tool message becomes a result in the observation of the step before it. */
export function stepsOf(items: readonly MessageOrChoice[]): AtifStep[] {
  const steps: AtifStep[] = [];
  for (const item of items) {
    const last = steps.at(-1);
    if (!isChoice(item) && item.role === "tool" && last !== undefined) {
      const results = [...(last.observation?.results ?? []), toAtifResult(item, last)];
      steps[steps.length - 1] = { ...last, observation: { results } };
      continue;
    }
    steps.push(stepOf(item, steps.length + 1));
  }
  return steps;
}

/** Returns the step of an item, with the difference between the item and its rebuilt form as extension values. */
function stepOf(item: MessageOrChoice, number: number): AtifStep {
  const isAgentStep = isChoice(item) || item.role === "assistant";
  const step = { step_id: number, ...(isAgentStep ? agentStep(item, number) : contextStep(item)) };
  const rebuilt = rebuiltItem(step);
  const difference = valueDifference(withEntriesOf(rebuilt, item), rebuilt);
  return { ...step, ...withExtension(difference === undefined ? undefined : { item: difference }) };
}

/**
 * Returns an item with the log-probabilities of its rebuilt form, so that they do not count as a difference: {@link metricsFromTokens} keeps their
 * extension values.
 */
function withEntriesOf(rebuilt: MessageOrChoice, item: MessageOrChoice): MessageOrChoice {
  if (!isChoice(item) || !isChoice(rebuilt) || !item.logprobs?.content) return item;
  return { ...item, logprobs: { ...item.logprobs, content: rebuilt.logprobs?.content } };
}

/** Returns the step of a message that no agent wrote. */
function contextStep(message: RequestMessage): UnnumberedStep {
  const isSystem = message.role === "system" || message.role === "developer";
  return { source: isSystem ? "system" : "user", message: contentOf(message) };
}

/** Returns the content of a message as ATIF holds it: text, or parts if all are plain text parts. */
function contentOf(message: RequestMessage): Content {
  const { content } = message;
  if (!Array.isArray(content)) return content ?? "";
  const parts = content.flatMap((each) => {
    const isPlain = isJsonObject(each) && each["type"] === "text" && typeof each["text"] === "string" && Object.keys(each).length === 2;
    return isPlain ? [{ type: "text" as const, text: each["text"] as string }] : [];
  });
  return parts.length === content.length ? parts : textOf(message);
}

/** Converts a tool message to a result of the step. It has no call id if the step has no such call. */
function toAtifResult(message: RequestMessage, { tool_calls: calls }: AtifStep): Result {
  const id = message.tool_call_id;
  const isKnown = typeof id === "string" && (calls ?? []).some((call) => call.tool_call_id === id);
  const result = { ...(isKnown ? { source_call_id: id } : {}), content: contentOf(message) };
  return { ...result, ...withExtension(valueDifference(message, rebuiltResult(result))) };
}

/** Returns the step of a sampled turn or of another assistant message. @param number - Number of the step, for ids of calls without one. */
function agentStep(item: AssistantChoice | RequestMessage, number: number): UnnumberedStep {
  const message: Json = isChoice(item) ? item.message : item;
  const reasoning = message["reasoning"] ?? message["reasoning_content"];
  const calls = ((message["tool_calls"] ?? []) as readonly ToolCall[]).map((call, index) =>
    toAtifCall(call, `call_${number}_${index + 1}`),
  );
  return {
    source: "agent",
    ...(isChoice(item) && typeof item["model"] === "string" ? { model_name: item["model"] } : {}),
    message: textOf(item),
    ...(typeof reasoning === "string" ? { reasoning_content: reasoning } : {}),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(isChoice(item) ? { ...metricsFromTokens(item), llm_call_count: 1 } : { is_copied_context: true }),
  };
}

/** Converts a tool call to ATIF, with its extension values. @param defaultId - Id of a call without one. */
function toAtifCall(call: ToolCall, defaultId: string): Call {
  const converted = {
    tool_call_id: call.id ?? defaultId,
    function_name: call.function.name,
    arguments: argumentsOf(call.function.arguments),
  };
  return { ...converted, ...withExtension(valueDifference(call, fromAtifCall(converted))) };
}

/** Parses arguments; `{}` for text that is not a JSON object, which becomes an extension value. */
function argumentsOf(text: string | null | undefined): Json {
  const value = parseJson(text ?? "");
  return isJsonObject(value) ? value : {};
}

/** Returns tokens and log-probabilities of a turn, with the extension values of each token's entry. */
function metricsFromTokens(choice: AssistantChoice): { readonly metrics?: Metrics } {
  const { prompt_token_ids: prompt, token_ids: ids, logprobs } = choice;
  const entries = logprobs?.content;
  if (!prompt && !ids && !entries) return {};
  const extensions = entries?.map(
    (entry, index) => valueDifference(plainEntry(entry), { token: tokenName(ids?.[index]), logprob: entry.logprob }) ?? {},
  );
  const hasExtensions = extensions?.some((each) => Object.keys(each as Json).length > 0) ?? false;
  return {
    metrics: {
      ...present({
        prompt_tokens: prompt?.length,
        prompt_token_ids: prompt,
        completion_tokens: ids?.length,
        completion_token_ids: ids,
        logprobs: entries?.map(({ logprob }) => logprob),
      }),
      ...withExtension(hasExtensions ? extensions : undefined),
    },
  };
}

/** Returns an entry without empty values, which its schema adds. */
function plainEntry({ top_logprobs: top, bytes, ...entry }: LogprobEntry): Json {
  return { ...entry, ...(bytes ? { bytes } : {}), ...(top?.length > 0 ? { top_logprobs: top } : {}) };
}
