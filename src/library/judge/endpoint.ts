/** Connection of judges to a chat completions endpoint, with limits of concurrency, tokens and cost that all its judges share. */
import { setMaxListeners } from "node:events";
import PQueue from "p-queue";
import { checkCount, readBaseUrl } from "../client/address.ts";
import { parseCompletion } from "../client/completion.ts";
import { ConnectionError, ProtocolError } from "../client/errors.ts";
import { withRetries } from "../client/retry.ts";
import { Transport } from "../client/transport.ts";
import { ConfigError, isAbort } from "../../base/errors.ts";
import { isRecord, refuse } from "../../base/util/values.ts";
import type { ChatCompletion, ChatCompletionRequest } from "../../base/schema/index.ts";
import { JudgeLimitError } from "./errors.ts";
import { costOf, type JudgeModel, type JudgePrices } from "./model.ts";

/** Options of {@link judgeEndpoint}. */
export interface JudgeEndpointOptions {
  /** Address of an OpenAI-compatible interface, as OpenAI clients take it: requests go to `{baseUrl}/chat/completions`. */
  readonly baseUrl: string;
  /** Name of the model, sent as `model` of each request. */
  readonly model: string;
  /** API key, sent as bearer token and never printed. @default no key */
  readonly apiKey?: string | undefined;
  /** Further headers of each request, e.g. for gateways. @default {} */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Prices of the model's tokens. @default none: costs are unknown */
  readonly prices?: JudgePrices | undefined;
  /**
   * Limit of the cost of all requests in US dollars; needs `prices`. When it is reached, running requests still finish.
   *
   * @default no limit
   */
  readonly maxCostUsd?: number | undefined;
  /** Limit of the prompt and completion tokens of all requests. When it is reached, running requests still finish. @default no limit */
  readonly maxTotalTokens?: number | undefined;
  /** Max number of concurrent requests; further requests wait. @default 16 */
  readonly concurrency?: number | undefined;
  /** Max number of retries of a request after 408, 429, a transient 5xx, a failed connection or a timeout. @default 4 */
  readonly maxRetries?: number | undefined;
  /** Limit of one attempt of a request in milliseconds, without the time in the queue. @default 120 000 */
  readonly timeoutMs?: number | undefined;
}

/** Requests, tokens and cost of a judge endpoint since its creation. */
export interface JudgeUsage {
  /** Number of requests that the endpoint has answered. */
  readonly requests: number;
  /** Prompt tokens, as the endpoint reports them. */
  readonly promptTokens: number;
  /** Completion tokens, as the endpoint reports them. */
  readonly completionTokens: number;
  /** Cost in US dollars; null without `prices`. */
  readonly costUsd: number | null;
}

/**
 * Connection to an OpenAI-compatible chat completions endpoint, created by {@link judgeEndpoint}. All judges that share the object share its
 * concurrency and its limits.
 *
 * @example
 * ```ts
 * await using judge = judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b", maxTotalTokens: 5_000_000 });
 * await judge.complete({ model: judge.id, messages: [{ role: "user", content: "Answer with one word." }] });
 * console.log(judge.usage.promptTokens);
 * await judge.close(); // otherwise at the end of the block
 * ```
 */
export class JudgeEndpoint implements JudgeModel {
  /** Name of the model. */
  readonly id: string;
  /** Address of the endpoint, without a slash at its end. */
  readonly baseUrl: string;
  /** Prices of the model's tokens; undefined if unknown. */
  readonly prices: JudgePrices | undefined;
  readonly #options: JudgeEndpointOptions;
  readonly #transport: Transport;
  readonly #queue: PQueue;
  #requests = 0;
  #promptTokens = 0;
  #completionTokens = 0;

  /** @internal */
  constructor(options: JudgeEndpointOptions) {
    checkOptions(options);
    this.id = options.model;
    this.baseUrl = readBaseUrl(options.baseUrl, "baseUrl");
    this.prices = options.prices;
    this.#options = options;
    const concurrency = options.concurrency ?? 16;
    this.#transport = new Transport({ apiKey: options.apiKey ?? null, connections: concurrency });
    this.#queue = new PQueue({ concurrency });
  }

