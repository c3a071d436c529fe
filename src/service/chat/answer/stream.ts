/**
 * Chunks of a chat completion, generated on demand at the rate of the reader. `ChatService` adds the output (`push`, `conclude`,
 * `pushChoice`, `fail`), and the route reads it (`next`, `cancel`).
 *
 * The output of a choice passes through parsers: reasoning first, then tool calls. Their results are collected in `PendingChoice` until
 * the reader asks, and then become one chunk (`#addPiece`), or at the end of the choice the last chunks (`#addEnd`).
 */
import type { ChatCompletionChunk, ErrorBody } from "../../../base/schema/index.ts";
import type { ChoiceEnd, GeneratedChoice, GeneratedToken } from "../generate/generate.ts";
import type { WireLogprob } from "../generate/logprobs.ts";
import type { ChunkBatch, ChunkSource } from "./chunk-source.ts";
import { ReasoningStream } from "../text/reasoning.ts";
import { finishReason, toPromptDetails, toUsage, unusedKwargsMember, type ShapeOptions, type WireUsage } from "./shape.ts";
import type { CallDelta, ForcedCallStream } from "../text/forced-calls.ts";
import { ToolCallStream, type ParsedToolCall } from "../text/tool-calls.ts";
import { itemAt } from "../../../base/util/values.ts";

/** Options of a stream besides the generated tokens. */
export interface CompletionStreamOptions extends ShapeOptions {
  readonly usage: "none" | "final" | "continuous";
  /** Called when the reader disconnects before the end. */
  readonly onCancel: () => void;
}

/** State of a choice: the parsers of its text, and its output since its last chunk. */
interface PendingChoice {
  /** Parser of reasoning; null if reasoning is not parsed. */
  readonly reasoningParser: ReasoningStream | null;
  /** Parser of tool calls in free text; null if they are not parsed. */
  readonly toolCallParser: ToolCallStream | null;
  /** Tool calls of the whole text, set at the end by {@link CompletionStream.conclude}. */
  toolCalls: readonly ParsedToolCall[];
  /** Parser of forced tool calls; null if the request forces none. */
  readonly forcedCallParser: ForcedCallStream | null;
  /** Pieces of forced tool calls since the last chunk. */
  callPieces: CallDelta[];
  /** Reasoning since the last chunk. */
  reasoning: string;
  /** Content since the last chunk. */
  text: string;
  /** Token ids since the last chunk. */
  ids: number[];
  /** Log-probabilities since the last chunk. */
  logprobs: WireLogprob[];
  /** Reason for the end; null before the last token. */
  end: ChoiceEnd | null;
  /** Number of tokens so far. */
  tokenCount: number;
  /** Whether the last chunk was made. */
  isFinished: boolean;
}

/** Output of a choice since its last chunk. */
interface NewOutput extends Pick<PendingChoice, "text" | "ids"> {
  /** Members of the delta for reasoning and forced calls; absent without output. */
  readonly members: { readonly reasoning?: string; readonly tool_calls?: readonly CallDelta[] };
  readonly logprobs: { readonly content: readonly WireLogprob[] } | null;
}

/** Returns the pieces of tool calls as one member of a delta, with adjacent pieces of the same call joined; no member without pieces. */
function callsMember(pieces: readonly CallDelta[]): { readonly tool_calls?: readonly CallDelta[] } {
  const joined: CallDelta[] = [];
  for (const piece of pieces) {
    const previous = joined.at(-1);
    if (previous === undefined || previous.index !== piece.index) {
      joined.push(piece);
      continue;
    }
    const joinedArguments = previous.function.arguments + piece.function.arguments;
    joined[joined.length - 1] = { ...previous, function: { ...previous.function, arguments: joinedArguments } };
  }
  return joined.length === 0 ? {} : { tool_calls: joined };
}

/**
 * Tokens in a batch, counted with their alternatives, after which no further choice is added to it. The other choices follow with the
 * reader's next read.
 */
const MAX_BATCH_TOKENS = 2048;

