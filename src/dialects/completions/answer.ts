/**
 * Translation of chat completions, one per prompt, to a text completion: `TextCompletionAnswer` for a whole answer, `CompletionEvents` for a
 * stream. Choices are numbered across the prompts: `n` choices of the first prompt, then `n` of the second one.
 */
import { setImmediate } from "node:timers/promises";
import type {
  ChatCompletion,
  ChatCompletionChunk,
  Choice,
  CompletionChoice,
  CompletionLogprobs,
  CompletionsAnswer,
  ErrorBody,
  LogprobEntry,
  Usage,
} from "../../base/schema/index.ts";
import type { AnswerBuilder, EventShaper, ServerEvent } from "../answer-builder.ts";
import type { TranslatedCompletion } from "./request.ts";
import { last } from "../../base/util/values.ts";

/** An echoed prompt. */
export interface Echo {
  readonly text: string;
  readonly ids: readonly number[];
  /** Text of each token. */
  readonly tokens: readonly string[];
}

type ChunkChoice = ChatCompletionChunk["choices"][number];

/** A translated request with its echoed prompts. */
export interface CompletionContext extends Omit<TranslatedCompletion, "calls"> {
  /** Echoed prompts, in the order of the calls; null without `echo`. */
  readonly echoes: readonly Echo[] | null;
}

/** Log-probabilities at a position of the prompt, by token id: of its token and of the most probable tokens. */
type PromptLogprobs = Readonly<Record<string, { readonly logprob: number; readonly decoded_token: string }>>;

/** Builder of the log-probability lists of a choice. `text_offset` is the number of characters (code points) before each token. */
class LogprobList {
  readonly lists: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  #offset: number;

  /** @param offset - Number of characters before the first token. */
  constructor(offset = 0) {
    this.#offset = offset;
  }

  #add(token: string, logprob: number | null, top: Record<string, number> | null): void {
    this.lists.tokens.push(token);
    this.lists.token_logprobs.push(logprob);
    this.lists.top_logprobs.push(top);
    this.lists.text_offset.push(this.#offset);
    this.#offset += [...token].length;
  }

  /**
   * Adds the tokens of an echoed prompt.
   *
   * @param logprobs - `prompt_logprobs` of the chat completion, parallel to the tokens; null for the first token.
   */
  addPrompt({ ids, tokens }: Echo, logprobs: readonly unknown[] | null | undefined): void {
    for (const [index, id] of ids.entries()) {
      const candidates = logprobs?.[index] as PromptLogprobs | null | undefined;
      const logprob = candidates?.[String(id)]?.logprob ?? null;
      const top = candidates ? Object.fromEntries(Object.values(candidates).map((each) => [each.decoded_token, each.logprob])) : null;
      this.#add(tokens[index]!, logprob, top);
    }
  }

  /** Adds sampled tokens. */
  addOutput(entries: readonly LogprobEntry[]): this {
    for (const entry of entries) {
      const top = Object.fromEntries([entry, ...entry.top_logprobs].map(({ token, logprob }) => [token, logprob]));
      this.#add(entry.token, entry.logprob, top);
    }
    return this;
  }
}

/** Returns the identifier of a text completion. */
function completionId(id: string): string {
  return id.replace(/^chatcmpl-/u, "cmpl-");
}

/** Sampled part of a choice, from a whole chat completion or from a chunk of one. */
interface Sample {
  readonly text: string;
  readonly entries: readonly LogprobEntry[];
  readonly members: Pick<CompletionChoice, "finish_reason" | "stop_reason" | "token_ids">;
}

/** Returns the sampled part of a choice; without any token if the answer omits it. */
function sampleOf(
  { omitsSample }: CompletionContext,
  text: string | null | undefined,
  { logprobs, finish_reason: finish = null, stop_reason: stop, token_ids: ids }: Choice | ChunkChoice,
): Sample {
  if (!omitsSample) {
    return { text: text ?? "", entries: logprobs?.content ?? [], members: { finish_reason: finish, stop_reason: stop, token_ids: ids } };
  }
  // The end of an answer that has reached its `max_tokens` of 0.
  const members = { finish_reason: finish === null ? null : "length", stop_reason: null, token_ids: ids ? [] : ids };
  return { text: "", entries: [], members };
}

/** Returns a choice of a text completion. */
function toChoice(context: CompletionContext, call: number, completion: ChatCompletion, choice: Choice): CompletionChoice {
  const { request, echoes } = context;
  const echo = echoes?.[call];
  const sample = sampleOf(context, choice.message.content, choice);
  const list = new LogprobList();
  if (echo !== undefined) list.addPrompt(echo, completion.prompt_logprobs);
  const hasLogprobs = (request.logprobs ?? null) !== null;
  return {
    index: call * completion.choices.length + choice.index,
    text: (echo?.text ?? "") + sample.text,
    logprobs: hasLogprobs ? list.addOutput(sample.entries).lists : null,
    ...sample.members,
    // A whole answer has always reached its `max_tokens` of 0, also if the upstream server states no reason.
    ...(context.omitsSample ? { finish_reason: "length" } : {}),
    prompt_token_ids: completion.prompt_token_ids,
  };
}

