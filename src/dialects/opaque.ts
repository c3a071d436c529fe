/** Reasoning as an opaque member of an answer, which a client sends back unchanged in its next request without showing it. */
import { isUtf8 } from "node:buffer";

/** Returns reasoning as base64. It is not encrypted. */
export function toOpaque(reasoning: string): string {
  return Buffer.from(reasoning).toString("base64");
}

/** Returns the reasoning of an opaque member; null if a provider has encrypted it. */
export function fromOpaque(opaque: unknown): string | null {
  if (typeof opaque !== "string" || opaque === "") return null;
  const bytes = Buffer.from(opaque, "base64");
  return isUtf8(bytes) ? bytes.toString() : null;
}
