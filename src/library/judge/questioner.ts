/** Questions to a judge's model: sampling, cache, one correction of an invalid answer, and the choice of the output form. */
import { isAbort } from "../../base/errors.ts";
import type { ChatCompletion, ChatCompletionRequest, RequestMessage } from "../../base/schema/index.ts";
import { quantile } from "../../base/trajectory/statistics.ts";
import { chainOf, httpStatusOf } from "../../base/util/retryable.ts";
import { parseJudgement, type AnswerForm, type Parsed } from "./answers.ts";
import { AnswerCache, cacheKey } from "./cache.ts";
import { JudgeError } from "./errors.ts";
import type { ResolvedJudgeOptions } from "./options.ts";
import { correction, PROMPT_VERSION } from "./prompts.ts";
import type { Spending } from "./spending.ts";

/** Question for a judge, with the form of its answer. */
export interface Question<T> {
  readonly messages: readonly RequestMessage[];
  readonly form: AnswerForm<T>;
}

/** Completion of a model, which may lack any part: a judge accepts every object with `complete`. */
type Answer = Partial<ChatCompletion> | null | undefined;

/** Context of the questions for one value of a judge. */
export interface AskContext {
  /** Counts of requests and tokens, which asking increases. */
  readonly spending: Spending;
  readonly signal: AbortSignal;
}

/** Max number of answers to a question. Before the second answer, the judge is shown the problems of the first. */
const MAX_ANSWERS = 2;
/** Statuses with which servers reject a `response_format` that they do not support. */
const SCHEMA_REJECTION_STATUSES: readonly (number | null)[] = [400, 422];

/** Asks a model and accepts valid answers only. A question that was answered before is answered from the cache, if there is one. */
export class Questioner {
  readonly #options: ResolvedJudgeOptions;
  readonly #cache: AnswerCache | null;
  /** Whether the model has rejected a schema and then accepted the same request without it. */
  #rejectsSchema = false;

  constructor(options: ResolvedJudgeOptions) {
    this.#options = options;
    this.#cache = options.cacheDir === undefined ? null : new AnswerCache(options.cacheDir);
  }

  /**
   * Asks `samples` questions concurrently.
   *
   * @param questionOf - Returns the question of a sample, given its index.
   * @returns the values of the answers, in the order of the samples.
   * @throws the error of the first sample without a valid answer, after all have ended.
   */
  async sample<T>(questionOf: (sample: number) => Question<T>, context: AskContext): Promise<T[]> {
    const questions = Array.from({ length: this.#options.samples }, (_, sample) => this.#ask(questionOf(sample), sample, context));
    const results = await Promise.allSettled(questions);
    return results.map((result) => {
      if (result.status === "rejected") throw result.reason;
      return result.value;
    });
  }

  /**
   * Returns the value of a valid answer.
   *
   * @throws JudgeError `E_JUDGE` after two invalid answers, or if the model ends a request with a timeout.
   * @throws the signal's reason, or another error of the model.
   */
  async #ask<T>({ messages, form }: Question<T>, sample: number, { spending, signal }: AskContext): Promise<T> {
    const { model, request, output } = this.#options;
    const key = cacheKey([PROMPT_VERSION, model.id, model.baseUrl ?? null, request, output, messages, form.schema, sample]);
    const stored = await this.#stored(key, form);
    if (stored !== null) {
      spending.addCached();
      return stored.value;
    }
    const problems: string[] = [];
    let conversation = messages;
    while (problems.length < MAX_ANSWERS) {
      if (problems.length > 0) spending.addRetry();
      const completion = await this.#complete({ ...request, model: model.id, messages: [...conversation] }, form, signal);
      spending.addUsage(completion?.usage);
      const text = textOf(completion);
      const parsed = parsedOf(completion, text, form);
      if ("value" in parsed) {
        await this.#cache?.write(key, model.id, text);
        return parsed.value;
      }
      problems.push(parsed.problem);
      conversation = [
        ...messages,
        { role: "assistant", content: text.slice(0, MAX_QUOTED).trim() || NO_TEXT },
        { role: "user", content: correction(parsed.problem) },
      ];
    }
    const listed = problems.map((problem, index) => `answer ${index + 1}: ${problem}`).join(". ");
    throw new JudgeError(`Judge \`${model.id}\` gave no valid answer in ${MAX_ANSWERS} attempts; ${listed}`);
  }

  /** Returns the value of a stored answer; null without one, or if it does not match the form. */
  async #stored<T>(key: string, form: AnswerForm<T>): Promise<{ readonly value: T } | null> {
    const text = (await this.#cache?.read(key)) ?? null;
    if (text === null) return null;
    const parsed = parseJudgement(text, form);
    return "value" in parsed ? parsed : null;
  }

  /** Sends a request, with the schema unless the option `output` or an earlier rejection rules it out. */
  async #complete<T>(request: ChatCompletionRequest, { name, schema }: AnswerForm<T>, signal: AbortSignal): Promise<Answer> {
    const { output } = this.#options;
    const format = { type: "json_schema", json_schema: { name, strict: true, schema } };
    if (output === "text" || (output === "auto" && this.#rejectsSchema)) return this.#send(request, signal);
    try {
      return await this.#send({ ...request, response_format: format }, signal);
    } catch (error) {
      const mayRejectSchema = [...chainOf(error)].some((each) => SCHEMA_REJECTION_STATUSES.includes(httpStatusOf(each)));
      if (output !== "auto" || signal.aborted || !mayRejectSchema) throw error;
      const completion = await this.#send(request, signal);
      // Recorded only after this success: a request with another defect would have been rejected again.
      this.#rejectsSchema = true;
      return completion;
    }
  }

  /** Sends a request to the model. @throws JudgeError `E_JUDGE` for a timeout of the model. */
  async #send(request: ChatCompletionRequest, signal: AbortSignal): Promise<Answer> {
    signal.throwIfAborted();
    const { model } = this.#options;
    try {
      return await model.complete(request, { signal });
    } catch (error) {
      signal.throwIfAborted();
      // A timeout inside the model must fail the scored rollouts only; as an abort it would end the whole run.
      if (isAbort(error)) {
        throw new JudgeError(`Judge \`${model.id}\` did not answer: ${(error as Error).name}: ${(error as Error).message}`, {
          cause: error,
          retryable: true,
        });
      }
      throw error;
    }
  }
}

/** Text in place of an empty answer in the repeated question, because some servers reject messages without text. */
const NO_TEXT = "(no text)";
/** Max characters of an invalid answer that are shown to the judge again. */
const MAX_QUOTED = 8000;

/** Returns the text of the first choice; `""` for an answer of another shape. */
function textOf(completion: Answer): string {
  const content = completion?.choices?.[0]?.message?.content;
  return typeof content === "string" ? content : "";
}

/** Parses the text of a completion. An answer that was cut off is not valid, even if its beginning is. */
function parsedOf<T>(completion: Answer, text: string, form: AnswerForm<T>): Parsed<T> {
  if (completion?.choices?.[0]?.finish_reason === "length")
    return { problem: "the answer was cut off at its token limit; answer more briefly" };
  return parseJudgement(text, form);
}

/** Returns the median of numbers; of an even count, the mean of the middle two. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return quantile(sorted, 0.5);
}
