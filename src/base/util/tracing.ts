/**
 * Traces of this process. `enableTracing` of `whetstone/tracing` connects them to OpenTelemetry; without it no span is created and nothing is
 * loaded.
 */

/** Value of an attribute of a span or of an event. */
export type TraceAttribute = string | number | boolean | readonly string[];

/** Attributes by name; undefined members are left out. */
export type TraceAttributes = Readonly<Record<string, TraceAttribute | undefined>>;

/** A started span. */
export interface TraceSpan {
  set(attributes: TraceAttributes): void;
  /** Adds an event at the present time. */
  event(name: string, attributes: TraceAttributes): void;
  /** Marks the span as failed. */
  fail(error: unknown): void;
  end(): void;
  /** Runs `work` with the span as parent of the spans that start in it. */
  run<T>(work: () => T): T;
}

/** Start of a span. */
export interface TraceStart {
  /** `server`: answers a request of another process. `client`: sends one. */
  readonly kind: "server" | "client" | "internal";
  readonly attributes: TraceAttributes;
  /** Headers of a received request: their trace context is the parent if no span is active. @default none */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>> | undefined;
  /** Whether the active span is not the parent: work that an earlier request has queued. @default false */
  readonly isQueued?: boolean | undefined;
}

/** Creator of spans. */
export interface Tracing {
  /** Whether spans have the contents of messages and tool calls. */
  readonly hasContent: boolean;
  start(name: string, start: TraceStart): TraceSpan;
  /** Adds the headers of the active trace context to the headers of a request. */
  inject(headers: Record<string, string>): void;
}

/** Tracing of this process; null while it is off. */
let active: Tracing | null = null;

/** Returns the tracing of this process; null if it is off. */
export function activeTracing(): Tracing | null {
  return active;
}

/** Switches the tracing of this process on, or with null off. */
export function setTracing(tracing: Tracing | null): void {
  active = tracing;
}

/** Runs `work` in a span, which ends when the promise of `work` settles; an error marks it as failed. */
export async function withSpan<T>(tracing: Tracing, name: string, start: TraceStart, work: (span: TraceSpan) => Promise<T>): Promise<T> {
  const span = tracing.start(name, start);
  try {
    return await span.run(() => work(span));
  } catch (error) {
    span.fail(error);
    throw error;
  } finally {
    span.end();
  }
}
