/** What is recorded while one rollout runs, and which calls are part of it. */
import { AsyncLocalStorage } from "node:async_hooks";
import { HttpError } from "../client/index.ts";
import { ArgumentError } from "../errors.ts";
import type { ChatCompletion, ChatCompletionRequest } from "../schema/index.ts";
import { delay } from "../util/delay.ts";

/** What a call must be addressed to: a `Policy`, or anything with its `id`. */
export interface CapturedPolicy {
  /** What goes into a request's `model`, e.g. `team/demo/reverse:step7`. */
  readonly id: string;
  /** The checkpoint's step, for answers that do not name one. @default null */
  readonly step?: number | null | undefined;
}

/** One call to the policy that was answered to its end. */
export interface CapturedCall {
  /** Calls of a scope are numbered as they start. */
  readonly order: number;
  readonly request: ChatCompletionRequest;
  readonly completion: ChatCompletion;
}

/** Which calls are recorded. */
export interface ScopeOptions {
  readonly policy?: CapturedPolicy | undefined;
  readonly baseUrl?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** `entity/project/name`, with or without a step, perhaps behind a URI's beginning: how a service addresses trainable models. */
const MODEL_ADDRESS = /^(?:[a-z][a-z0-9+.-]*:\/\/\/)?[^/:\s]+\/[^/:\s]+\/[^/:\s]+(?::step\d+)?$/i;

/** The scope of one rollout. Carried by the async context, so parallel rollouts never meet. */
export class CaptureScope {
  readonly signal: AbortSignal | undefined;
  readonly policy: CapturedPolicy | undefined;
  readonly #baseUrl: string | undefined;
  readonly #calls: CapturedCall[] = [];
  readonly #pending = new Set<Promise<void>>();
  readonly #logs: string[] = [];
  /** Models of chat requests that went elsewhere. */
  readonly #otherModels = new Set<string>();
  #started = 0;
  #isClosed = false;

  constructor({ policy, baseUrl, signal }: ScopeOptions) {
    if (policy !== undefined && (typeof policy.id !== "string" || policy.id === "")) {
      throw new ArgumentError("Expected `policy` to have an `id`, such as `await model.policy()`", { param: "policy" });
    }
    if (baseUrl !== undefined && !URL.canParse(baseUrl)) {
      throw new ArgumentError(`Expected \`baseUrl\` to be an address such as \`service.inferenceUrl\`, got \`${baseUrl}\``, {
        param: "baseUrl",
      });
    }
    this.policy = policy;
    this.#baseUrl = baseUrl === undefined ? undefined : withSlash(new URL(baseUrl));
    this.signal = signal;
  }

  /** Completed calls in the order they started. */
  get calls(): readonly CapturedCall[] {
    return [...this.#calls].sort((a, b) => a.order - b.order);
  }

  /** What was dropped, and why. */
  get logs(): readonly string[] {
    return this.#logs;
  }

  /** Models of the chat requests that were not recorded. */
  get otherModels(): readonly string[] {
    return [...this.#otherModels];
  }

  /** Whether the rollout is over: what still runs in its context is no part of it. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Whether a chat request for `model` at `url` belongs to the rollout. */
  accepts(url: URL, model: string): boolean {
    const isPolicy = this.policy === undefined ? MODEL_ADDRESS.test(model) : model === this.policy.id;
    const isAccepted = isPolicy && (this.#baseUrl === undefined || withSlash(url).startsWith(this.#baseUrl));
    if (!isAccepted) this.#otherModels.add(model);
    return isAccepted;
  }

  /** A place for a call that starts now. */
  nextOrder(): number {
    return this.#started++;
  }

  /** Keeps a call once `answer` is there; an answer that fails is a line in the log, not a turn. Never rejects. */
  track(order: number, request: ChatCompletionRequest, answer: Promise<ChatCompletion>): Promise<void> {
    const recorded = answer.then(
      (completion) => {
        if (!this.#isClosed) this.#calls.push({ order, request, completion });
      },
      (error: unknown) => this.log(`capture: a call to ${request.model ?? "the default model"} is no turn: ${describe(error)}`),
    );
    this.hold(recorded);
    return recorded;
  }

  /** Lets the rollout's end wait for `work`, which must not reject. */
  hold(work: Promise<void>): void {
    this.#pending.add(work);
    void work.finally(() => this.#pending.delete(work));
  }

  /** Adds a line to the log. */
  log(line: string): void {
    if (!this.#isClosed) this.#logs.push(line);
  }

  /** Waits for the answers that are still under way, but no longer than `timeoutMs`; what is not there then is dropped. */
  async settle(timeoutMs: number): Promise<void> {
    const deadline = new AbortController();
    const ends = this.signal === undefined ? deadline.signal : AbortSignal.any([deadline.signal, this.signal]);
    const isOver = delay(timeoutMs, { signal: ends }).then(
      () => true,
      () => true,
    );
    try {
      // A call's end may be another call's beginning: look again until nothing is left.
      while (this.#pending.size > 0) {
        const isLate = await Promise.race([Promise.all(this.#pending).then(() => false), isOver]);
        if (isLate) break;
      }
    } finally {
      deadline.abort();
    }
    this.signal?.throwIfAborted();
    if (this.#pending.size > 0)
      this.#logs.push(
        `capture: ${this.#pending.size} calls had no whole answer ${timeoutMs} ms after the agent was done; they are no turns`,
      );
  }

  /** Ends recording. */
  close(): void {
    this.#isClosed = true;
  }
}

function withSlash({ origin, pathname }: URL): string {
  return `${origin}${pathname.replace(/\/+$/, "")}/`;
}

/** Class and code alone: the text of a foreign error may quote a header. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return "it failed";
  if (error instanceof HttpError && error.status !== null) return `the service answered ${error.status}`;
  const code = "code" in error && typeof error.code === "string" ? ` (${error.code})` : "";
  return `${error.name}${code}`;
}

/** The scope of the code that runs now. */
export const scopes = new AsyncLocalStorage<CaptureScope | undefined>();
