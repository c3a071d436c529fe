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

/** Creates the tracing on the API of OpenTelemetry. */
export function openTelemetryTracing(
  { context, isSpanContextValid, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace }: OpenTelemetryApi,
  { hasContent }: { readonly hasContent: boolean },
): Tracing & { readonly hasSdk: boolean } {
  const tracer = trace.getTracer("whetstone");
  const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL };
  const start = (name: string, { kind, attributes, headers, isQueued = false }: TraceStart): TraceSpan => {
    const activeContext = isQueued ? ROOT_CONTEXT : context.active();
    // Headers give the parent of a span that has none in this process.
    const isRemote = headers !== undefined && trace.getSpan(activeContext) === undefined;
    const parent = isRemote ? propagation.extract(activeContext, headers) : activeContext;
    const span = tracer.startSpan(name, { kind: kinds[kind], attributes: definedOnly(attributes) }, parent);
    const contextWithSpan = trace.setSpan(parent, span);
    return {
      set: (added) => void span.setAttributes(definedOnly(added)),
      event: (event, added) => void span.addEvent(event, definedOnly(added)),
      fail(error) {
        span.setAttribute("error.type", errorType(error));
        span.setStatus({ code: SpanStatusCode.ERROR, message: messageOf(error) });
      },
      end: () => span.end(),
      run: (work) => context.with(contextWithSpan, work),
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

/** Returns the attribute `error.type`: the code of an error of this package, `cancelled`, or the name of the error. */
function errorType(error: unknown): string {
  if (isAbort(error)) return "cancelled";
  if (WhetstoneError.isInstance(error)) return error.code;
  return error instanceof Error ? error.name : "_OTHER";
}

/** Returns the attributes that are not undefined. */
function definedOnly(attributes: TraceAttributes): otel.Attributes {
  const entries = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as otel.Attributes;
}
