/** Traces of chat completions and training jobs, by the conventions of OpenTelemetry for generative AI. */
import type { TraceAttributes, TraceSpan, Tracing } from "../../base/util/tracing.ts";
import type { AdmittedChat, ChatObserver, FinishedChoice, JobObserver, ServiceObserver, StartedChat, StartedJob } from "./observer.ts";

/** Creates the observer that traces chat completions and training jobs. */
export function traceObserver(tracing: Tracing): ServiceObserver {
  return { chatStarted: (chat) => new ChatTrace(tracing, chat), jobStarted: (job) => traceJob(tracing, job) };
}

/** Finish reasons of the service with another name in the conventions. */
const FINISH_REASONS: Readonly<Record<string, string>> = { repetition: "stop" };

/** Message of a request, as far as traces know it. */
interface WireMessage {
  readonly role?: unknown;
  readonly content?: unknown;
}

/** Returns a message in the form of the conventions. */
function messageParts({ role, content }: WireMessage): object {
  return { role, parts: [{ type: "text", content: typeof content === "string" ? content : JSON.stringify(content ?? "") }] };
}

/** Trace of one chat completion. */
class ChatTrace implements ChatObserver {
  readonly #span: TraceSpan;
  /** Whether the span records messages and answers. */
  readonly #hasContent: boolean;
  readonly #startedMs = performance.now();
  readonly #choices: FinishedChoice[] = [];
  #hasToken = false;

  constructor(tracing: Tracing, { scope, dialect, model, choices, isStream, messages }: StartedChat) {
    this.#hasContent = tracing.hasContent;
    this.#span = tracing.start(model === null ? "chat" : `chat ${model}`, {
      kind: scope.id === null ? "internal" : "server",
      headers: scope.headers,
      attributes: {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "whetstone",
        "gen_ai.request.model": model ?? undefined,
        "gen_ai.request.choice.count": choices === 1 ? undefined : choices,
        "gen_ai.request.stream": isStream || undefined,
        "whetstone.request.id": scope.id ?? undefined,
        "whetstone.entity": scope.entity,
        "whetstone.dialect": dialect,
        "gen_ai.input.messages": tracing.hasContent
          ? JSON.stringify(messages().map((each) => messageParts(each as WireMessage)))
          : undefined,
      },
    });
  }

  admitted({ base, model, responseId, promptTokens, sampling, stop }: AdmittedChat): void {
    this.#span.set({
      "gen_ai.response.id": responseId,
      "gen_ai.response.model": model,
      "whetstone.base_model": base,
      "gen_ai.usage.input_tokens": promptTokens,
      "gen_ai.request.temperature": sampling?.temperature,
      "gen_ai.request.top_p": sampling?.topP,
      "gen_ai.request.top_k": sampling?.topK === 0 ? undefined : sampling?.topK,
      "gen_ai.request.max_tokens": sampling?.maxTokens,
      "gen_ai.request.seed": sampling === null ? undefined : seedAttribute(sampling.seed),
      "gen_ai.request.stop_sequences": stop.length === 0 ? undefined : stop,
    });
  }

  token(): void {
    if (this.#hasToken) return;
    this.#hasToken = true;
    this.#span.set({ "gen_ai.response.time_to_first_chunk": (performance.now() - this.#startedMs) / 1000 });
  }

  choiceFinished(choice: FinishedChoice): void {
    this.#choices.push(choice);
  }

  ended(error: unknown): void {
    const choices = this.#choices.toSorted((a, b) => a.index - b.index);
    const reasons = choices.map(({ finishReason }) => FINISH_REASONS[finishReason] ?? finishReason);
    const sum = (count: (choice: FinishedChoice) => number) => choices.reduce((total, each) => total + count(each), 0);
    const outputs = choices.map(({ text }, index) => ({
      ...messageParts({ role: "assistant", content: text }),
      finish_reason: reasons[index],
    }));
    this.#span.set({
      "gen_ai.usage.output_tokens": sum(({ tokens }) => tokens),
      "gen_ai.usage.cache_read.input_tokens": sum(({ cachedTokens }) => cachedTokens) || undefined,
      "gen_ai.response.finish_reasons": reasons.length === 0 ? undefined : reasons,
      "gen_ai.output.messages": this.#hasContent && outputs.length > 0 ? JSON.stringify(outputs) : undefined,
    });
    if (error !== null) this.#span.fail(error);
    this.#span.end();
  }
}

/** Returns a seed as an attribute; undefined for a seed with more bits than an attribute can represent. */
function seedAttribute(seed: bigint): number | undefined {
  return Number.isSafeInteger(Number(seed)) ? Number(seed) : undefined;
}

/** Returns the finite metrics of a step as attributes. */
function stepAttributes(metrics: Readonly<Record<string, unknown>>): TraceAttributes {
  const numbers = Object.entries(metrics).filter(([, value]) => typeof value === "number" && Number.isFinite(value));
  return Object.fromEntries(numbers.map(([name, value]) => [`whetstone.metrics.${name}`, value as number]));
}

/** Starts the trace of one run of a training job, in the trace of the request that created the job. */
function traceJob(tracing: Tracing, { id, type, entity, model, base, committedSteps, traceparent }: StartedJob): JobObserver {
  const span = tracing.start(`train ${type}`, {
    kind: "internal",
    headers: traceparent === null ? {} : { traceparent },
    isQueued: true,
    attributes: {
      "whetstone.job.id": id,
      "whetstone.job.type": type,
      "whetstone.entity": entity,
      "whetstone.model": model,
      "whetstone.base_model": base,
      "whetstone.job.committed_steps": committedSteps,
    },
  });
  return {
    step: (metrics) => span.event("whetstone.job.step", stepAttributes(metrics)),
    ended(outcome, message) {
      span.set({ "whetstone.job.outcome": outcome });
      if (outcome === "failed") span.fail(new Error(message ?? "The training job failed"));
      span.end();
    },
  };
}