  /** Requests, tokens and cost since the creation of the object. */
  get usage(): JudgeUsage {
    const usage = { prompt_tokens: this.#promptTokens, completion_tokens: this.#completionTokens };
    return {
      requests: this.#requests,
      promptTokens: this.#promptTokens,
      completionTokens: this.#completionTokens,
      costUsd: this.prices === undefined ? null : costOf(this.prices, usage),
    };
  }

  /**
   * Sends one request. Transient failures are retried with backoff, not before the time that `Retry-After` requests. `usage` counts answers
   * only: an attempt without an answer may have been billed all the same.
   *
   * @param request - Chat request; its `model` is replaced by `id`.
   * @param options - Signal that aborts the request, also while it waits in the queue.
   * @returns the completion.
   * @throws JudgeLimitError `E_JUDGE_LIMIT` if a limit is used up.
   * @throws HttpError `E_HTTP` for an error status, after the retries of a transient one.
   * @throws ConnectionError `E_CONNECTION` without a complete response in time, after the retries.
   * @throws ProtocolError `E_PROTOCOL` for an answer that is not a chat completion, or without token counts although a limit needs them.
   * @throws the signal's reason.
   * @example
   * ```ts
   * const endpoint = judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b" });
   * const { choices } = await endpoint.complete({ messages: [{ role: "user", content: "Is 7 prime?" }] });
   * console.log(choices[0]?.message.content, endpoint.usage);
   * ```
   */
  async complete(request: ChatCompletionRequest, { signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<ChatCompletion> {
    // Hundreds of requests may share one signal, and each removes its listener.
    if (signal !== undefined) setMaxListeners(0, signal);
    return this.#queue.add(() => this.#send({ ...request, model: this.id }, signal), signal === undefined ? {} : { signal });
  }

  /**
   * Closes idle sockets and waits for running requests.
   *
   * @returns a promise that resolves when all connections are closed.
   * @example
   * ```ts
   * const endpoint = judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b" });
   * await endpoint.close();
   * ```
   */
  async close(): Promise<void> {
    await this.#transport.close();
  }

  /** Closes the connection at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Sends a request with retries, and counts the usage of its answer. */
  async #send(request: ChatCompletionRequest, signal: AbortSignal | undefined): Promise<ChatCompletion> {
    this.#checkLimits();
    const maxRetries = this.#options.maxRetries ?? 4;
    const answer = await withRetries(() => this.#attempt(request, signal), { policy: "idempotent", maxRetries, signal });
    const completion = parseCompletion(this.#withDefaults(answer));
    this.#requests++;
    this.#promptTokens += completion.usage.prompt_tokens;
    this.#completionTokens += completion.usage.completion_tokens;
    return completion;
  }

  /** Sends a request once. @throws ConnectionError `E_CONNECTION` after `timeoutMs`, which counts as a failure that is retried. */
  async #attempt(request: ChatCompletionRequest, signal: AbortSignal | undefined): Promise<unknown> {
    const { timeoutMs = 120_000, headers } = this.#options;
    const url = `${this.baseUrl}/chat/completions`;
    try {
      return await this.#transport.json("POST", url, {
        json: request,
        headers,
        // `#send` retries, because a timeout has to be retried, too.
        retry: "never",
        timeoutMs,
        headersTimeoutMs: timeoutMs,
        signal,
      });
    } catch (error) {
      // A timeout of the judge must not end the run, as a `TimeoutError` of the caller's own signal would.
      if (signal?.aborted || !isAbort(error)) throw error;
      throw new ConnectionError(`POST ${url} got no complete answer within ${timeoutMs} ms (\`timeoutMs\`)`, { cause: error });
    }
  }

  /**
   * Adds the fields `id`, `model` and `usage`, which some servers leave out.
   *
   * @throws ProtocolError `E_PROTOCOL` without token counts if a limit needs them.
   */
  #withDefaults(answer: unknown): unknown {
    if (!isRecord(answer)) return answer;
    const { id, model, usage } = answer;
    const { maxCostUsd, maxTotalTokens } = this.#options;
    const isLimited = maxCostUsd !== undefined || maxTotalTokens !== undefined;
    if (isLimited && (usage ?? null) === null) {
      throw new ProtocolError(`${this.baseUrl} reports no \`usage\`, so that \`maxCostUsd\` and \`maxTotalTokens\` cannot be kept`);
    }
    return { ...answer, id: id ?? "", model: model ?? this.id, usage: usage ?? {} };
  }

