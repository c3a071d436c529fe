/** Server-sent events of a chat completion, generated on demand at the rate of the reader. */
import type { ErrorBody } from "../../../schema/error.ts";
import type { ChoiceEnd, GeneratedChoice, GeneratedToken } from "../generate/generate.ts";
import type { WireLogprob } from "../generate/logprobs.ts";
import { ReasoningStream } from "../text/reasoning.ts";
import { finishReason, toPromptDetails, toUsage, unusedKwargsMember, type ShapeOptions } from "./shape.ts";
import type { CallDelta, ForcedCallStream } from "../text/forced-calls.ts";
import { ToolCallStream, type ParsedToolCall } from "../text/tool-calls.ts";

/** Options of a stream besides the generated tokens. */
export interface StreamOptions extends ShapeOptions {
  readonly usage: "none" | "final" | "continuous";
  /** Called when the reader disconnects before the end. */
  readonly onCancel: () => void;
}

/** Output of a choice since its last chunk. */
interface PendingChoice {
  readonly thoughts: ReasoningStream | null;
  readonly tools: ToolCallStream | null;
  toolCalls: readonly ParsedToolCall[];
  readonly forced: ForcedCallStream | null;
  calls: CallDelta[];
  reasoning: string;
  text: string;
  ids: number[];
  logprobs: WireLogprob[];
  end: ChoiceEnd | null;
  /** Number of tokens so far. */
  count: number;
  isFinished: boolean;
}

const encoder = new TextEncoder();

/** Returns the pieces of tool calls as one member of a delta, with adjacent pieces of the same call joined. */
function callsMember(deltas: readonly CallDelta[]): { readonly tool_calls?: readonly CallDelta[] } {
  const joined: CallDelta[] = [];
  for (const delta of deltas) {
    const before = joined.at(-1);
    if (before?.index !== delta.index) joined.push(delta);
    else
      joined[joined.length - 1] = {
        ...before,
        function: { ...before.function, arguments: before.function.arguments + delta.function.arguments },
      };
  }
  return joined.length === 0 ? {} : { tool_calls: joined };
}

/** Length of events generated at once, in UTF-16 units; the remainder follows with the reader's next read. */
const MAX_EVENTS_LENGTH = 256 * 1024;

/**
 * Converter of tokens to the chunks of a chat completion stream.
 *
 * Chunks are generated when the reader asks, from all output since the last: one write carries one chunk for each choice with new output,
 * and a slow reader gets fewer, longer chunks. A reader that stops reading holds the tokens of one request in memory, which `max_tokens`
 * bounds; the request's engine slot is not blocked.
 */
export class CompletionStream {
  readonly readable: ReadableStream<Uint8Array>;
  readonly #options: StreamOptions;
  readonly #opening: string;
  readonly #choices: PendingChoice[];
  #cachedTokens = 0;
  #failure: ErrorBody | null = null;
  #hasStarted = false;
  /** Index of the choice that comes first in the next chunks. */
  #nextChoice = 0;
  #isClosed = false;
  #wake: (() => void) | null = null;
  #scheduled: NodeJS.Immediate | null = null;