/**
 * Converter of tokens to the chunks of a chat completion stream.
 *
 * Chunks are generated when the reader asks, from all output since the last: one batch has one chunk for each choice with new output, and a
 * slow reader gets fewer, longer chunks. A reader that stops reading holds the tokens of one request in memory, which `max_tokens` bounds;
 * the request's engine slot is not blocked.
 */
export class CompletionStream implements ChunkSource {
  readonly #options: CompletionStreamOptions;
  readonly #head: Pick<ChatCompletionChunk, "id" | "object" | "created" | "model">;
  readonly #choices: PendingChoice[];
  #cachedTokens = 0;
  #failure: ErrorBody | null = null;
  /** Whether the chunks with the roles were made. */
  #hasStarted = false;
  /** Index of the choice that comes first in the next batch. */
  #nextChoice = 0;
  /** Whether there may be output that no batch contains yet. */
  #hasOutput = false;
  /** Resolves the pending call of {@link next}; null without a waiting reader. */
  #resolveNext: ((batch: ChunkBatch) => void) | null = null;
  /** Pending answer to the waiting reader. */
  #scheduled: NodeJS.Immediate | null = null;

  constructor(options: CompletionStreamOptions) {
    this.#options = options;
    const { head, request } = options;
    const { id, created, model } = head;
    this.#head = { id, object: "chat.completion.chunk", created, model };
    this.#choices = Array.from({ length: request.n }, (_, index) => ({
      reasoningParser: options.shouldParseReasoning ? new ReasoningStream() : null,
      toolCallParser: request.shouldParseToolCalls ? new ToolCallStream() : null,
      toolCalls: [],
      forcedCallParser: options.forcedCalls?.stream(index) ?? null,
      callPieces: [],
      reasoning: "",
      text: "",
      ids: [],
      logprobs: [],
      end: null,
      tokenCount: 0,
      isFinished: false,
    }));
  }

  next(): Promise<ChunkBatch> {
    return new Promise((resolve) => {
      this.#resolveNext = resolve;
      if (this.#hasOutput) this.#schedule();
    });
  }

  cancel(): Promise<void> {
    if (this.#scheduled !== null) clearImmediate(this.#scheduled);
    this.#scheduled = null;
    this.#resolveNext?.({ chunks: [], failure: null, isLast: true });
    this.#resolveNext = null;
    this.#options.onCancel();
    return Promise.resolve();
  }

  /** Sets the tool calls of a choice's whole text. Must be called before the choice's last token is pushed. */
  conclude({ index, cachedTokens }: GeneratedChoice, toolCalls: readonly ParsedToolCall[]): void {
    itemAt(this.#choices, index).toolCalls = toolCalls;
    if (index === 0) this.#cachedTokens = cachedTokens;
  }

  /** Adds one token to its choice. */
  push(token: GeneratedToken): void {
    const choice = this.#choices[token.index]!;
    this.#addText(choice, token.text);
    choice.ids.push(token.id);
    if (token.logprob !== null) choice.logprobs.push(token.logprob);
    choice.end = token.end;
    choice.tokenCount++;
    this.#notify();
  }

  /** Adds a whole finished choice, which may have no tokens. */
  pushChoice({ index, text, ids, logprobs, finishReason, stopReason, closedBy }: GeneratedChoice): void {
    const choice = itemAt(this.#choices, index);
    this.#addText(choice, text);
    choice.ids = [...ids];
    choice.logprobs = [...(logprobs ?? [])];
    choice.tokenCount = ids.length;
    choice.end = { finishReason, stopReason, closedBy };
    this.#notify();
  }

  /** Appends new text to a choice, split into reasoning, tool calls and content. */
  #addText(choice: PendingChoice, text: string): void {
    const { reasoning, content } = choice.reasoningParser?.push(text) ?? { reasoning: "", content: text };
    choice.reasoning += reasoning;
    if (choice.forcedCallParser === null) choice.text += choice.toolCallParser?.push(content) ?? content;
    else choice.callPieces.push(...choice.forcedCallParser.push(content));
  }

  /** Ends the stream with an error event. */
  fail(error: ErrorBody): void {
    this.#failure = error;
    this.#notify();
  }

  /** Records that there is new output, and answers a waiting reader. */
  #notify(): void {
    this.#hasOutput = true;
    if (this.#resolveNext !== null) this.#schedule();
  }

  /** Answers the waiting reader at the end of the current turn of the event loop, so that one chunk covers all tokens of the turn. */
  #schedule(): void {
    this.#scheduled ??= setImmediate(() => {
      this.#scheduled = null;
      const batch = this.#takeBatch();
      if (batch.chunks.length === 0 && !batch.isLast) return;
      const resolve = this.#resolveNext!;
      this.#resolveNext = null;
      resolve(batch);
    });
  }

  /** Returns a batch of the output since the last one, choice by choice until the batch is full. */
  #takeBatch(): ChunkBatch {
    this.#hasOutput = false;
    if (this.#failure !== null) return { chunks: [], failure: this.#failure, isLast: true };
    const chunks: ChatCompletionChunk[] = [];
    if (!this.#hasStarted && this.#choices.some((choice) => choice.tokenCount > 0 || choice.end !== null)) this.#addRoles(chunks);
    const choiceCount = this.#choices.length;
    let batchTokens = 0;
    for (let visited = 0; visited < choiceCount && batchTokens <= MAX_BATCH_TOKENS; visited++) {
      const index = this.#nextChoice;
      this.#nextChoice = (index + 1) % choiceCount;
      const choice = this.#choices[index]!;
      const hasNewOutput = choice.ids.length > 0 || choice.end !== null;
      if (!hasNewOutput || choice.isFinished) continue;
      batchTokens += choice.ids.length * (1 + (choice.logprobs[0]?.top_logprobs.length ?? 0));
      this.#addChoice(chunks, index, choice);
    }
    // A full batch may have left choices out.
    this.#hasOutput = batchTokens > MAX_BATCH_TOKENS;
    const isLast = this.#choices.every((choice) => choice.isFinished);
    if (isLast && this.#options.usage !== "none") {
      const tokenCount = this.#choices.reduce((sum, choice) => sum + choice.tokenCount, 0);
      chunks.push(this.#chunk([], this.#usage(tokenCount)));
    }
    return { chunks, failure: null, isLast };
  }

  /** Returns a chunk with parts of choices. `usage` is left out if it is null. */
  #chunk(choices: readonly object[], usage: WireUsage | null): ChatCompletionChunk {
    const { id, object, created, model } = this.#head;
    const chunk = usage === null ? { id, object, created, model, choices } : { id, object, created, model, choices, usage };
    // The lists of the schema's type are mutable; these are not.
    return chunk as unknown as ChatCompletionChunk;
  }

  /** Returns the token counts with the number of output tokens of all choices, or of one choice for its chunks. */
  #usage(completionTokens: number): WireUsage {
    const details = toPromptDetails(this.#cachedTokens, this.#options);
    const usage = toUsage(this.#options.promptIds.length, completionTokens);
    return details === null ? usage : { ...usage, prompt_tokens_details: details };
  }

  /** Returns the token counts for a chunk of a choice; null if only the end of the stream reports them. */
  #continuousUsage(completionTokens: number): WireUsage | null {
    return this.#options.usage === "continuous" ? this.#usage(completionTokens) : null;
  }

  /** Adds the first chunk of each choice, which has its role and no text, and with `echo` a second chunk with the echoed text. */
  #addRoles(chunks: ChatCompletionChunk[]): void {
    this.#hasStarted = true;
    const { request, promptIds, role, echo } = this.#options;
    for (let index = 0; index < this.#choices.length; index++) {
      const choice = { index, delta: { role, content: "" }, logprobs: null, finish_reason: null };
      // The prompt's ids are the same for all choices and many: only the first chunk carries them.
      const prompt_token_ids = request.returnTokenIds && index === 0 ? [...promptIds] : null;
      const unused: object = index === 0 ? unusedKwargsMember(this.#options) : {};
      chunks.push({ ...this.#chunk([choice], this.#continuousUsage(0)), prompt_token_ids, ...unused });
    }
    for (let index = 0; index < this.#choices.length && echo !== ""; index++) {
      const choice = { index, delta: { content: echo }, logprobs: null, finish_reason: null };
      chunks.push(this.#chunk([choice], this.#continuousUsage(0)));
    }
  }

  /** Adds the chunks of a choice's output since its last chunk, unless all of it is held back. */
  #addChoice(chunks: ChatCompletionChunk[], index: number, choice: PendingChoice): void {
    const output = this.#takeOutput(choice);
    if (choice.end === null) this.#addPiece(chunks, index, choice, output);
    else this.#addEnd(chunks, index, choice, choice.end, output);
  }

  /** Removes and returns the new output of a choice; at its end with the text that its parsers hold back. */
  #takeOutput(choice: PendingChoice): NewOutput {
    const { end, forcedCallParser, toolCallParser, reasoningParser, toolCalls } = choice;
    if (end !== null) {
      // A forced array of calls that was cut short before its first call is content.
      if (forcedCallParser !== null && !forcedCallParser.hasCalls) choice.text += forcedCallParser.takeHeldText();
      choice.reasoning += reasoningParser?.takeHeldText() ?? "";
      // Text held back as possible tool calls is content if it contains none.
      if (toolCallParser !== null && toolCalls.length === 0) choice.text += toolCallParser.takeHeldText();
    }
    const reasoning = this.#options.request.includeReasoning && choice.reasoning !== "" ? { reasoning: choice.reasoning } : {};
    const output = {
      text: choice.text,
      ids: choice.ids,
      members: { ...reasoning, ...callsMember(choice.callPieces) },
      logprobs: choice.logprobs.length > 0 ? { content: choice.logprobs } : null,
    };
    choice.text = "";
    choice.reasoning = "";
    choice.callPieces = [];
    choice.ids = [];
    choice.logprobs = [];
    return output;
  }

  /** Adds the chunk of a choice that continues; none if all its text is held back, unless the chunk has log-probabilities or ids. */
  #addPiece(
    chunks: ChatCompletionChunk[],
    index: number,
    { tokenCount }: PendingChoice,
    { text, ids, members, logprobs }: NewOutput,
  ): void {
    const { returnTokenIds } = this.#options.request;
    if (text === "" && Object.keys(members).length === 0 && logprobs === null && !returnTokenIds) return;
    const delta = text === "" ? members : { ...members, content: text };
    const choice = { index, delta, logprobs, finish_reason: null, token_ids: returnTokenIds ? ids : null };
    chunks.push(this.#chunk([choice], this.#continuousUsage(tokenCount)));
  }

  /** Adds the last chunks of a choice. The last one has its finish reason, log-probabilities and ids. */
  #addEnd(chunks: ChatCompletionChunk[], index: number, choice: PendingChoice, end: ChoiceEnd, output: NewOutput): void {
    choice.isFinished = true;
    const { toolCalls, forcedCallParser } = choice;
    const { text, members } = output;
    const usage = this.#continuousUsage(choice.tokenCount);
    const add = (delta: object): void => {
      chunks.push(this.#chunk([{ index, delta, logprobs: null, finish_reason: null, token_ids: null }], usage));
    };
    const addLast = (delta: object, finish: string): void => {
      const tokenIds = this.#options.request.returnTokenIds ? output.ids : null;
      const last = { finish_reason: finish, logprobs: output.logprobs, stop_reason: end.stopReason, token_ids: tokenIds };
      chunks.push(this.#chunk([{ index, delta, ...last }], usage));
    };
    const { forcedCalls } = this.#options;
    if (forcedCalls !== null && forcedCallParser?.hasCalls === true) {
      // As in vLLM, which does not know during a stream whether the array of calls will be complete.
      addLast(members, forcedCalls.name === null ? "tool_calls" : end.finishReason);
      return;
    }
    const reason = finishReason(end, toolCalls, forcedCalls);
    if (toolCalls.length === 0) {
      addLast({ ...members, content: text }, reason);
      return;
    }
    if (Object.keys(members).length > 0) add(members);
    if (text !== "") add({ content: text });
    for (const [callIndex, { id, type, function: called }] of toolCalls.entries()) {
      add({ tool_calls: [{ index: callIndex, id, type, function: { name: called.name, arguments: "" } }] });
      add({ tool_calls: [{ index: callIndex, function: { arguments: called.arguments } }] });
    }
    addLast({}, reason);
  }
}
