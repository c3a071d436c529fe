/** Changes to the JSON text of forwarded requests: the limit of output tokens, and the salt of the prefix cache. */
import type { Principal } from "../../http/principal.ts";
import { cacheSaltOf, sharedCacheError } from "../request/cache-salt.ts";
import { withTokenLimit } from "../request/effective-request.ts";
import { memberText, withMember } from "../text/json-members.ts";
import type { ForwardCall } from "./forward.ts";

/**
 * Returns the text of a body in which the output tokens are limited to `maxOutputTokens`: larger limits of the body are lowered, and a body
 * without a limit gets one, unless the context of the model is shorter anyway.
 */
export function limitedText(
  { request, limits = [], maxOutputTokens }: Pick<ForwardCall, "request" | "limits" | "maxOutputTokens">,
  contextLength: number | null,
): string {
  const text = withTokenLimit(request.text(), limits, maxOutputTokens ?? null);
  if (maxOutputTokens === undefined) return text;
  const hasLimit = ["max_completion_tokens", "max_tokens"].some((name) => request.fields.has(name));
  if (hasLimit || maxOutputTokens >= (contextLength ?? Infinity)) return text;
  return withMember(text, "max_completion_tokens", String(maxOutputTokens));
}

/** Returns the body with a salt that separates the prefix cache of the caller's entity from other ones. */
export async function salted(body: string, principal: Principal, supportsSalts: () => Promise<boolean>): Promise<string> {
  const text = memberText(body, "cache_salt");
  const requestedSalt = text === undefined ? null : (JSON.parse(text) as string | null);
  const salt = cacheSaltOf(requestedSalt, principal);
  if (salt === requestedSalt) return body;
  if (!(await supportsSalts()))
    throw sharedCacheError("The server that samples this model does not confirm that it supports `cache_salt`: it");
  return withMember(body, "cache_salt", JSON.stringify(salt));
}
