/** Answers to forwarded requests, and the conversion of an upstream's errors to them. */
import { z } from "zod";
import type { UpstreamAnswer } from "../../../engine/upstream/upstream.ts";
import type { ErrorBody } from "../../../base/schema/index.ts";
import { isRecord, parseJson } from "../../../base/util/values.ts";
import type { Members } from "../../../dialects/index.ts";
import { toErrorBody, type ErrorBodyFields, type ErrorStatus } from "../../http/errors.ts";

/** Answer of the other server. */
export type ForwardedAnswer =
  /** Whole answer: its members, and the same answer as JSON. */
  | { readonly kind: "whole"; readonly members: Members; readonly json: string }
  | { readonly kind: "stream"; readonly events: ReadableStream<Uint8Array> }
  | { readonly kind: "refusal"; readonly status: ErrorStatus; readonly body: ErrorBody; readonly retryAfter: string | null };

/** Schema of an error body of servers with an OpenAI-compatible interface. */
const upstreamError = z.looseObject({
  error: z.looseObject({ message: z.string(), type: z.string().nullish(), param: z.string().nullish() }),
});

/**
 * Returns the answer to an error of the upstream that is passed to the client: overload, and invalid requests, with the upstream's message. Null
 * for any other error, of which the client learns no details.
 *
 * @param text - Body of the upstream's answer.
 */
export function passedRefusal(answer: Pick<UpstreamAnswer, "status" | "retryAfter">, text: string): ForwardedAnswer | null {
  const parsed = upstreamError.safeParse(nestedError(text));
  if (answer.status === 429 || answer.status === 503) {
    const message = parsed.success ? parsed.data.error.message : "The server that samples this model has no room now";
    return refusal(answer.status, { message, code: "E_OVERLOADED" }, answer.retryAfter ?? "1");
  }
  if (parsed.success && [400, 413, 422].includes(answer.status)) {
    // This interface answers 400 where compatible servers answer 422.
    const isTooLarge = answer.status === 413;
    const { message, type, param } = parsed.data.error;
    return refusal(isTooLarge ? 413 : 400, {
      message,
      param,
      code: isTooLarge ? "E_TOO_LARGE" : "E_ARGUMENT",
      ...(typeof type === "string" ? { type } : {}),
    });
  }
  return null;
}

/** Parses an error body, and returns it with its fields under `error`; older servers have them at the top level. */
function nestedError(text: string): unknown {
  const body = parseJson(text);
  return isRecord(body) && body["object"] === "error" ? { error: body } : body;
}

/** Returns a refusal with an error body. `retryAfter` is the value of the header `Retry-After`; null for none. */
function refusal(status: ErrorStatus, fields: ErrorBodyFields, retryAfter: string | null = null): ForwardedAnswer {
  return { kind: "refusal", status, body: toErrorBody(status, fields), retryAfter };
}

/** Returns the answer to a request that the upstream cannot answer now. */
export function unavailable(message: string): ForwardedAnswer {
  return refusal(503, { message, code: "E_OVERLOADED" }, "1");
}
