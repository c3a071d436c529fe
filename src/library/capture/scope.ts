/**
 * State recorded during one rollout, and the rule that selects its calls. The scope is filled by `fetch.ts` and `passive.ts`, and read by
 * `capture.ts` when the rollout has ended.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { HttpError } from "../client/index.ts";
import type { Exchange, RecordedAnswer } from "../../dialects/index.ts";
import { ArgumentError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";
import type { JsonObject } from "../../base/schema/index.ts";
import { delay } from "../../base/util/delay.ts";
import type { SamplingCall } from "./request.ts";

/** Policy to record: a `Policy`, or any object with its `id`. */
export interface CapturedPolicy {
  /** Value of the request's `model` field, e.g. `team/demo/reverse:step7`. */
  readonly id: string;
  /** Step of the checkpoint, for responses that do not report one. @default null */
  readonly step?: number | null | undefined;
}

/** Selection of the calls to record. */
export interface ScopeOptions {
  /** Policy to record: calls with its `id` as `model`. @default every model address, `entity/project/name` with or without a step */
  readonly policy?: CapturedPolicy | undefined;
  /** URL below which calls are recorded, e.g. `service.inferenceUrl`. @default any */
  readonly baseUrl?: string | undefined;
  /**
   * Variables of the chat template, such as `{ preserve_thinking: true }`, added to the recorded calls; a call that sets a variable itself
   * keeps its value. Calls that `captureAll` only observes are not turns unless they set all of them. @default none
   */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /**
   * Whether the recorded calls request token ids and log-probabilities, which RL needs. Providers such as OpenAI reject the field
   * `return_token_ids`: with false, requests are sent as the agent writes them, and the trajectories are for SFT. @default true
   */
  readonly tokens?: boolean | undefined;
  /** Aborts the calls made in the scope and the wait for pending responses; the capture rejects with the signal's own reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Pattern of addresses of trainable models: `entity/project/name`, with or without a step (`:step7`) and a URI scheme (`scheme:///`). */
const MODEL_ADDRESS = /^(?:[a-z][a-z0-9+.-]*:\/\/\/)?[^/:\s]+\/[^/:\s]+\/[^/:\s]+(?::step\d+)?$/i;

/** Completed request of a rollout. */
export interface RecordedExchange {
  /** Number of the request in its rollout, in start order. */
  readonly order: number;
  readonly model: string;
  readonly exchange: Exchange;
}

/**
 * Recording of one rollout. The async context of the rollout carries it (see {@link scopes}), so that parallel rollouts stay separate.
 */
export class CaptureScope {
  readonly signal: AbortSignal | undefined;
  readonly policy: CapturedPolicy | undefined;
  /** Template variables for calls that do not set them. */
  readonly chatTemplateKwargs: Readonly<JsonObject> | undefined;
  /** Whether calls request token ids and log-probabilities. */
  readonly tokens: boolean;
  readonly #baseUrl: string | undefined;
  /** Completed requests in order of completion. */
  readonly #exchanges: RecordedExchange[] = [];
  /** Work to wait for at the end of the rollout; see {@link hold}. */
  readonly #pending = new Set<Promise<void>>();
  readonly #logs: string[] = [];
  /** Models of the sampling requests that were not recorded. */
  readonly #otherModels = new Set<string>();
  /** Number of requests that have started. */
  #started = 0;
  #isClosed = false;

  constructor({ policy, baseUrl, chatTemplateKwargs, tokens = true, signal }: ScopeOptions) {
    if (policy !== undefined && (typeof policy.id !== "string" || policy.id === "")) {
      throw new ArgumentError("Expected `policy` to have an `id`, such as `await model.policy()`", { param: "policy" });
    }
    if (baseUrl !== undefined && !URL.canParse(baseUrl)) refuse("baseUrl", `an address such as \`service.inferenceUrl\``, baseUrl);
    this.policy = policy;
    this.chatTemplateKwargs = chatTemplateKwargs;
    this.tokens = tokens;
    this.#baseUrl = baseUrl === undefined ? undefined : withSlash(new URL(baseUrl));
    this.signal = signal;
  }