/** Returns the token counts of all calls together; with `omitsSample`, none of sampled tokens. */
function sumUsage(usages: readonly (Usage | null | undefined)[], omitsSample: boolean): Usage {
  const sum = (count: (usage: Usage) => number): number => usages.reduce((total, usage) => total + (usage ? count(usage) : 0), 0);
  const prompt = sum((usage) => usage.prompt_tokens);
  const output = omitsSample ? 0 : sum((usage) => usage.completion_tokens);
  return { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output };
}

/** Max bytes of a response that is written as one string; larger ones are streamed. */
const MAX_WHOLE_BYTES = 256 * 1024;

/**
 * Builder of a text completion. Each chat completion is converted to JSON when it is finished, because the completions of a thousand
 * prompts with log-probabilities take hundreds of megabytes of text.
 */
export class TextCompletionAnswer implements AnswerBuilder {
  readonly #context: CompletionContext;
  /** JSON of the choices of each call. */
  readonly #choices: Uint8Array[] = [];
  readonly #usages: Usage[] = [];
  #head: Pick<CompletionsAnswer, "id" | "object" | "created" | "model"> | null = null;

  constructor(context: CompletionContext) {
    this.#context = context;
  }

  async push(completion: ChatCompletion, call: number): Promise<void> {
    const { id, created, model, usage, choices } = completion;
    if (call === 0) this.#head = { id: completionId(id), object: "text_completion", created, model };
    this.#usages[call] = usage;
    const converted = choices.map((choice) => toChoice(this.#context, call, completion, choice));
    // Other requests run between the conversions of many prompts.
    await setImmediate();
    // `end` concatenates the choices of all calls to one list, in the order of the calls.
    const separator = call === 0 ? "" : ",";
    const withoutBrackets = JSON.stringify(converted).slice(1, -1);
    this.#choices[call] = new TextEncoder().encode(separator + withoutBrackets);
  }

  end(): string | ReadableStream<Uint8Array> {
    const usage = sumUsage(this.#usages, this.#context.omitsSample);
    const text = (json: string) => new TextEncoder().encode(json);
    const parts = [
      text(`${JSON.stringify(this.#head).slice(0, -1)},"choices":[`),
      ...this.#choices,
      text(`],"usage":${JSON.stringify(usage)}}`),
    ];
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    return length <= MAX_WHOLE_BYTES ? Buffer.concat(parts).toString() : ReadableStream.from(parts);
  }
}

/** Converter of chat completion chunks to the chunks of a text completion. */
export class CompletionEvents implements EventShaper {
  readonly #context: CompletionContext;
  /** Last token counts of each call. */
  readonly #usages: (Usage | null | undefined)[] = [];
  /** Members that all chunks have in common, from the first chunk of any call. */
  #head: Pick<CompletionsAnswer, "id" | "object" | "created" | "model"> | null = null;
  /** Number of characters before the next sampled token, by choice. */
  readonly #offsets = new Map<number, number>();

  constructor(context: CompletionContext) {
    this.#context = context;
  }

  #chunk(choices: readonly CompletionChoice[], members: { readonly usage?: Usage } = {}): ServerEvent {
    return { data: { ...this.#head, choices, ...members } };
  }

  /** Returns the log-probability lists of new tokens of a choice, and advances its offset. */
  #logprobs(index: number, entries: readonly LogprobEntry[]): CompletionLogprobs | null {
    if (entries.length === 0) return null;
    const offset = this.#offsets.get(index) ?? 0;
    const { lists } = new LogprobList(offset).addOutput(entries);
    this.#offsets.set(index, last(lists.text_offset) + [...last(lists.tokens)].length);
    return lists;
  }

  push(chunk: ChatCompletionChunk, call: number): readonly ServerEvent[] {
    const { id, created, model } = chunk;
    this.#head ??= { id: completionId(id), object: "text_completion", created, model };
    this.#usages[call] = chunk.usage ?? this.#usages[call];
    const choices = chunk.choices.map((choice) => this.#choice(choice, call, chunk.prompt_token_ids));
    return choices.filter((choice) => choice !== null).map((choice) => this.#chunk([choice]));
  }

  /** Returns the piece of a choice: the echoed prompt in its first piece, sampled text in the later ones. Null for an empty piece. */
  #choice(choice: ChunkChoice, call: number, promptIds: ChatCompletionChunk["prompt_token_ids"]): CompletionChoice | null {
    const { request, echoes } = this.#context;
    const index = call * (request.n ?? 1) + choice.index;
    const isStart = choice.delta.role !== undefined;
    const sample = sampleOf(this.#context, choice.delta.content, choice);
    const text = isStart ? (echoes?.[call]?.text ?? "") : sample.text;
    const { finish_reason: finish, token_ids: ids } = sample.members;
    if (text === "" && finish === null && !ids?.length && !choice.logprobs && !promptIds) return null;
    return {
      index,
      text,
      logprobs: this.#logprobs(index, sample.entries),
      ...sample.members,
      ...(promptIds ? { prompt_token_ids: promptIds } : {}),
    };
  }

  end(): readonly ServerEvent[] {
    const { request, omitsSample } = this.#context;
    const hasUsage = request.stream_options ? request.stream_options.include_usage !== false : false;
    const usageChunks = hasUsage ? [this.#chunk([], { usage: sumUsage(this.#usages, omitsSample) })] : [];
    return [...usageChunks, { data: "[DONE]" }];
  }

  fail(error: ErrorBody): readonly ServerEvent[] {
    return [{ data: error }, { data: "[DONE]" }];
  }
}