  /** @throws JudgeLimitError `E_JUDGE_LIMIT` if a limit is used up. */
  #checkLimits(): void {
    const { maxCostUsd, maxTotalTokens } = this.#options;
    const { promptTokens, completionTokens, costUsd } = this.usage;
    const total = promptTokens + completionTokens;
    const fail = (param: string, text: string): never => {
      throw new JudgeLimitError(`Judge \`${this.id}\` has used ${text} (\`${param}\`); raise the limit to send more requests`, { param });
    };
    if (maxTotalTokens !== undefined && total >= maxTotalTokens) fail("maxTotalTokens", `${total} of ${maxTotalTokens} tokens`);
    if (maxCostUsd !== undefined && costUsd !== null && costUsd >= maxCostUsd) {
      fail("maxCostUsd", `${costUsd.toFixed(4)} of ${maxCostUsd} US dollars`);
    }
  }
}

/**
 * Connects to an OpenAI-compatible chat completions endpoint: a hosted model, a vLLM server, or a service of this package.
 *
 * @param options - Address, model, key, prices and limits.
 * @returns the connection, for the `model` option of judges. Nothing is sent yet.
 * @throws ConfigError `E_CONFIG` for an invalid address, key, price, limit or count, or for `maxCostUsd` without `prices`.
 * @example
 * ```ts
 * const judge = judgeEndpoint({
 *   baseUrl: "https://api.example.com/v1",
 *   apiKey: process.env["JUDGE_API_KEY"],
 *   model: "large-model",
 *   prices: { inputPerMillion: 2, outputPerMillion: 8 },
 *   maxCostUsd: 20,
 * });
 * ```
 */
export function judgeEndpoint(options: JudgeEndpointOptions): JudgeEndpoint {
  return new JudgeEndpoint(options);
}

/** @throws ConfigError `E_CONFIG` as {@link judgeEndpoint}. `Transport` and `readBaseUrl` check the key and the address. */
function checkOptions({ model, prices, maxCostUsd, ...options }: JudgeEndpointOptions): void {
  const isAmount = (value: unknown) => typeof value === "number" && Number.isFinite(value) && value >= 0;
  if (typeof model !== "string" || model.trim() === "")
    throw new ConfigError("Expected `model` to be the name of a model", { param: "model" });
  for (const name of ["inputPerMillion", "outputPerMillion"] as const) {
    if (prices === undefined || isAmount(prices[name])) continue;
    throw new ConfigError(`Expected \`prices.${name}\` to be a number of at least 0 (US dollars), got \`${String(prices[name])}\``, {
      param: `prices.${name}`,
    });
  }
  if (maxCostUsd !== undefined && !(isAmount(maxCostUsd) && maxCostUsd > 0))
    refuse("maxCostUsd", "a number above 0", maxCostUsd, ConfigError);
  if (maxCostUsd !== undefined && prices === undefined) {
    const message = "Expected `prices` together with `maxCostUsd`; to limit tokens instead, set `maxTotalTokens`";
    throw new ConfigError(message, { param: "prices" });
  }
  checkCount("maxTotalTokens", options.maxTotalTokens, 1);
  checkCount("concurrency", options.concurrency, 1);
  checkCount("maxRetries", options.maxRetries, 0);
  checkCount("timeoutMs", options.timeoutMs, 1);
}
