/** Tracing with the API of OpenTelemetry. */
import type * as otel from "@opentelemetry/api";
import { isAbort, WhetstoneError } from "../base/errors.ts";
import type { TraceAttributes, TraceSpan, TraceStart, Tracing } from "../base/util/tracing.ts";
import { messageOf } from "../base/util/values.ts";

/** Part of `@opentelemetry/api` that tracing uses. */
export type OpenTelemetryApi = Pick<
  typeof otel,
  "context" | "isSpanContextValid" | "propagation" | "ROOT_CONTEXT" | "SpanKind" | "SpanStatusCode" | "trace"
>;

/** Value of the attribute `error.type`: the code of an error of this package, `cancelled`, or the name of the error. */
function errorType(error: unknown): string {
  if (isAbort(error)) return "cancelled";
  if (WhetstoneError.isInstance(error)) return error.code;
  return error instanceof Error ? error.name : "_OTHER";
}

/** Returns the attributes that are not undefined. */
function defined(attributes: TraceAttributes): otel.Attributes {
  const entries = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as otel.Attributes;
}

/** Creates the tracing on the API of OpenTelemetry. */
export function openTelemetryTracing(
  { context, isSpanContextValid, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace }: OpenTelemetryApi,
  { hasContent }: { readonly hasContent: boolean },
): Tracing & { readonly hasSdk: boolean } {
  const tracer = trace.getTracer("whetstone");
  const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL };
  const start = (name: string, { kind, attributes, headers, isQueued = false }: TraceStart): TraceSpan => {
    const active = isQueued ? ROOT_CONTEXT : context.active();
    const isRemote = headers !== undefined && trace.getSpan(active) === undefined;
    const parent = isRemote ? propagation.extract(active, headers) : active;
    const span = tracer.startSpan(name, { kind: kinds[kind], attributes: defined(attributes) }, parent);
    const scope = trace.setSpan(parent, span);
    return {
      set: (added) => void span.setAttributes(defined(added)),
      event: (event, added) => void span.addEvent(event, defined(added)),
      fail(error) {
        span.setAttribute("error.type", errorType(error));
        span.setStatus({ code: SpanStatusCode.ERROR, message: messageOf(error) });
      },
      end: () => span.end(),
      run: (work) => context.with(scope, work),
    };
  };
  return {
    hasContent,
    start,
    inject: (headers) => propagation.inject(context.active(), headers),
    get hasSdk() {
      // Without an SDK, the API creates spans with an invalid context.
      return isSpanContextValid(tracer.startSpan("whetstone.probe", { attributes: {}, root: true }, context.active()).spanContext());
    },
  };
}