  /** Completed requests in start order. */
  get exchanges(): readonly RecordedExchange[] {
    return this.#exchanges.toSorted((a, b) => a.order - b.order);
  }

  /** Log of dropped calls, with the reasons. */
  get logs(): readonly string[] {
    return this.#logs;
  }

  /** Models of the sampling requests that were not recorded. */
  get otherModels(): readonly string[] {
    return [...this.#otherModels];
  }

  /** Whether the rollout has ended; later calls in its context are not recorded. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Whether a request that samples `model` at `url` belongs to the rollout; the model of any other request is added to `otherModels`. */
  accepts({ url, model }: Pick<SamplingCall, "url" | "model">): boolean {
    const isPolicy = this.policy === undefined ? MODEL_ADDRESS.test(model) : model === this.policy.id;
    const isAccepted = isPolicy && (this.#baseUrl === undefined || withSlash(url).startsWith(this.#baseUrl));
    if (!isAccepted) this.#otherModels.add(model);
    return isAccepted;
  }

  /** Returns the number of a call that starts now. */
  nextOrder(): number {
    return this.#started++;
  }

  /** Records a request when `answer` resolves; a failed answer becomes a line in the log instead of a turn. Never rejects. */
  track(order: number, { dialect, model, body: request }: SamplingCall, answer: Promise<RecordedAnswer>): Promise<void> {
    const recorded = answer.then(
      (value) => {
        // The answer was parsed as an answer of the dialect.
        const exchange = { dialect, request, answer: value } as Exchange;
        if (!this.#isClosed) this.#exchanges.push({ order, model, exchange });
      },
      (error: unknown) => this.drop(model, errorIdentity(error)),
    );
    this.hold(recorded);
    return recorded;
  }

  /** Delays the end of the rollout until `work` settles; `work` must not reject. */
  hold(work: Promise<void>): void {
    this.#pending.add(work);
    void work.finally(() => this.#pending.delete(work));
  }

  /** Logs the reason why a request is not recorded as a turn. */
  drop(model: string, reason: string): void {
    this.log(`capture: a call to ${model} is no turn: ${reason}`);
  }

  /** Adds a line to the log. */
  log(line: string): void {
    if (!this.#isClosed) this.#logs.push(line);
  }

  /** Waits for pending responses for at most `timeoutMs`; later ones are dropped. @throws The signal's reason when it has aborted. */
  async settle(timeoutMs: number): Promise<void> {
    const timer = new AbortController();
    const stop = this.signal === undefined ? timer.signal : AbortSignal.any([timer.signal, this.signal]);
    const endWait = () => true;
    // An abort of the scope ends the wait as the timeout does.
    const timeUp = delay(timeoutMs, { signal: stop }).then(endWait, endWait);
    try {
      // The end of one call may start another, so repeat until no call is pending.
      while (this.#pending.size > 0) {
        const isLate = await Promise.race([Promise.all(this.#pending).then(() => false), timeUp]);
        if (isLate) break;
      }
    } finally {
      timer.abort();
    }
    this.signal?.throwIfAborted();
    if (this.#pending.size > 0)
      this.#logs.push(
        `capture: ${this.#pending.size} calls had no whole answer ${timeoutMs} ms after the agent was done; they are no turns`,
      );
  }

  /** Ends recording: requests that complete later are not recorded. */
  close(): void {
    this.#isClosed = true;
  }
}

/** Returns the address of a URL with one slash at its end, so that a prefix only matches whole path segments. */
function withSlash({ origin, pathname }: URL): string {
  return `${origin}${pathname.replace(/\/+$/, "")}/`;
}

/** Describes an error by class and code only: the text of a foreign error may quote a header. */
export function errorIdentity(error: unknown): string {
  if (!(error instanceof Error)) return "it failed";
  if (error instanceof HttpError && error.status !== null) return `the service answered ${error.status}`;
  const code = "code" in error && typeof error.code === "string" ? ` (${error.code})` : "";
  return `${error.name}${code}`;
}

/** Scope of the current async context; undefined outside of a rollout. */
export const scopes = new AsyncLocalStorage<CaptureScope | undefined>();