  constructor(options: StreamOptions) {
    this.#options = options;
    const { head, request } = options;
    const { id, created, model } = head;
    this.#opening = `data: ${JSON.stringify({ id, object: "chat.completion.chunk", created, model }).slice(0, -1)},"choices":`;
    this.#choices = Array.from({ length: request.n }, (_, index) => ({
      forced: request.forcedCalls?.stream(index) ?? null,
      calls: [],
      thoughts: options.shouldParseReasoning ? new ReasoningStream() : null,
      tools: request.shouldParseToolCalls ? new ToolCallStream() : null,
      toolCalls: [],
      reasoning: "",
      text: "",
      ids: [],
      logprobs: [],
      end: null,
      count: 0,
      isFinished: false,
    }));
    this.readable = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => this.#pull(controller),
        cancel: () => {
          this.#close();
          options.onCancel();
        },
      },
      // Nothing is generated ahead of the reader.
      { highWaterMark: 0 },
    );
  }

  /** Sets the tool calls of a choice's whole text. Must be called before the choice's last token is pushed. */
  conclude({ index, cachedTokens }: GeneratedChoice, toolCalls: readonly ParsedToolCall[]): void {
    this.#choices[index]!.toolCalls = toolCalls;
    if (index === 0) this.#cachedTokens = cachedTokens;
  }

  /** Adds one token to its choice. */
  push(token: GeneratedToken): void {
    const choice = this.#choices[token.index]!;
    this.#read(choice, token.text);
    choice.ids.push(token.id);
    if (token.logprob !== null) choice.logprobs.push(token.logprob);
    choice.end = token.end;
    choice.count++;
    this.#notify();
  }

  /** Adds a whole finished choice, which may have no tokens. */
  pushChoice({ index, text, ids, logprobs, finishReason, stopReason, closedBy }: GeneratedChoice): void {
    const choice = this.#choices[index]!;
    this.#read(choice, text);
    choice.ids = [...ids];
    choice.logprobs = [...(logprobs ?? [])];
    choice.count = ids.length;
    choice.end = { finishReason, stopReason, closedBy };
    this.#notify();
  }

  /** Appends new text to a choice, split into reasoning, tool calls and content. */
  #read(choice: PendingChoice, text: string): void {
    const { reasoning, content } = choice.thoughts?.push(text) ?? { reasoning: "", content: text };
    choice.reasoning += reasoning;
    if (choice.forced === null) choice.text += choice.tools?.push(content) ?? content;
    else choice.calls.push(...choice.forced.push(content));
  }

  /** Ends the stream with an error event. */
  fail(error: ErrorBody): void {
    this.#failure = error;
    this.#notify();
  }

  /** Wakes a waiting reader at the end of the current turn of the event loop, so that one chunk covers all tokens of the turn. */
  #notify(): void {
    if (this.#wake === null) return;
    this.#scheduled ??= setImmediate(() => {
      this.#scheduled = null;
      this.#wake?.();
    });
  }

  #close(): void {
    this.#isClosed = true;
    this.#wake = null;
    if (this.#scheduled !== null) clearImmediate(this.#scheduled);
    this.#scheduled = null;
  }

  #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        const events = this.#takeEvents();
        if (events === "") return;
        this.#wake = null;
        controller.enqueue(encoder.encode(events));
        if (this.#isClosed) controller.close();
        resolve();
      };
      this.#notify();
    });
  }

  #takeEvents(): string {
    if (this.#failure !== null) {
      this.#close();
      return `data: ${JSON.stringify(this.#failure)}\n\ndata: [DONE]\n\n`;
    }
    let events = "";
    if (!this.#hasStarted && this.#choices.some((choice) => choice.count > 0 || choice.end !== null)) events += this.#roleEvents();
    const { length } = this.#choices;
    for (let at = 0; at < length && events.length < MAX_EVENTS_LENGTH; at++) {
      const index = this.#nextChoice;
      this.#nextChoice = (index + 1) % length;
      const choice = this.#choices[index]!;
      if ((choice.ids.length > 0 || choice.end !== null) && !choice.isFinished) events += this.#choiceEvents(index, choice);
    }
    if (this.#choices.every((choice) => choice.isFinished)) {
      this.#close();
      if (this.#options.usage !== "none")
        events += this.#event([], this.#usageMember(this.#choices.reduce((sum, choice) => sum + choice.count, 0)));
      events += "data: [DONE]\n\n";
    }
    return events;
  }

  #event(choices: readonly object[], more: string): string {
    return `${this.#opening}${JSON.stringify(choices)}${more}}\n\n`;
  }

  #usageMember(completionTokens: number): string {
    const details = toPromptDetails(this.#cachedTokens, this.#options);
    const usage = toUsage(this.#options.promptIds.length, completionTokens);
    return `,"usage":${JSON.stringify(details === null ? usage : { ...usage, prompt_tokens_details: details })}`;
  }

  #continuousUsage(completionTokens: number): string {
    return this.#options.usage === "continuous" ? this.#usageMember(completionTokens) : "";
  }

  #roleEvents(): string {
    this.#hasStarted = true;
    let events = "";
    for (let index = 0; index < this.#choices.length; index++) {
      // The prompt's ids are the same for all choices and many: only the first chunk carries them.
      const promptIds = this.#options.request.returnTokenIds && index === 0 ? JSON.stringify([...this.#options.promptIds]) : "null";
      const choice = { index, delta: { role: this.#options.role, content: "" }, logprobs: null, finish_reason: null };
      const unused = index === 0 ? JSON.stringify(unusedKwargsMember(this.#options)).slice(1, -1) : "";
      events += this.#event([choice], `${this.#continuousUsage(0)},"prompt_token_ids":${promptIds}${unused === "" ? "" : `,${unused}`}`);
    }
    for (let index = 0; index < this.#choices.length && this.#options.echo !== ""; index++) {
      const choice = { index, delta: { content: this.#options.echo }, logprobs: null, finish_reason: null };
      events += this.#event([choice], this.#continuousUsage(0));
    }
    return events;
  }

  #choiceEvents(index: number, choice: PendingChoice): string {
    const { returnTokenIds } = this.#options.request;
    const { end, ids, logprobs: entries, toolCalls } = choice;
    let text = choice.text;
    const { forced } = choice;
    // A forced array of calls that was cut short before its first call is content.
    if (end !== null && forced !== null && !forced.hasCalls) text += forced.rest();
    const calls = forced === null ? {} : callsMember(choice.calls);
    choice.calls = [];
    if (end !== null) choice.reasoning += choice.thoughts?.rest() ?? "";
    // Text held back as possible tool calls is content if it contains none.
    if (end !== null && choice.tools !== null && toolCalls.length === 0) text += choice.tools.rest();
    const reasoning = this.#options.request.includeReasoning && choice.reasoning !== "" ? { reasoning: choice.reasoning } : {};
    choice.reasoning = "";
    if (
      end === null &&
      text === "" &&
      reasoning.reasoning === undefined &&
      calls.tool_calls === undefined &&
      entries.length === 0 &&
      !returnTokenIds
    ) {
      // All text is held back: no chunk. The ids are counted already.
      choice.ids = [];
      return "";
    }
    choice.text = "";
    choice.ids = [];
    choice.logprobs = [];
    const usage = this.#continuousUsage(choice.count);
    const logprobs = entries.length > 0 ? { content: entries } : null;
    const tokenIds = returnTokenIds ? ids : null;
    if (end === null) {
      const delta = text === "" ? { ...reasoning, ...calls } : { ...reasoning, content: text };
      return this.#event([{ index, delta, logprobs, finish_reason: null, token_ids: tokenIds }], usage);
    }
    choice.isFinished = true;
    const last = { logprobs, stop_reason: end.stopReason, token_ids: tokenIds };
    const reason = finishReason(end, toolCalls, this.#options.request.forcedCalls);
    if (forced?.hasCalls) {
      // As in vLLM, which does not know during a stream whether the array of calls will be complete.
      const forcedReason = this.#options.request.forcedCalls!.name === null ? "tool_calls" : end.finishReason;
      return this.#event([{ index, delta: { ...reasoning, ...calls }, finish_reason: forcedReason, ...last }], usage);
    }
    if (toolCalls.length === 0)
      return this.#event([{ index, delta: { ...reasoning, content: text }, finish_reason: reason, ...last }], usage);
    let events = "";
    const between = (delta: object): void => {
      events += this.#event([{ index, delta, logprobs: null, finish_reason: null, token_ids: null }], usage);
    };
    if (reasoning.reasoning !== undefined) between(reasoning);
    if (text !== "") between({ content: text });
    for (const [at, { id, type, function: called }] of toolCalls.entries()) {
      between({ tool_calls: [{ index: at, id, type, function: { name: called.name, arguments: "" } }] });
      between({ tool_calls: [{ index: at, function: { arguments: called.arguments } }] });
    }
    return events + this.#event([{ index, delta: {}, finish_reason: reason, ...last }], usage);
  }
}
