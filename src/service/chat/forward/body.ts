/** Bodies of forwarded requests. */
import type { Principal } from "../../http/principal.ts";
import { cacheSaltOf, sharedCacheError } from "../request/cache-salt.ts";
import { withTokenLimit } from "../request/effective-request.ts";
import { memberText, withMember } from "../text/json-members.ts";
import type { ForwardCall } from "./forward.ts";

/** Returns the text of a body with the limit of its output tokens, unless the model's context is shorter anyway. */
export function limitedText(
  { request, limits = [], maxOutputTokens: max }: Pick<ForwardCall, "request" | "limits" | "maxOutputTokens">,
  contextLength: number | null,
): string {
  const text = withTokenLimit(request.text(), limits, max ?? null);
  const isLimited = ["max_completion_tokens", "max_tokens"].some((name) => request.fields.has(name));
  if (max === undefined || isLimited || max >= (contextLength ?? Infinity)) return text;
  return withMember(text, "max_completion_tokens", String(max));
}

/** Returns the body with a salt that separates the prefix cache of the caller's entity from other ones. */
export async function salted(body: string, principal: Principal, supportsSalts: () => Promise<boolean>): Promise<string> {
  const text = memberText(body, "cache_salt");
  const asked = text === undefined ? null : (JSON.parse(text) as string | null);
  const salt = cacheSaltOf(asked, principal);
  if (salt === asked) return body;
  if (!(await supportsSalts()))
    throw sharedCacheError("The server that samples this model does not confirm that it supports `cache_salt`: it");
  return withMember(body, "cache_salt", JSON.stringify(salt));
}
