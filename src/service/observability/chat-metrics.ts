/** Metrics of chat completions that the engine samples. */
import type { Registry } from "prom-client";
import { isAbort, WhetstoneError } from "../../base/errors.ts";
import type { PromClient } from "./prom-client.ts";
import type { AdmittedChat, ChatObserver, ServiceObserver, StartedChat } from "./observer.ts";

/** Bounds of the time to the first token, in seconds. */
const FIRST_TOKEN_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
/** Bounds of the time between two tokens, in seconds. */
const BETWEEN_TOKENS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5];
/** Bounds of the duration of a chat completion, in seconds. */
const DURATION_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

/** Base model of a request that ended before its model was known. */
const UNKNOWN_BASE = "unknown";

/** Creates the metrics of chat completions. Returns the function that observes a chat completion. */
export function createChatMetrics(client: PromClient, registers: Registry[]): NonNullable<ServiceObserver["chatStarted"]> {
  const instruments = createInstruments(client, registers);
  return (chat) => new ChatMeter(instruments, chat);
}

/** Returns the label of a chat completion's end: `ok`, `cancelled` or the code of the error. */
function outcomeOf(error: unknown): string {
  if (error === null) return "ok";
  if (isAbort(error)) return "cancelled";
  return WhetstoneError.isInstance(error) ? error.code : "E_INTERNAL";
}

/** Counters, gauges and histograms of {@link createInstruments}. */
type Instruments = ReturnType<typeof createInstruments>;

/** Creates counters, gauges and histograms. Labels of histograms have no entity, because each value costs a series per bucket. */
function createInstruments(client: PromClient, registers: Registry[]) {
  const byOwner = ["base_model", "entity"] as const;
  const counter = <T extends string>(name: string, help: string, labelNames: readonly T[]) =>
    new client.Counter<T>({ name, help, labelNames, registers });
  const gauge = (name: string, help: string) => new client.Gauge({ name, help, registers });
  const histogram = (name: string, help: string, buckets: number[]) =>
    new client.Histogram<"base_model">({ name, help, labelNames: ["base_model"], buckets, registers });
  return {
    requests: counter("whetstone_chat_requests_total", "Ended chat completions, by the code of their error.", [...byOwner, "outcome"]),
    choices: counter("whetstone_chat_choices_total", "Finished choices of chat completions.", [...byOwner, "finish_reason"]),
    promptTokens: counter("whetstone_prompt_tokens_total", "Tokens of prompts.", byOwner),
    cachedTokens: counter("whetstone_prompt_cached_tokens_total", "Tokens of prompts found in the engine's prefix cache.", byOwner),
    generatedTokens: counter("whetstone_generation_tokens_total", "Sampled tokens.", byOwner),
    waiting: gauge("whetstone_chat_requests_waiting", "Chat completions without a token so far: the queue of the engine."),
    running: gauge("whetstone_chat_requests_running", "Chat completions that have a token and are not finished."),
    firstToken: histogram("whetstone_time_to_first_token_seconds", "Time from the read request to its first token.", FIRST_TOKEN_SECONDS),
    betweenTokens: histogram("whetstone_inter_token_latency_seconds", "Time between two tokens of a choice.", BETWEEN_TOKENS_SECONDS),
    duration: histogram("whetstone_chat_duration_seconds", "Time from the read request to its last token.", DURATION_SECONDS),
  };
}

/** Observer of one chat completion. */
class ChatMeter implements ChatObserver {
  readonly #instruments: Instruments;
  readonly #entity: string;
  readonly #startedMs = performance.now();
  /** Time of the last token by choice; 0 before the first one. */
  readonly #lastMs: Float64Array;
  #labels: { readonly base_model: string } = { base_model: UNKNOWN_BASE };
  #hasToken = false;

  constructor(instruments: Instruments, { scope, choices }: StartedChat) {
    this.#instruments = instruments;
    this.#entity = scope.entity;
    this.#lastMs = new Float64Array(choices);
    instruments.waiting.inc();
  }

  /** Labels of the metrics by model and entity. */
  get #owner() {
    return { ...this.#labels, entity: this.#entity };
  }

  admitted({ base, promptTokens }: AdmittedChat): void {
    this.#labels = { base_model: base };
    this.#instruments.promptTokens.inc(this.#owner, promptTokens);
  }

  token(choice: number): void {
    const nowMs = performance.now();
    const previousMs = this.#lastMs[choice] ?? 0;
    this.#lastMs[choice] = nowMs;
    // The first token of the request ends its wait. The first tokens of its other choices are not measured.
    if (previousMs > 0) this.#instruments.betweenTokens.observe(this.#labels, (nowMs - previousMs) / 1000);
    else if (!this.#hasToken) {
      this.#hasToken = true;
      this.#instruments.firstToken.observe(this.#labels, (nowMs - this.#startedMs) / 1000);
      this.#instruments.waiting.dec();
      this.#instruments.running.inc();
    }
  }

  choiceFinished({ finishReason, tokens, cachedTokens }: Parameters<ChatObserver["choiceFinished"]>[0]): void {
    this.#instruments.choices.inc({ ...this.#owner, finish_reason: finishReason });
    this.#instruments.generatedTokens.inc(this.#owner, tokens);
    this.#instruments.cachedTokens.inc(this.#owner, cachedTokens);
  }

  ended(error: unknown): void {
    (this.#hasToken ? this.#instruments.running : this.#instruments.waiting).dec();
    this.#instruments.requests.inc({ ...this.#owner, outcome: outcomeOf(error) });
    if (error === null) this.#instruments.duration.observe(this.#labels, (performance.now() - this.#startedMs) / 1000);
  }
}
