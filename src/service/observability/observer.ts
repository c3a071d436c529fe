/** Events of the service, to which metrics, traces and logs subscribe. Without an observer nothing is allocated and nothing is called. */
import type { IncomingHttpHeaders } from "node:http";

/** Origin of a chat completion: an HTTP request, or the service itself. */
export interface RequestScope {
  /** Identifier of the request, as in the header `x-request-id`; null for a chat completion of the service itself. */
  readonly id: string | null;
  /** Entity that sent the request. */
  readonly entity: string;
  /** Headers of the request, which may contain a trace context. */
  readonly headers: IncomingHttpHeaders;
}

/** Returns the scope of chat completions that the service itself requests for an entity, such as the judgments of a grader. */
export function internalScope(entity: string): RequestScope {
  return { id: null, entity, headers: {} };
}

/** Returns the log fields that name a request. */
export function requestField({ id }: Pick<RequestScope, "id">): { readonly request?: string } {
  return id === null ? {} : { request: id };
}

/** Record of one answered request, passed to the request hook. Holds no query, no headers and no body. */
export interface RequestRecord {
  /** Identifier of the request, as in the header `x-request-id` of the response. */
  readonly id: string;
  /** HTTP method of the request. */
  readonly method: string;
  /**
   * Percent-encoded path: free of control characters and spaces, so it can be part of a log line. Keys in the path are replaced by `[key]`.
   */
  readonly path: string;
  /** Pattern of the route, such as `/v1/preview/models/:model_id`; `unmatched` for a path or method without a route. */
  readonly route: string;
  /** Entity of the key that sent the request. */
  readonly entity: string;
  /** HTTP status of the response; 499 if the client closed the request. */
  readonly status: number;
  /** Milliseconds until the response headers were ready. */
  readonly durationMs: number;
}

/** Chat completion at its start. */
export interface StartedChat {
  readonly scope: RequestScope;
  /** API of the request, such as `chat` or `messages`. */
  readonly dialect: string;
  /** Model of the request; null for the default. */
  readonly model: string | null;
  /** Number of choices. */
  readonly choices: number;
  readonly isStream: boolean;
  /** Returns the messages of the request, for observers that record content. */
  readonly messages: () => readonly unknown[];
}

/** Chat completion with an encoded prompt, which waits for the engine. */
export interface AdmittedChat {
  /** Identifier of the base model. */
  readonly base: string;
  /** `model` of the response. */
  readonly model: string;
  /** `id` of the response. */
  readonly responseId: string;
  readonly promptTokens: number;
  /** Sampling parameters; null if another server determines them. */
  readonly sampling: {
    readonly temperature: number;
    readonly topP: number;
    readonly topK: number;
    readonly maxTokens: number;
    readonly seed: bigint;
  } | null;
  /** Stop strings. */
  readonly stop: readonly string[];
}

/** Finished choice of a chat completion. */
export interface FinishedChoice {
  readonly index: number;
  readonly finishReason: string;
  /** Number of sampled tokens. */
  readonly tokens: number;
  /** Number of prompt tokens in the engine's prefix cache. */
  readonly cachedTokens: number;
  readonly text: string;
}

/** Observer of one chat completion. */
export interface ChatObserver {
  /** Called when the prompt is encoded. Not called if the request is rejected before. */
  admitted(chat: AdmittedChat): void;
  /** Called for each sampled token of a choice. */
  token(choice: number): void;
  /** Called for each finished choice. */
  choiceFinished(choice: FinishedChoice): void;
  /** Called once, at the end. */
  ended(error: unknown): void;
}

/** Status of a training job after a run: an end, back in the queue, paused, or interrupted by the end of the service. */
export type JobOutcome = "succeeded" | "failed" | "cancelled" | "requeued" | "paused" | "interrupted";

/** Training job that starts or resumes. */
export interface StartedJob {
  readonly id: string;
  /** Kind of the job, such as `rl`. */
  readonly type: string;
  /** Owner of the model. */
  readonly entity: string;
  /** Qualified name of the model. */
  readonly model: string;
  /** Identifier of the base model. */
  readonly base: string;
  /** Optimizer steps that an earlier run of the job committed. */
  readonly committedSteps: number;
  /** Trace context of the request that created the job; null without one. */
  readonly traceparent: string | null;
}

/** Observer of one run of a training job. */
export interface JobObserver {
  /** Called after each optimizer step, with its metrics. */
  step(metrics: Readonly<Record<string, unknown>>): void;
  /** Called once. `message` is the error of a failed job, else null. */
  ended(outcome: JobOutcome, message: string | null): void;
}

/** Subscriber of the service's events. */
export interface ServiceObserver {
  /** Called when the headers of a response are ready. */
  readonly requestAnswered?: ((record: RequestRecord) => void) | undefined;
  /** Called when a chat completion starts. Returns its observer. */
  readonly chatStarted?: ((chat: StartedChat) => ChatObserver) | undefined;
  /** Called when a training job starts or resumes. Returns its observer. */
  readonly jobStarted?: ((job: StartedJob) => JobObserver) | undefined;
}

/** Joins callbacks into one that calls all of them; undefined for an empty list. */
function joinCallbacks<T>(callbacks: readonly ((value: T) => void)[]): ((value: T) => void) | undefined {
  if (callbacks.length < 2) return callbacks[0];
  return (value) => callbacks.forEach((callback) => callback(value));
}

/** Joins the observers of one chat completion; null for none. */
export function joinChat(observers: readonly ChatObserver[]): ChatObserver | null {
  if (observers.length < 2) return observers[0] ?? null;
  return {
    admitted: (admitted) => observers.forEach((observer) => observer.admitted(admitted)),
    token(choice) {
      for (const observer of observers) observer.token(choice);
    },
    choiceFinished: (choice) => observers.forEach((observer) => observer.choiceFinished(choice)),
    ended: (error) => observers.forEach((observer) => observer.ended(error)),
  };
}

/** Joins the observers of chat completions. */
function joinChats(starts: readonly NonNullable<ServiceObserver["chatStarted"]>[]): ServiceObserver["chatStarted"] {
  if (starts.length < 2) return starts[0];
  return (chat) => joinChat(starts.map((start) => start(chat)))!;
}

/** Joins the observers of training jobs. */
function joinJobs(starts: readonly NonNullable<ServiceObserver["jobStarted"]>[]): ServiceObserver["jobStarted"] {
  if (starts.length < 2) return starts[0];
  return (job) => {
    const observers = starts.map((start) => start(job));
    return {
      step: (metrics) => observers.forEach((observer) => observer.step(metrics)),
      ended: (outcome, message) => observers.forEach((observer) => observer.ended(outcome, message)),
    };
  };
}

/** Joins observers into one. Events without a subscriber stay undefined, so that nothing is computed for them. */
export function joinObservers(observers: readonly ServiceObserver[]): ServiceObserver {
  /** Returns the functions of all observers that have one for the event. */
  const subscribersOf = <K extends keyof ServiceObserver>(name: K) => observers.flatMap((observer) => observer[name] ?? []);
  return {
    requestAnswered: joinCallbacks(subscribersOf("requestAnswered")),
    chatStarted: joinChats(subscribersOf("chatStarted")),
    jobStarted: joinJobs(subscribersOf("jobStarted")),
  };
}
