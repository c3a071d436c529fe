/** Assembly of a streamed chat completion from its chunks, for turns of the service's sessions and for the capture of clients' streams. */
import type { ChatCompletion, ChatCompletionChunk, Choice, LogprobEntry, ToolCall, Usage } from "../schema/index.ts";
import { getOrInsert } from "../util/values.ts";

/** Part of a choice in a chunk. */
type ChunkChoice = ChatCompletionChunk["choices"][number];
/** Texts, tool calls and role in a part of a choice. */
type Delta = ChunkChoice["delta"];

/** Tool call whose parts have been received so far. */
interface PartialCall {
  id: string | null;
  name: string;
  arguments: string;
}

/** Choice whose parts have been received so far. */
interface PartialChoice {
  role: string;
  /** Text by key of the delta: `content`, `refusal`, `reasoning`, `reasoning_content`. */
  readonly texts: Map<string, string>;
  readonly toolCalls: Map<number, PartialCall>;
  /** Null until a chunk has log-probabilities. */
  logprobs: LogprobEntry[] | null;
  /** Null until a chunk has token ids. */
  tokenIds: number[] | null;
  finishReason: string | null;
  stopReason: number | string | null;
}

/** Keys of a delta whose texts are concatenated. */
const TEXT_KEYS = ["content", "refusal", "reasoning", "reasoning_content"];

/**
 * Assembler of one stream: receives the chunks in order and returns an equivalent completion without streaming. Token counts are 0 if no
 * chunk has `usage`.
 */
export class CompletionAssembler {
  readonly #choices = new Map<number, PartialChoice>();
  /** Values that all chunks share, from the first chunk; null before the first chunk. */
  #sharedValues: Pick<ChatCompletion, "id" | "created" | "model"> | null = null;
  #promptTokenIds: number[] | null = null;
  #unusedTemplateKwargs: string[] | undefined;
  #usage: Usage | null = null;

  /** Adds the next chunk. */
  push(chunk: ChatCompletionChunk): void {
    const { id, created, model } = chunk;
    this.#sharedValues ??= { id, created, model };
    // Only the first chunk has the token ids of the prompt.
    this.#promptTokenIds ??= chunk.prompt_token_ids ?? null;
    this.#unusedTemplateKwargs ??= chunk.unused_template_kwargs;
    this.#usage = chunk.usage ?? this.#usage;
    for (const part of chunk.choices) this.#addPart(part);
  }

  /** Whether all `n` choices have a finish reason: only a chunk with usage may follow. */
  isComplete(n: number): boolean {
    return this.#choices.size >= n && [...this.#choices.values()].every((choice) => choice.finishReason !== null);
  }

  /** Returns the completion so far; null if no choice was received. */
  toCompletion(): ChatCompletion | null {
    if (this.#sharedValues === null || this.#choices.size === 0) return null;
    const choices = [...this.#choices].sort(([a], [b]) => a - b).map(([index, choice]) => toChoice(index, choice));
    return {
      ...this.#sharedValues,
      object: "chat.completion",
      choices,
      usage: this.#usage ?? { prompt_tokens: 0, total_tokens: 0, completion_tokens: 0 },
      prompt_token_ids: this.#promptTokenIds,
      ...(this.#unusedTemplateKwargs === undefined ? {} : { unused_template_kwargs: this.#unusedTemplateKwargs }),
    };
  }

  /** Adds the part of a chunk that continues one choice. */
  #addPart(part: ChunkChoice): void {
    const choice = getOrInsert(this.#choices, part.index, emptyChoice);
    if (part.delta.role !== undefined && part.delta.role !== "") choice.role = part.delta.role;
    for (const key of TEXT_KEYS) {
      const text = part.delta[key];
      if (typeof text === "string") choice.texts.set(key, (choice.texts.get(key) ?? "") + text);
    }
    addToolCalls(choice, part.delta);
    const entries = part.logprobs?.content;
    if (entries) {
      choice.logprobs ??= [];
      choice.logprobs.push(...entries);
    }
    if (part.token_ids) {
      choice.tokenIds ??= [];
      choice.tokenIds.push(...part.token_ids);
    }
    choice.finishReason = part.finish_reason ?? choice.finishReason;
    choice.stopReason = part.stop_reason ?? choice.stopReason;
  }
}

/** Returns a choice without any parts. */
function emptyChoice(): PartialChoice {
  return {
    role: "assistant",
    texts: new Map(),
    toolCalls: new Map(),
    logprobs: null,
    tokenIds: null,
    finishReason: null,
    stopReason: null,
  };
}

/** Adds the parts of tool calls in a delta to a choice. A part with a new index starts a call. */
function addToolCalls(choice: PartialChoice, delta: Delta): void {
  for (const { index, id, function: part } of delta.tool_calls ?? []) {
    const call = getOrInsert(choice.toolCalls, index, (): PartialCall => ({ id: null, name: "", arguments: "" }));
    call.id ??= id ?? null;
    // A name arrives complete; some servers repeat it with every part of the arguments.
    if (call.name === "") call.name = part?.name ?? "";
    call.arguments += part?.arguments ?? "";
  }
}

/** Converts a choice to the form of a response without streaming. */
function toChoice(index: number, choice: PartialChoice): Choice {
  const toolCalls: ToolCall[] = [...choice.toolCalls]
    .sort(([a], [b]) => a - b)
    .map(([, { id, name, arguments: argumentsText }]) => ({ id, type: "function", function: { name, arguments: argumentsText } }));
  const { content = "", ...otherTexts } = Object.fromEntries(choice.texts);
  return {
    index,
    message: {
      role: choice.role,
      // As in a response without streaming, an empty text is null if there are tool calls, and an empty string otherwise.
      content: content === "" && toolCalls.length > 0 ? null : content,
      tool_calls: toolCalls,
      ...otherTexts,
    },
    logprobs: choice.logprobs === null ? null : { content: choice.logprobs },
    finish_reason: choice.finishReason,
    stop_reason: choice.stopReason,
    token_ids: choice.tokenIds,
  };
}
